// How many threads a kernel of products is worth.
#pragma once

#include <cstdint>

namespace lockstep::cpu {

// All of so many threads, or one that is done with so many multiplications and additions before the others
// have started: in a few microseconds. None in between, for OpenMP ends the threads that a smaller team does
// without.
inline int threads_for_products(int64_t products, int threads) {
  constexpr int64_t kFewProducts = 1 << 18;
  return products < kFewProducts ? 1 : threads;
}

}  // namespace lockstep::cpu
