#include "backends/cpu/elementwise/registers.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "backends/cpu/elementwise/kernel_testing.h"
#include "backends/cpu/elementwise/lowering.h"

namespace lockstep::cpu::jit {
namespace {

using testing::Opcode;
using testing::Writer;

// Follows a placement and remembers which value each register and slot holds.
class Machine {
 public:
  Machine(const VectorProgram& program, const Placement& placement, RegisterCounts counts)
      : program_(program), placement_(placement), counts_(counts) {}

  void run() {
    for (const Placement::Pinned& pinned : placement_.constants) write(pinned.value, pinned.reg);
    // Two rows of two vectors each: what survives from one turn to the next must still be right.
    for (int row = 0; row < 2; ++row) {
      segment(placement_.row);
      segment(placement_.body);
      segment(placement_.body);
    }
  }

 private:
  const VectorInstruction& code(int value) const { return program_.code[static_cast<size_t>(value)]; }
  bool in_mask_register(bool is_mask) const { return is_mask && counts_.masks > 0; }

  void write(int value, int reg) {
    const bool mask = in_mask_register(code(value).is_mask);
    ASSERT_GE(reg, 0);
    ASSERT_LT(reg, mask ? counts_.masks : counts_.vectors);
    registers_[{mask, reg}] = value;
  }

  int read(Location location, bool is_mask) {
    switch (location.kind) {
      case Location::Kind::reg: return registers_.at({in_mask_register(is_mask), location.index});
      case Location::Kind::slot: return slots_.at(location.index);
      case Location::Kind::pool: return location.index;
      case Location::Kind::none: break;
    }
    return -1;
  }

  void segment(const std::vector<PlacedInstruction>& placed) {
    for (const PlacedInstruction& p : placed) {
      for (int m = p.first_move; m < p.last_move; ++m) {
        const Move& move = placement_.moves[static_cast<size_t>(m)];
        const Location reg{Location::Kind::reg, move.reg};
        if (move.direction == Move::Direction::to_memory)
          slots_[move.memory.index] = read(reg, move.is_mask);
        else
          write(read(move.memory, move.is_mask), move.reg);
      }
      const VectorInstruction& instruction = code(p.number);
      std::array<int, 4> found = {-1, -1, -1, -1};
      for (size_t a = 0; a < 4; ++a)
        if (instruction.args[a] >= 0) found[a] = read(p.args[a], code(instruction.args[a]).is_mask);
      std::array<int, 4> swapped = found;
      std::swap(swapped[0], swapped[1]);
      const bool commutes = instruction.op == Op::add || instruction.op == Op::mul ||
                            instruction.op == Op::bit_and || instruction.op == Op::bit_or ||
                            instruction.op == Op::bit_xor || instruction.op == Op::mask_and ||
                            instruction.op == Op::mask_or || instruction.op == Op::mask_xor;
      ASSERT_TRUE(found == instruction.args || (commutes && swapped == instruction.args))
          << "instruction " << p.number;
      if (is_store(instruction.op)) continue;
      write(p.number, p.result);
      if (p.stored_to >= 0) slots_[p.stored_to] = p.number;
      ASSERT_LT(p.stored_to, placement_.slots);
    }
  }

  const VectorProgram& program_;
  const Placement& placement_;
  const RegisterCounts counts_;
  std::map<std::pair<bool, int>, int> registers_;
  std::map<int, int> slots_;
};

// Long lives, masks, functions, and values shared by a row.
elementwise::ScalarProgram crowded() {
  Writer w;
  const int16_t x = w.input(DType::float32);
  const int16_t s = w.input(DType::float32);
  std::vector<int16_t> values;
  std::vector<int16_t> masks;
  for (int i = 0; i < 20; ++i) {
    const int16_t shared = w.op(Opcode::tanh, {w.op(Opcode::add, {s, w.constant(DType::float32, i)})});
    values.push_back(w.op(i % 2 ? Opcode::exp : Opcode::sin, {w.op(Opcode::mul, {x, shared})}));
    masks.push_back(w.op(Opcode::less, {values.back(), i % 3 ? x : s}));
  }
  int16_t sum = x;
  for (size_t i = 0; i < values.size(); ++i)
    sum = w.op(Opcode::add, {sum, w.op(Opcode::select, {masks[19 - i], values[i], values[(i * 7) % 20]})});
  w.output(sum);
  w.output(w.cast(sum, DType::float64));
  return w.program;
}

TEST(Registers, EveryInstructionFindsItsArguments) {
  const std::vector<Access> accesses = {Access::contiguous, Access::broadcast, Access::contiguous,
                                        Access::contiguous};
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    const auto program = lower(crowded(), accesses, isa);
    ASSERT_TRUE(program);
    std::vector<RegisterCounts> counts = {register_counts(isa)};
    if (isa == Isa::avx512)
      counts.insert(counts.end(), {{6, 3}, {5, 3}, {8, 4}, {200, 60}});
    else
      counts.insert(counts.end(), {{6, 0}, {5, 0}, {100, 0}});
    for (const RegisterCounts& c : counts) {
      SCOPED_TRACE(::testing::Message() << c.vectors << " vector and " << c.masks << " mask registers");
      const Placement placement = place(*program, c);
      ASSERT_NO_FATAL_FAILURE(Machine(*program, placement, c).run());
    }
  }
}

TEST(Registers, NothingGoesToMemoryWhereRegistersSuffice) {
  Writer w;
  const int16_t x = w.input(DType::float32);
  w.output(w.op(Opcode::exp, {w.op(Opcode::mul, {x, w.constant(DType::float32, 3)})}));
  const auto program = lower(w.program, std::vector<Access>(2, Access::contiguous), Isa::avx512);
  const Placement placement = place(*program, register_counts(Isa::avx512));
  EXPECT_EQ(placement.slots, 0);
  EXPECT_TRUE(placement.moves.empty());
  EXPECT_GT(placement.constants.size(), 5u);
}

TEST(Registers, ValuesOfARowStayOutOfTheBody) {
  Writer w;
  const int16_t x = w.input(DType::float32);
  const int16_t s = w.input(DType::float32);
  w.output(w.op(Opcode::mul, {x, w.op(Opcode::sqrt, {s})}));
  const std::vector<Access> accesses = {Access::contiguous, Access::broadcast, Access::contiguous};
  const auto program = lower(w.program, accesses, Isa::avx512);
  const Placement placement = place(*program, register_counts(Isa::avx512));
  EXPECT_EQ(placement.row.size(), 2u);   // read the scalar, take the root
  EXPECT_EQ(placement.body.size(), 3u);  // read, multiply, write
}

}  // namespace
}  // namespace lockstep::cpu::jit
