// Gives the values of a vector program registers, stack slots or a place among the constants.
//
// Linear scan over straight-line code: when registers run out, the value whose next use is furthest
// away goes to memory. Values that are the same for a whole row are computed before the row's loop;
// as many of them and of the constants as fit keep a register throughout, the others are read from
// memory, as part of the instruction where it allows that.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backends/cpu/elementwise/vector_program.h"

namespace lockstep::cpu::jit {

struct Location {
  enum class Kind : uint8_t { none, reg, slot, pool };
  Kind kind = Kind::none;
  int index = 0;  // of the register, the stack slot, or the constant's instruction
};

// Copies a value between a register and memory, before an instruction.
struct Move {
  enum class Direction : uint8_t { to_register, to_memory };
  Direction direction;
  bool is_mask;
  int reg;
  Location memory;
};

struct PlacedInstruction {
  int number = 0;  // in VectorProgram::code
  int first_move = 0;
  int last_move = 0;  // one past it, in Placement::moves
  std::array<Location, 4> args;
  int result = -1;     // register
  int stored_to = -1;  // stack slot that also receives the result
};

struct Placement {
  struct Pinned {
    int value;
    int reg;
  };

  std::vector<Pinned> constants;        // loaded once
  std::vector<PlacedInstruction> row;   // computed once per row
  std::vector<PlacedInstruction> body;  // computed for every vector of elements
  std::vector<Move> moves;
  int slots = 0;
};

// Registers left to values. AVX-512 keeps masks in registers of their own; AVX2 in vectors.
struct RegisterCounts {
  int vectors;
  int masks;  // 0 where masks are vectors
};

// The last vector register is the assembler's own; so are three of the mask registers (k0 cannot
// select lanes, k1 selects those of a row's end, k2 is for passing).
constexpr RegisterCounts register_counts(Isa isa) {
  return isa == Isa::avx512 ? RegisterCounts{31, 5} : RegisterCounts{15, 0};
}

Placement place(const VectorProgram& program, RegisterCounts counts);

}  // namespace lockstep::cpu::jit
