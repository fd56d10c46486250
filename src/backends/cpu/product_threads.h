// How many threads a kernel of products is worth.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::cpu {

// Of so many threads those that so many multiplications and additions are worth: with fewer than this a thread is done, a
// microsecond after it began, before the others have started.
inline int threads_for_products(int64_t products, int threads) {
  constexpr int64_t kProductsPerThread = 1 << 17;
  return static_cast<int>(std::clamp<int64_t>(products / kProductsPerThread, 1, threads));
}

}  // namespace lockstep::cpu
