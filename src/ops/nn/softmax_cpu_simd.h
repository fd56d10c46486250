// Vector code of softmax and cross entropy, row by row.
#pragma once

#include <cstdint>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

// Class numbers, int32 or int64.
struct Labels {
  const void* data;
  bool wide;
  int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// All work on rows [begin, end) of n elements. A row's results depend on that row alone. Outputs of the
// logits' shape may be written over the logits.
struct SoftmaxFunctions {
  void (*softmax)(const void* x, void* y, int64_t n, int64_t begin, int64_t end);
  void (*log_softmax)(const void* x, void* y, int64_t n, int64_t begin, int64_t end);
  // stats: for each row its maximum and its sum of exp(x - maximum), float64 for such logits, else float32.
  void (*cross_entropy)(const void* x, Labels labels, void* loss, void* stats, int64_t n, int64_t begin,
                        int64_t end);
  void (*cross_entropy_grad)(const void* x, Labels labels, const void* stats, const void* dloss, void* dx,
                             int64_t n, int64_t begin, int64_t end);
};

struct SoftmaxTable {
  SoftmaxFunctions float32, float64, bfloat16, float16;
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::SoftmaxTable, kSoftmaxTable)
