// A scalar program: what one elementwise kernel computes for each element, as data.
//
// Every elementwise op expands into these instructions, fusion joins programs, and each backend
// turns a program into code (the CPU through a just-in-time assembler or an interpreter). The
// meaning of an op therefore exists once.
//
// Values are numbered: value i is the result of instruction i.
//
// Arithmetic on bfloat16 and float16 is done in float32, and a value keeps that precision until it
// is cast to a 16-bit dtype or stored. A cast to the dtype that a value has already is therefore
// not idle: it rounds. A program that is to give the same bits as its ops run one by one casts
// after each of them. Multiplications and additions are never contracted, so float32 and float64
// programs need no such care.
//
// Integers wrap around; division truncates; dividing by zero gives 0, also for mod; a negative
// exponent gives the truncated power (0 where the base is 0). Floor, ceil and round leave integers
// as they are. A float cast to an integer saturates and NaN becomes 0; an integer cast to a smaller
// one wraps around. Where zeros of both signs meet, maximum and minimum return the second operand.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "lockstep/tensor/dtype.h"

namespace lockstep::elementwise {

// clang-format off
enum class Opcode : uint8_t {
  input,     // element of operand `index`
  constant,  // `immediate`, rounded to the dtype
  cast,      // a, converted to `dtype` (float to integer truncates; to bool: != 0)

  // Arithmetic: operands and result share one dtype.
  add, sub, mul, div, maximum, minimum, pow, mod,  // maximum and minimum carry NaN on; mod is floored
  neg, abs, sign, floor, ceil, round,              // round: half to even; sign(NaN) is NaN
  sqrt, exp, log, expm1, log1p, tanh, erf, sin, cos,  // floats only

  // Comparison: operands share one dtype, the result is boolean.
  less, less_equal, greater, greater_equal, equal, not_equal,

  // Logic on booleans; select(a, b, c) is a ? b : c with b and c of one dtype.
  logical_and, logical_or, logical_not, select,
};
// clang-format on

inline constexpr int kNumOpcodes = static_cast<int>(Opcode::select) + 1;

int arity(Opcode op);
const char* name(Opcode op);

struct Instruction {
  Opcode op = Opcode::constant;
  DType dtype = DType::float32;                // of the result
  std::array<int16_t, 3> args = {-1, -1, -1};  // numbers of earlier values
  int16_t index = -1;                          // input only
  double immediate = 0;                        // constant only

  // Immediates are compared by their bits: -0 is not 0, and NaN equals itself.
  bool operator==(const Instruction& other) const {
    return op == other.op && dtype == other.dtype && args == other.args && index == other.index &&
           std::bit_cast<uint64_t>(immediate) == std::bit_cast<uint64_t>(other.immediate);
  }
};

// A program touches at most this many operands (inputs and outputs together); fusion stops there.
inline constexpr int kMaxOperands = 128;

struct ScalarProgram {
  std::vector<DType> inputs;  // dtype of each operand in memory
  std::vector<Instruction> instructions;
  std::vector<int16_t> outputs;  // the values stored, in order; stored as their dtype

  bool operator==(const ScalarProgram&) const = default;
};

uint64_t hash(const ScalarProgram& program);

// The instructions that compute something, of an element.
int64_t arithmetic(const ScalarProgram& program);

// Throws Error naming the instruction and the broken rule: an argument that is not an earlier
// value, dtypes that do not fit the opcode, an operand that does not exist, too many operands.
void validate(const ScalarProgram& program);

// One line per instruction, for people: "%3 = add float32 %1 %2".
std::ostream& operator<<(std::ostream& out, const ScalarProgram& program);

}  // namespace lockstep::elementwise
