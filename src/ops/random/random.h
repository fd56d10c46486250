// Random ops, for kernels that name them.
//
// Inputs: the generator's state (int64 scalar) and the number of the batch's first example (int64 scalar).
// The numbers of a row are Philox blocks under the key random_key(state, instance), with the row's number as
// the high half of the counter and the position in the row as the low half; a block makes four 32-bit numbers
// or two doubles.
#pragma once

#include "base/permutation.h"
#include "base/philox.h"
#include "graph/op.h"
#include "lockstep/ops/random.h"

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
// int32 or int64: low + the upper half of the product of `range` and 64 random bits; a range of 0 stands for
// 2^64. A block makes two of them.
extern const OpDef kRandomInteger;
// int64: the numbers below the result's size in the order of random_permutation(), for the batch as a whole.
extern const OpDef kRandomPermutation;

// A state of its own for each number: (state, number) to state, all int64 scalars. What iterations of a
// traced loop draw from.
extern const OpDef kRandomFoldIn;

struct RandomAttrs {
  Shape shape;
  DType dtype = DType::float32;
  int64_t instance = 0;  // tells the random ops of one traced function apart
  // Rows of the first dimension that belong to one example: row r is number example * rows_per_example + r of
  // the whole batch. 0: rows mean nothing, the tensor is one row.
  int64_t rows_per_example = 0;
  double threshold = 0;
  int64_t low = 0;     // random_integer only
  uint64_t range = 0;  // random_integer only: below 2^32 for int32
  bool operator==(const RandomAttrs&) const = default;
  void visit(auto&& v) const {
    v("shape", shape), v("dtype", dtype), v("instance", instance), v("rows_per_example", rows_per_example),
        v("threshold", threshold), v("low", low), v("range", range);
  }
};

// What every op that draws needs: the inputs above, and the attributes that tell its rows apart.
struct RandomSource {
  Tensor state, example;
  int64_t instance = 0, rows_per_example = 0;
};
// Moves the generator (null: the default one) on. `rows` of the first dimension belong to the batch's
// examples where `per_example` says so.
RandomSource random_source(const random::Generator* generator, int64_t rows, bool per_example,
                           std::source_location where);

// The Philox key of one op at one step.
constexpr uint64_t random_key(int64_t state, int64_t instance) {
  const auto block = Philox::block(static_cast<uint64_t>(state), static_cast<uint64_t>(instance), 0);
  return static_cast<uint64_t>(block[1]) << 32 | block[0];
}

// The order in which an op outside of traced functions (instance 0) puts `count` numbers when the generator
// has this state.
inline TabledPermutation random_permutation(int64_t state, int64_t count, int64_t instance = 0) {
  return {random_key(state, instance), count};
}

namespace random {
// Whether set_seed() or agree_on() was called, or a DefaultGenerator is in force: processes that do the same
// draw the same.
bool seeded();
// The default generator goes on from this state, which all processes of a run have been told.
void agree_on(int64_t state);
}  // namespace random

}  // namespace lockstep
