#include "lockstep/ops/debugging.h"
#include "ops/debugging/debugging.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

OpCases cases() {
  return {{.name = "check_numerics",
           .op = "check_numerics",
           .inputs = {normal({4, 6})},
           .attrs = MessageAttrs{"never seen"},
           .reference = each([](double x) { return x; }),
           .dtypes = kFloats,
           .tolerance = Tolerance::exact,
           .function = [](auto in) { return debugging::check_numerics(TensorArg(in[0]), "never seen"); },
           .edge_shapes = {{{}}, {{1}}, {{0}}, {{2, 0}}},
           .large = {{300, 400}}}};
}

BadCalls bad_calls() {
  return {{"check_numerics_of_integers",
           ErrorCode::dtype_mismatch,
           {"check_numerics: "},
           [] { debugging::check_numerics(Tensor::scalar(1), ""); }},
          {"assert_true_of_numbers", ErrorCode::dtype_mismatch, {"assert_true: "}, [] {
             debugging::assert_true(sample({}), "");
           }}};
}

}  // namespace

const Family kDebuggingFamily{cases, bad_calls};

}  // namespace lockstep::testing
