// Part of every test program: the graphs that it compiles are checked after every pass.
#include "compile/passes/verify.h"

namespace {
[[maybe_unused]] const bool switched_on = lockstep::compile::verifies_graphs() = true;
}  // namespace
