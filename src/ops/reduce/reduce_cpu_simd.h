// Vector code of the reductions.
//
// One stage turns [outer, n, inner] into [outer, chunks, inner], chunks of kReduceChunk elements along n;
// stages follow until one chunk is left. In a chunk, lane l of 16 takes the elements l, l + 16, ... one after
// the other, then the lanes are folded. The order is thus fixed by n alone: not by threads, layout or the
// other dimensions.
#pragma once

#include <cstdint>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

inline constexpr int64_t kReduceChunk = 1024;

// Widest block of columns that one item of `columns` covers, in bytes of the type that is computed in.
inline constexpr int64_t kReduceColumnBytes = 1024;

struct ReduceFunctions {
  // Items are (outer, chunk) pairs; inner is 1.
  void (*rows)(const void* in, void* out, int64_t n, int64_t begin, int64_t end);
  // Items are (outer, chunk, block of columns) triples.
  void (*columns)(const void* in, void* out, int64_t n, int64_t inner, int64_t begin, int64_t end);
};

struct ArgmaxFunctions {
  // Rows [begin, end).
  void (*rows)(const void* in, int64_t* out, int64_t n, int64_t begin, int64_t end);
  // Items are (outer, block of 16 columns) pairs.
  void (*columns)(const void* in, int64_t* out, int64_t n, int64_t inner, int64_t begin, int64_t end);
};

enum ReduceKind { kSum, kProd, kMax, kMin };

// Indexed by DType, numbers only. Results are in the type that is computed in: float32 for bfloat16 and
// float16, 32-bit integers for uint8, else the dtype itself.
struct ReduceTable {
  ReduceFunctions reduce[4][7];
  ArgmaxFunctions argmax[7];
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::ReduceTable, kReduceTable)
