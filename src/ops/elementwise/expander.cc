#include "ops/elementwise/expander.h"

#include <algorithm>

namespace lockstep::elementwise {

int16_t append(ScalarProgram& program, const Instruction& instruction) {
  const auto it = std::find(program.instructions.begin(), program.instructions.end(), instruction);
  if (it != program.instructions.end()) return static_cast<int16_t>(it - program.instructions.begin());
  program.instructions.push_back(instruction);
  return static_cast<int16_t>(program.instructions.size() - 1);
}

Scalar Expander::constant(double value, DType dtype) {
  return {this, append(program_, {.op = Opcode::constant, .dtype = dtype, .immediate = value}), dtype};
}

Scalar Expander::apply(Opcode op, DType result, Scalar a, Scalar b, Scalar c) {
  return {this, append(program_, {.op = op, .dtype = result, .args = {a.value(), b.value(), c.value()}}),
          result};
}

Scalar Expander::apply(const OpDef& op, const Attrs& attributes, Scalar a) {
  const int16_t input = a.value();
  Expander inner(program_, attributes, {&input, 1});
  op.expand(inner);
  const int16_t result = inner.outputs().front();
  return {this, result, program_.instructions[static_cast<size_t>(result)].dtype};
}

void Expander::inline_program(const ScalarProgram& program) {
  std::vector<int16_t> values;
  for (Instruction instruction : program.instructions) {
    if (instruction.op == Opcode::input) {
      values.push_back(inputs_[static_cast<size_t>(instruction.index)]);
      continue;
    }
    for (int16_t& arg : instruction.args)
      if (arg >= 0) arg = values[static_cast<size_t>(arg)];
    values.push_back(append(program_, instruction));
  }
  for (const int16_t output : program.outputs) outputs_.push_back(values[static_cast<size_t>(output)]);
}

ScalarProgram expand(const OpDef& op, const Attrs& attributes, std::span<const DType> inputs) {
  ScalarProgram program;
  std::vector<int16_t> values;
  for (const DType dtype : inputs) {
    values.push_back(
        append(program, {.op = Opcode::input, .dtype = dtype, .index = static_cast<int16_t>(values.size())}));
    program.inputs.push_back(dtype);
  }
  Expander expander(program, attributes, values);
  op.expand(expander);
  program.outputs.assign(expander.outputs().begin(), expander.outputs().end());
  return program;
}

}  // namespace lockstep::elementwise
