// Vector code of layer and RMS normalisation, row by row.
#pragma once

#include <cstdint>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

// All work on rows [begin, end) of n elements. Outputs of x's shape may be written over an input of that
// shape. RMS normalisation has no mean and no beta: their pointers are not read, nor is the sum of dy made.
struct LayerNormFunctions {
  void (*forward)(const void* x, const void* gamma, const void* beta, float epsilon, void* y, float* mean,
                  float* rstd, int64_t n, int64_t begin, int64_t end);
  // Also sums dy * h and dy over the rows, one after the other, into sums[0 .. n) and sums[n .. 2n).
  void (*backward)(const void* x, const void* gamma, const float* mean, const float* rstd, const void* dy,
                   void* dx, float* sums, int64_t n, int64_t begin, int64_t end);
};

struct NormFunctions {
  LayerNormFunctions layer, rms;
};
struct LayerNormTable {
  NormFunctions float32, bfloat16, float16;
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::LayerNormTable, kLayerNormTable)
