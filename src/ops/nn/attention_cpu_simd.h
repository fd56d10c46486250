// Vector code of attention: one tile of queries forward, one range of keys backward.
//
// Arithmetic is float32, for float64 float64. Operands are packed into that type first, in tiles of
// kAttentionTile rows: what is missing at the end of the last tile, up to the next multiple of 16 rows and
// columns, are zeros.
#pragma once

#include <cstdint>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

inline constexpr int64_t kAttentionTile = 64;  // queries, and keys: a tile of scores is 16 KiB of float32
inline constexpr int64_t kAttentionLanes = 16;

// A mask or bias [batch, heads, queries, keys], at one batch and head: strides are 0 where it is broadcast.
struct ScoreTerm {
  const void* data = nullptr;  // null: there is none
  int64_t query = 0, key = 0;
};

// What is known of the scores of one batch and head.
struct ScoreRules {
  int64_t queries = 0, keys = 0;
  bool causal = false;
  ScoreTerm mask, bias;  // booleans; the operands' dtype
  // Which probabilities dropout keeps: called with the number of a query and a range of keys, it returns
  // `count` bytes of 0 or 1, which the next call may overwrite. Null: there is no dropout.
  const uint8_t* (*keep)(const void* context, int64_t query, int64_t first_key, int64_t count) = nullptr;
  const void* keep_context = nullptr;
  double keep_scale = 1;
};

struct AttentionForward {
  ScoreRules rules;
  int64_t first_query = 0;
  const void* query = nullptr;  // [tile, dim], scaled
  const void* key = nullptr;    // tiles [dim, tile]
  const void* value = nullptr;  // [keys, value_dim]
  int64_t dim = 0, value_dim = 0;
  void* scratch = nullptr;      // kForwardScratch elements
  void* sum = nullptr;          // [tile, value_dim]: the result
  void* log_sum_exp = nullptr;  // [tile]: of each row's scores; infinity where a row sees nothing
};

struct AttentionBackward {
  ScoreRules rules;
  int64_t first_query = 0, first_key = 0;  // of these tiles
  const void* query = nullptr;             // [tile, dim], scaled
  const void* gradient = nullptr;          // [tile, value_dim], of the result
  const void* log_sum_exp = nullptr;       // [tile]
  const void* result_dot = nullptr;        // [tile]: each row's gradient times its result
  const void* key = nullptr;               // [tile, dim]
  const void* key_transposed = nullptr;    // [dim, tile]
  const void* value_transposed = nullptr;  // [value_dim, tile]
  int64_t dim = 0, value_dim = 0;
  void* scratch = nullptr;  // kBackwardScratch elements
  // Added to: [tile, dim] (to be multiplied by the scale), [tile, dim], [tile, value_dim].
  void *dquery = nullptr, *dkey = nullptr, *dvalue = nullptr;
};

struct AttentionFunctions {
  // to[r, c] = from[r * stride + c] * scale for r < rows, c < columns; 0 elsewhere up to whole vectors of
  // rows and `padded` columns.
  void (*pack_tile)(const void* from, int64_t stride, int64_t rows, int64_t columns, double scale, void* to,
                    int64_t padded);
  // to[c, r]: the same tile transposed.
  void (*pack_transposed)(const void* from, int64_t stride, int64_t rows, int64_t columns, void* to,
                          int64_t padded);
  // to[r * stride + c] = from[r, c] * scale.
  void (*unpack_tile)(const void* from, int64_t padded, int64_t rows, int64_t columns, double scale, void* to,
                      int64_t stride);
  // to[r] = sum of a[r, c] b[r, c], of two packed tiles.
  void (*row_dots)(const void* a, const void* b, int64_t rows, int64_t columns, void* to);
  void (*forward)(const AttentionForward&);
  void (*backward)(const AttentionBackward&);
};

inline constexpr int64_t kForwardScratch = kAttentionLanes * kAttentionTile;  // the scores of some queries
inline constexpr int64_t kBackwardScratch = 2 * kAttentionTile * kAttentionTile;

struct AttentionTable {
  AttentionFunctions float32, float64, bfloat16, float16;
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::AttentionTable, kAttentionTable)
