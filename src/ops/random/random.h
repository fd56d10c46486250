// Random ops, for kernels that name them.
//
// Inputs: the generator's state (int64 scalar) and the number of the batch's first example (int64 scalar). The
// numbers of a row are Philox blocks under the key random_key(state, instance), with the row's number as the high
// half of the counter and the position in the row as the low half; a block makes four 32-bit numbers or two doubles.
#pragma once

#include "base/philox.h"
#include "graph/op.h"

namespace lockstep {

// Uniform in [0, 1): the upper 24 bits of a word for float32 (8 for bfloat16, 11 for float16: what they hold
// exactly below 1), 53 bits of two words for float64.
extern const OpDef kRandomUniform;
// Box-Muller: words 2k and 2k + 1 make elements 2k and 2k + 1.
extern const OpDef kRandomNormal;
// Normal numbers; one outside of [-2, 2] is drawn again until it is inside.
extern const OpDef kRandomTruncatedNormal;
// True where the float32 uniform number is at least `threshold`.
extern const OpDef kRandomThreshold;

// A state of its own for each number: (state, number) to state, all int64 scalars. What iterations of a
// traced loop draw from.
extern const OpDef kRandomFoldIn;

struct RandomAttrs {
  Shape shape;
  DType dtype = DType::float32;
  int64_t instance = 0;  // tells the random ops of one traced function apart
  // Rows of the first dimension that belong to one example: row r is number example * rows_per_example + r of the
  // whole batch. 0: rows mean nothing, the tensor is one row.
  int64_t rows_per_example = 0;
  double threshold = 0;
  bool operator==(const RandomAttrs&) const = default;
  void visit(auto&& v) const {
    v("shape", shape), v("dtype", dtype), v("instance", instance), v("rows_per_example", rows_per_example),
        v("threshold", threshold);
  }
};

// The Philox key of one op at one step.
inline uint64_t random_key(int64_t state, int64_t instance) {
  const auto block = Philox::block(static_cast<uint64_t>(state), static_cast<uint64_t>(instance), 0);
  return static_cast<uint64_t>(block[1]) << 32 | block[0];
}

}  // namespace lockstep
