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

// What multiplies: the warps of a block, each a part of a tile of kLargeTile or kSmallTile a side, or groups
// of warps, where a chip has these (Hopper).
enum class Tiles : uint8_t { small, large, warp_groups };

struct Plan {
  Tiles kind = Tiles::large;
  int parts = 1;  // of the inner dimension (split-K), each `share` long, the last one perhaps less
  int share = 0;

  int tile() const { return kind == Tiles::small ? kSmallTile : kLargeTile; }
  int64_t tiles(const ProductSize& size) const {
    return int64_t{(size.m + tile() - 1) / tile()} * ((size.n + tile() - 1) / tile());
  }
  size_t workspace_bytes(const ProductSize& size) const {
    return parts > 1 ? sizeof(float) * static_cast<size_t>(parts) * static_cast<size_t>(size.batches) *
                           static_cast<size_t>(size.m) * static_cast<size_t>(size.n)
                     : 0;
  }
};

// What a plan depends on beside the product, so that a product has the same bits in every run on a kind of
// GPU.
struct Gpu {
  int processors = 0;
  bool warp_groups = false;
};
Gpu this_gpu();

// The plan that keeps the GPU busiest.
Plan make_plan(const ProductSize& size, const Gpu& gpu);

}  // namespace lockstep::cuda::tf32x3
