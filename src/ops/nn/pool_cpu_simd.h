// The loops of pooling. One call makes some rows of the result, counted over all images, and writes every
// element of them once: results do not depend on how rows are shared among threads.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

// The windows that a row (or column) of the image lies in: first, first + 1, ... In the first of them it is
// row `tap`, in each one after it `stride` rows less.
struct WindowsOver {
  int64_t first = 0, count = 0, tap = 0;
};

// Height or width.
struct PoolAxis {
  int64_t input = 1, size = 1, stride = 1, before = 0, output = 1;
  std::vector<WindowsOver> over;  // by row (column) of the image
  std::vector<int64_t> inside;    // taps inside the image, by row (column) of windows
};

struct PoolGeometry {
  PoolAxis rows, columns;
  int64_t channels = 1;

  bool windows_overlap() const { return rows.stride < rows.size || columns.stride < columns.size; }
};

struct PoolMemory {
  const void* from = nullptr;
  void* to = nullptr;
  // Where in its window each maximum stands, taps counted in row-major order whether or not they lie on
  // padding. Written by `max`, read by its gradients, null for averages.
  void* positions = nullptr;
};

using PoolLoop = void (*)(const PoolGeometry& geometry, const PoolMemory& memory, int64_t begin, int64_t end);

struct PoolLoops {
  PoolLoop max;         // from x to y
  PoolLoop max_gather;  // from x to y: x at the positions
  PoolLoop avg;         // from x to y
  // From dy to dx; rows are those of dx.
  PoolLoop max_grad, avg_grad;
  // The same for windows that do not overlap; rows are those of dy.
  PoolLoop max_grad_apart, avg_grad_apart;
};

// By the size of positions: uint8 or int32.
struct PoolFunctions {
  PoolLoops bytes, words;
};

struct PoolTable {
  PoolFunctions float32, float64, bfloat16, float16;
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::PoolTable, kPoolTable)
