// Evaluates a program for one element at compile time.
#pragma once

#include <optional>
#include <span>

#include "ops/elementwise/program.h"

namespace lockstep::elementwise {

// The program's one output for these inputs, rounded to the dtype of each step as a kernel would.
// Nothing where an instruction's result could differ from a kernel's in the last bit.
std::optional<double> evaluate(const ScalarProgram& program, std::span<const double> inputs);

}  // namespace lockstep::elementwise
