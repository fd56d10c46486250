#include "ops/op_case.h"
namespace lockstep::testing {
namespace {
OpCases cases() { return {}; }
BadCalls bad_calls() { return {}; }
}  // namespace
const Family kConvFamily{cases, bad_calls};
}  // namespace lockstep::testing
