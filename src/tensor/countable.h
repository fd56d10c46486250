// A tensor's bytes are counted in 64 bits, those of a tensor that is only traced as well: sizes of others
// follow from its dimensions by multiplication.
#pragma once

#include <cstdint>
#include <limits>
#include <source_location>
#include <string_view>

#include "lockstep/tensor/shape.h"

namespace lockstep {

// Throws Error(out_of_memory) naming `what`, which makes it, for a tensor of more bytes than can be counted.
// A dimension of 0 counts as 1: what is computed from the others must fit, too.
void require_countable(const TensorSpec& spec, std::string_view what, std::source_location where);

// a + b of sizes that are not negative; the largest int64 where that is more.
inline int64_t counted_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

}  // namespace lockstep
