// Vector code of batch normalisation: rows of n columns, by 16 columns at a time.
#pragma once

#include <cstdint>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

// All work on `rows` rows of n elements; statistics are float32, for float64 float64. Outputs of x's shape
// may be written over an input of that shape.
struct BatchNormFunctions {
  // sums[0 .. n): the mean of each column; sums[n .. 2n): its sum of squared distances from that.
  void (*moments)(const void* x, int64_t rows, int64_t n, void* sums);
  // y = (x - mean) * scale + beta, by columns; scale and shift are of the statistics' type.
  void (*normalize)(const void* x, const void* mean, const void* scale, const void* shift, void* y,
                    int64_t rows, int64_t n);
  // sums[0 .. n): of dy h; sums[n .. 2n): of dy, with h = (x - mean) rstd.
  void (*gradient_sums)(const void* x, const void* dy, const void* mean, const void* rstd, int64_t rows,
                        int64_t n, void* sums);
  // dx = scale (dy - offset - h slope)
  void (*gradient)(const void* x, const void* dy, const void* mean, const void* rstd, const void* scale,
                   const void* offset, const void* slope, void* dx, int64_t rows, int64_t n);
};

struct BatchNormTable {
  BatchNormFunctions float32, float64, bfloat16, float16;
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::BatchNormTable, kBatchNormTable)
