// The loops of resampling along the middle one of three dimensions: [outer, rows, inner]. Every row of the
// result is a weighted sum of a few rows of the operand, always in the same order.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

struct ResampleTerm {
  int64_t row;  // of the operand
  double weight;
  float weight32;

  template <class C>
  C weight_as() const {
    if constexpr (sizeof(C) == sizeof(float))
      return weight32;
    else
      return weight;
  }
};

struct ResampleGeometry {
  int64_t outer = 1, from_rows = 1, inner = 1;
  std::vector<ResampleTerm> terms = {};  // of all rows of the result, one row after the other
  std::vector<int64_t> first_term = {};  // by row of the result, and the number of terms at the end

  int64_t rows() const { return static_cast<int64_t>(first_term.size()) - 1; }
};

// One vector: rows shorter than this are resampled with as many neighbours along `outer` at once.
inline constexpr int64_t kResampleLanes = 16;

struct ResampleFunctions {
  // Rows [begin, end) of the result, counted over outer * rows(). `inner` is kResampleLanes or more.
  void (*rows)(const ResampleGeometry&, const void* from, void* to, int64_t begin, int64_t end);
  // All rows of [begin, end) along outer. `scratch`: from_rows * inner * kResampleLanes numbers of the type that
  // is computed in, 64-byte aligned.
  void (*short_rows)(const ResampleGeometry&, const void* from, void* to, int64_t begin, int64_t end,
                     void* scratch);
};

struct ResampleTable {
  ResampleFunctions float32, float64, bfloat16, float16;
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::ResampleTable, kResampleTable)
