// Any bytes as a program: it is refused by validate(), or compiles and gives the interpreter's results.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "backends/cpu/elementwise/kernel.h"
#include "lockstep/base/error.h"
#include "ops/elementwise/program.h"

namespace lockstep::cpu {
namespace {

using elementwise::Instruction;
using elementwise::Opcode;
using elementwise::ScalarProgram;

// Where compiled code and the C library may round differently.
bool rounds_its_own_way(Opcode op) {
  return (op >= Opcode::exp && op <= Opcode::cos) || op == Opcode::pow || op == Opcode::mod;
}

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}
  bool empty() const { return data_ == end_; }
  uint8_t next() { return empty() ? 0 : *data_++; }

 private:
  const uint8_t* data_;
  const uint8_t* end_;
};

ScalarProgram read_program(Bytes& bytes) {
  ScalarProgram program;
  const int inputs = bytes.next() % 4;
  for (int i = 0; i < inputs; ++i) program.inputs.push_back(static_cast<DType>(bytes.next() % kNumDTypes));
  while (!bytes.empty() && program.instructions.size() < 40) {
    Instruction instruction{.op = static_cast<Opcode>(bytes.next() % elementwise::kNumOpcodes),
                            .dtype = static_cast<DType>(bytes.next() % kNumDTypes)};
    const auto position = static_cast<int>(program.instructions.size());
    for (int k = 0; k < elementwise::arity(instruction.op); ++k)
      instruction.args[static_cast<size_t>(k)] = static_cast<int16_t>(position - 1 - bytes.next() % 8);
    if (instruction.op == Opcode::input) instruction.index = static_cast<int16_t>(bytes.next() % 4);
    if (instruction.op == Opcode::constant) instruction.immediate = (bytes.next() - 128) / 16.0;
    program.instructions.push_back(instruction);
  }
  const int outputs = 1 + static_cast<int>(program.instructions.size()) % 3;
  for (int k = 0; k < outputs; ++k)
    program.outputs.push_back(static_cast<int16_t>(static_cast<int>(program.instructions.size()) - 1 - k));
  return program;
}

bool same_element(DType dtype, const uint8_t* a, const uint8_t* b) {
  if (std::memcmp(a, b, size_of(dtype)) == 0) return true;
  return dispatch(dtype, [&]<class T>() {
    T x, y;
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    return std::isnan(static_cast<double>(static_cast<float>(x))) &&
           std::isnan(static_cast<double>(static_cast<float>(y)));
  });
}

void check(const ScalarProgram& program) {
  try {
    elementwise::validate(program);
  } catch (const Error&) {
    return;
  }
  constexpr int64_t kElements = 37;  // two vectors and a tail
  const Shape shape{kElements};
  const auto run = [&](ElementwiseOptions::Implementation implementation) {
    std::vector<std::vector<uint8_t>> memory;
    std::vector<void*> pointers;
    for (const DType dtype : program.inputs) {
      auto& operand = memory.emplace_back(static_cast<size_t>(kElements) * size_of(dtype));
      for (size_t i = 0; i < operand.size(); ++i)
        operand[i] = dtype == DType::boolean ? i % 3 == 0 : static_cast<uint8_t>(i * 37 + 11);
    }
    for (const int16_t output : program.outputs)
      memory.emplace_back(static_cast<size_t>(kElements) *
                          size_of(program.instructions[static_cast<size_t>(output)].dtype));
    for (auto& operand : memory) pointers.push_back(operand.data());
    const std::vector<Strides> in(program.inputs.size(), Strides{1});
    const std::vector<Strides> out(program.outputs.size(), Strides{1});
    prepare_elementwise(program, shape, in, out, 1, {.implementation = implementation})->run(pointers.data());
    return memory;
  };
  const auto compiled = run(ElementwiseOptions::Implementation::automatic);
  const auto interpreted = run(ElementwiseOptions::Implementation::interpreter);
  for (const Instruction& instruction : program.instructions)
    if (rounds_its_own_way(instruction.op)) return;
  for (size_t k = 0; k < program.outputs.size(); ++k) {
    const DType dtype = program.instructions[static_cast<size_t>(program.outputs[k])].dtype;
    const auto& a = compiled[program.inputs.size() + k];
    const auto& b = interpreted[program.inputs.size() + k];
    for (size_t i = 0; i < a.size(); i += size_of(dtype))
      if (!same_element(dtype, a.data() + i, b.data() + i)) std::abort();
  }
}

}  // namespace
}  // namespace lockstep::cpu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::cpu::Bytes bytes(data, size);
  lockstep::cpu::check(lockstep::cpu::read_program(bytes));
  return 0;
}
