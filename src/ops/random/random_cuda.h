// The words of the random ops in device code.
#pragma once

#include "ops/random/random.h"

namespace lockstep::cuda {

// Numbers of the rows that one launch makes (ops/random/random.h).
struct RandomRows {
  const int64_t *state, *example;
  int64_t instance, rows_per_example;

  __device__ uint64_t key() const { return random_key(*state, instance); }
  __device__ uint64_t first_row() const { return static_cast<uint64_t>(*example * rows_per_example); }
};

// The comparison of random_threshold: true where the upper 24 bits of a word are at least this.
inline uint32_t threshold_bits(double threshold) {
  const double scaled = threshold * 0x1p24;
  const auto bits = static_cast<uint32_t>(scaled);
  return bits + (static_cast<double>(bits) < scaled ? 1 : 0);
}

}  // namespace lockstep::cuda
