// The loops of pooling. Each call makes rows [begin, end) of its result, counted over all images, and
// writes every element of them once: results do not depend on how rows are shared among threads.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor/dtype.h"
#include "ops/nn/conv_window.h"

namespace lockstep::cpu {

// The windows that a row (or column) of the image lies in: `first`, `first` + 1, ... In the first of
// them it is row `tap`, in each one after it `stride` rows less.
struct WindowsOver {
  int32_t first = 0, count = 0, tap = 0;
};

struct PoolGeometry {
  Window2d window;
  int64_t channels = 1;
  bool relu = false;  // max pooling as if x were max(x, 0); where nothing is above 0 the position is none
  std::vector<WindowsOver> over[2];  // by row and by column of the image
  std::vector<int32_t> inside[2];    // taps inside the image, by row and by column of windows
};

PoolGeometry pool_geometry(const Window2d& window, int64_t channels, bool relu);

// Positions count the window's taps in row-major order, whether or not they lie on padding.
struct PoolLoops {
  void (*max)(const PoolGeometry&, const void* x, void* y, void* positions, int64_t begin, int64_t end);
  void (*max_grad)(const PoolGeometry&, const void* dy, const void* positions, void* dx, int64_t begin, int64_t end);
  // y is x at the positions, 0 where the position is none.
  void (*max_gather)(const PoolGeometry&, const void* x, const void* positions, void* y, int64_t begin, int64_t end);
  void (*avg)(const PoolGeometry&, const void* x, void* y, int64_t begin, int64_t end);
  void (*avg_grad)(const PoolGeometry&, const void* dy, void* dx, int64_t begin, int64_t end);
};

// For elements of a floating-point dtype and positions of uint8 or int32.
namespace simd_v2 {
PoolLoops pool_loops(DType dtype, DType positions);
}
namespace simd_v3 {
PoolLoops pool_loops(DType dtype, DType positions);
}
namespace simd_v4 {
PoolLoops pool_loops(DType dtype, DType positions);
}

}  // namespace lockstep::cpu
