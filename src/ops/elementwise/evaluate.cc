#include "ops/elementwise/evaluate.h"

#include <algorithm>
#include <cmath>

namespace lockstep::elementwise {
namespace {

// A double holds every product and sum of two floats exactly enough that rounding once more gives
// the correctly rounded float result of + - * / and sqrt.
double rounded(double value, DType dtype) {
  switch (dtype) {
    case DType::float32: return static_cast<float>(value);
    case DType::float64: return value;
    case DType::boolean: return value != 0 ? 1 : 0;
    default: return value;
  }
}

bool exact(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::boolean;
}

}  // namespace

std::optional<double> evaluate(const ScalarProgram& program, std::span<const double> inputs) {
  std::vector<double> values;
  for (const Instruction& i : program.instructions) {
    if (!exact(i.dtype)) return std::nullopt;
    const auto arg = [&](int k) { return values[static_cast<size_t>(i.args[static_cast<size_t>(k)])]; };
    double result = 0;
    switch (i.op) {
      case Opcode::input: result = inputs[static_cast<size_t>(i.index)]; break;
      case Opcode::constant: result = i.immediate; break;
      case Opcode::cast: result = arg(0); break;
      case Opcode::add: result = arg(0) + arg(1); break;
      case Opcode::sub: result = arg(0) - arg(1); break;
      case Opcode::mul: result = arg(0) * arg(1); break;
      case Opcode::div: result = arg(0) / arg(1); break;
      case Opcode::neg: result = -arg(0); break;
      case Opcode::abs: result = std::fabs(arg(0)); break;
      case Opcode::sqrt: result = std::sqrt(arg(0)); break;
      case Opcode::less: result = arg(0) < arg(1); break;
      case Opcode::less_equal: result = arg(0) <= arg(1); break;
      case Opcode::greater: result = arg(0) > arg(1); break;
      case Opcode::greater_equal: result = arg(0) >= arg(1); break;
      case Opcode::equal: result = arg(0) == arg(1); break;
      case Opcode::not_equal: result = arg(0) != arg(1); break;
      case Opcode::select: result = arg(0) != 0 ? arg(1) : arg(2); break;
      default: return std::nullopt;
    }
    values.push_back(rounded(result, i.dtype));
  }
  return values[static_cast<size_t>(program.outputs.front())];
}

}  // namespace lockstep::elementwise
