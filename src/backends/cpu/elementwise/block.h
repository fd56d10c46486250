// What the loop nest hands to the code of a program: two nested loops over all operands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/elementwise/program.h"

namespace lockstep::cpu {

// How an operand is walked along the columns. Generated code depends on this, never on sizes.
enum class Access : uint8_t { contiguous, broadcast, strided };

// One operand of a block, strides in bytes. Generated code reads this layout.
struct BlockOperand {
  std::byte* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
};

// Operands are the program's inputs, then its outputs. Only those the program has are set.
struct Block {
  int64_t rows;
  int64_t columns;
  std::array<BlockOperand, elementwise::kMaxOperands> operands;

  Block() {}  // NOLINT: filling in all operands would cost more than a small kernel
};

// A program ready to run over blocks of any size. Immutable, so safe to share between threads.
class BlockCode {
 public:
  virtual ~BlockCode() = default;
  virtual void run(const Block& block) const = 0;
  virtual const char* implementation() const = 0;
  // A rough estimate of the arithmetic alone, to decide how many threads are worth waking.
  virtual double nanoseconds_per_element() const = 0;
};

}  // namespace lockstep::cpu
