#include "ops/elementwise/program.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <ostream>

#include "lockstep/base/error.h"

namespace lockstep::elementwise {
namespace {

// What an opcode accepts. Operands share one dtype, except select's condition and what cast reads.
enum class Accepts : uint8_t { anything, numbers, floats, booleans };

struct Row {
  const char* name;
  int arity;
  Accepts accepts = Accepts::numbers;
  bool compares = false;  // the result is boolean whatever the operands are
};

constexpr Row kRows[] = {
    {"input", 0, Accepts::anything},
    {"constant", 0, Accepts::anything},
    {"cast", 1, Accepts::anything},
    {"add", 2},
    {"sub", 2},
    {"mul", 2},
    {"div", 2},
    {"maximum", 2},
    {"minimum", 2},
    {"pow", 2},
    {"mod", 2},
    {"neg", 1},
    {"abs", 1},
    {"sign", 1},
    {"floor", 1},
    {"ceil", 1},
    {"round", 1},
    {"sqrt", 1, Accepts::floats},
    {"exp", 1, Accepts::floats},
    {"log", 1, Accepts::floats},
    {"expm1", 1, Accepts::floats},
    {"log1p", 1, Accepts::floats},
    {"tanh", 1, Accepts::floats},
    {"erf", 1, Accepts::floats},
    {"sin", 1, Accepts::floats},
    {"cos", 1, Accepts::floats},
    {"less", 2, Accepts::anything, true},
    {"less_equal", 2, Accepts::anything, true},
    {"greater", 2, Accepts::anything, true},
    {"greater_equal", 2, Accepts::anything, true},
    {"equal", 2, Accepts::anything, true},
    {"not_equal", 2, Accepts::anything, true},
    {"logical_and", 2, Accepts::booleans},
    {"logical_or", 2, Accepts::booleans},
    {"logical_not", 1, Accepts::booleans},
    {"select", 3, Accepts::anything},
};
static_assert(std::size(kRows) == kNumOpcodes);

const Row& row(Opcode op) { return kRows[static_cast<size_t>(op)]; }

bool accepts(Accepts rule, DType dtype) {
  switch (rule) {
    case Accepts::anything: return true;
    case Accepts::numbers: return dtype != DType::boolean;
    case Accepts::floats: return is_floating(dtype);
    case Accepts::booleans: return dtype == DType::boolean;
  }
  return false;
}

void print(std::ostream& out, size_t number, const Instruction& instruction) {
  out << '%' << number << " = " << name(instruction.op) << ' ' << instruction.dtype;
  if (instruction.op == Opcode::input) out << " #" << instruction.index;
  if (instruction.op == Opcode::constant) out << ' ' << instruction.immediate;
  for (int i = 0; i < arity(instruction.op); ++i) out << " %" << instruction.args[static_cast<size_t>(i)];
}

// An instruction, printed where a message is built.
struct Line {
  size_t number;
  const Instruction& instruction;
  friend std::ostream& operator<<(std::ostream& out, const Line& line) {
    print(out, line.number, line.instruction);
    return out;
  }
};

void validate(const ScalarProgram& program, size_t number) {
  const auto here = std::source_location::current();
  const Instruction& instruction = program.instructions[number];
  const Line line{number, instruction};
  require(static_cast<size_t>(instruction.op) < std::size(kRows), ErrorCode::invalid_argument, here,
          "elementwise program: instruction ", number, " has no valid opcode");
  const Row& rule = row(instruction.op);

  for (size_t i = 0; i < instruction.args.size(); ++i) {
    const int arg = instruction.args[i];
    if (i < static_cast<size_t>(rule.arity))
      require(arg >= 0 && static_cast<size_t>(arg) < number, ErrorCode::invalid_argument, here,
              "elementwise program: '", line, "' reads %", arg, ", which is not an earlier value");
    else
      require(arg == -1, ErrorCode::invalid_argument, here, "elementwise program: '", line, "' takes ",
              rule.arity, " arguments, but argument ", i, " is %", arg, "; unused ones are -1");
  }
  const auto dtype_of_arg = [&](size_t i) {
    return program.instructions[static_cast<size_t>(instruction.args[i])].dtype;
  };

  if (instruction.op == Opcode::input) {
    require(instruction.index >= 0 && static_cast<size_t>(instruction.index) < program.inputs.size(),
            ErrorCode::invalid_argument, here, "elementwise program: '", line, "' reads operand ",
            instruction.index, " of ", program.inputs.size());
    const DType stored = program.inputs[static_cast<size_t>(instruction.index)];
    require(instruction.dtype == stored, ErrorCode::dtype_mismatch, here, "elementwise program: '", line,
            "' reads an operand of ", stored, "; read it as that and cast");
    return;
  }
  if (instruction.op == Opcode::constant || instruction.op == Opcode::cast) return;

  const bool selects = instruction.op == Opcode::select;
  const size_t first = selects ? 1 : 0;  // of the operands that share one dtype
  if (selects)
    require(dtype_of_arg(0) == DType::boolean, ErrorCode::dtype_mismatch, here, "elementwise program: '",
            line, "' has a condition of ", dtype_of_arg(0), "; it must be bool");
  const DType operand = dtype_of_arg(first);
  for (size_t i = first + 1; i < static_cast<size_t>(rule.arity); ++i)
    require(dtype_of_arg(i) == operand, ErrorCode::dtype_mismatch, here, "elementwise program: '", line,
            "' mixes ", operand, " and ", dtype_of_arg(i), "; cast one of them");
  const DType result = rule.compares ? DType::boolean : operand;
  require(instruction.dtype == result, ErrorCode::dtype_mismatch, here, "elementwise program: '", line,
          "' must have a result of ", result);
  require(accepts(rule.accepts, operand), ErrorCode::dtype_mismatch, here, "elementwise program: '", line,
          "' is not defined for ", operand);
}

}  // namespace

int arity(Opcode op) { return row(op).arity; }
const char* name(Opcode op) { return row(op).name; }

int64_t arithmetic(const ScalarProgram& program) {
  return std::count_if(program.instructions.begin(), program.instructions.end(), [](const Instruction& i) {
    return i.op != Opcode::input && i.op != Opcode::constant;
  });
}

uint64_t hash(const ScalarProgram& program) {
  uint64_t state = 0x9e3779b97f4a7c15;
  const auto mix = [&](uint64_t word) {
    state = (state ^ word) * 0xff51afd7ed558ccd;
    state ^= state >> 32;
  };
  mix(program.inputs.size());
  for (const DType dtype : program.inputs) mix(static_cast<uint64_t>(dtype));
  for (const Instruction& i : program.instructions) {
    const auto half = [](int16_t value) { return static_cast<uint64_t>(static_cast<uint16_t>(value)); };
    mix(static_cast<uint64_t>(i.op) | static_cast<uint64_t>(i.dtype) << 8 | half(i.index) << 16);
    mix(half(i.args[0]) | half(i.args[1]) << 16 | half(i.args[2]) << 32);
    if (i.op == Opcode::constant) mix(std::bit_cast<uint64_t>(i.immediate));
  }
  mix(program.outputs.size());
  for (const int16_t output : program.outputs) mix(static_cast<uint64_t>(output));
  return state;
}

void validate(const ScalarProgram& program) {
  const auto here = std::source_location::current();
  const size_t operands = program.inputs.size() + program.outputs.size();
  require(operands <= kMaxOperands, ErrorCode::invalid_argument, here, "elementwise program: ", operands,
          " inputs and outputs; at most ", kMaxOperands, " fit into one kernel, split the program");
  require(program.instructions.size() <= static_cast<size_t>(std::numeric_limits<int16_t>::max()),
          ErrorCode::invalid_argument, here, "elementwise program: ", program.instructions.size(),
          " instructions; values are numbered with 16 bits, split the program");
  for (size_t number = 0; number < program.instructions.size(); ++number) validate(program, number);
  for (const int16_t output : program.outputs)
    require(output >= 0 && static_cast<size_t>(output) < program.instructions.size(),
            ErrorCode::invalid_argument, here, "elementwise program: output %", output, " is none of its ",
            program.instructions.size(), " values");
}

std::ostream& operator<<(std::ostream& out, const ScalarProgram& program) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    print(out, i, program.instructions[i]);
    out << '\n';
  }
  out << "store";
  for (const int16_t output : program.outputs) out << " %" << output;
  return out << '\n';
}

}  // namespace lockstep::elementwise
