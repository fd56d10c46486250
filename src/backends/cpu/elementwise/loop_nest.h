// The iteration space of an elementwise kernel, made as flat as its operands allow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/cpu/elementwise/block.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::cpu {

// Rows and columns are the two innermost loops, `outer` the ones around them (outermost first).
struct LoopNest {
  struct Operand {
    int64_t offset = 0;  // of the first element walked; not 0 where a loop runs backwards
    int64_t row_stride = 0;
    int64_t column_stride = 0;
    Strides outer_strides;
    Access access = Access::contiguous;
  };

  int64_t rows = 1;
  int64_t columns = 1;
  Shape outer;
  std::vector<Operand> operands;  // inputs, then outputs; offset and strides in bytes

  int64_t size() const { return outer.size() * rows * columns; }
};

struct OperandLayout {
  const Strides* strides;  // in elements, one per dimension; 0 repeats the element
  DType dtype;
};

// Drops dimensions of size 1, turns those around that every operand walks backwards, orders them
// by the outputs' strides and merges neighbours that are one walk for every operand. Throws
// Error(shape_mismatch) where strides do not fit the shape or an output would be written twice.
LoopNest make_loop_nest(const Shape& shape, std::span<const OperandLayout> inputs,
                        std::span<const OperandLayout> outputs);

}  // namespace lockstep::cpu
