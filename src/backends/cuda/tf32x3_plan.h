// How a product on tensor cores in TF32 halves (tf32x3.h) is cut into the tiles of blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda::tf32x3 {

inline constexpr int kLargeTile = 128, kSmallTile = 64, kPlanDepth = 32;

// C (m x n) = A (m x k) B (k x n), so many times.
struct ProductSize {
  int m = 0, n = 0, k = 0;
  int batches = 1;
};

struct Plan {
  bool large = true;  // tiles of kLargeTile a side, else kSmallTile
  int parts = 1;      // of the inner dimension (split-K), each `share` long, the last one perhaps less
  int share = 0;

  int tile() const { return large ? kLargeTile : kSmallTile; }
  int64_t tiles(const ProductSize& size) const {
    return int64_t{(size.m + tile() - 1) / tile()} * ((size.n + tile() - 1) / tile());
  }
  size_t workspace_bytes(const ProductSize& size) const {
    return parts > 1 ? sizeof(float) * static_cast<size_t>(parts) * static_cast<size_t>(size.batches) *
                           static_cast<size_t>(size.m) * static_cast<size_t>(size.n)
                     : 0;
  }
};

// The plan that keeps a GPU of so many multiprocessors busiest. It depends on nothing else, so a product has the same bits in
// every run.
Plan make_plan(const ProductSize& size, int processors);

}  // namespace lockstep::cuda::tf32x3
