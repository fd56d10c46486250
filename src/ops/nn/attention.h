// Attention, for rules and kernels that name it.
#pragma once

#include "graph/op.h"

namespace lockstep {

// (query [batch, queries, heads, dim], key [batch, keys, key_heads, dim], value [batch, keys, key_heads,
// value_dim], mask?, bias?, state?, example?) -> (result [batch, queries, heads, value_dim], log_sum_exp
// [batch, heads, queries]).
//
// Query head h reads key head h / (heads / key_heads). Mask (bool) and bias broadcast to [batch, heads,
// queries, keys]. log_sum_exp is of the scores of a query, float32 (float64 for float64); infinity where it
// sees no key. Dropout draws like random_threshold of a tensor [batch * heads * queries, keys]
// (ops/random/random.h).
extern const OpDef kAttention;

// (query, key, value, result, log_sum_exp, gradient of the result, mask?, bias?, state?, example?) ->
// (dquery, dkey, dvalue). Scores are computed again, tile by tile.
extern const OpDef kAttentionGrad;

struct AttentionAttrs {
  double scale = 1;
  bool causal = false;
  bool mask = false, bias = false;  // which of the optional inputs there are
  double dropout = 0;               // above 0: state and example too
  int64_t instance = 0, rows_per_example = 0;
  bool operator==(const AttentionAttrs&) const = default;
  void visit(auto&& v) const {
    v("scale", scale), v("causal", causal), v("mask", mask), v("bias", bias), v("dropout", dropout);
    v("instance", instance), v("rows_per_example", rows_per_example);
  }
  // The first optional input's place; -1 where an input is not there.
  int mask_input(int first) const { return mask ? first : -1; }
  int bias_input(int first) const { return bias ? first + (mask ? 1 : 0) : -1; }
  int state_input(int first) const { return dropout > 0 ? first + (mask ? 1 : 0) + (bias ? 1 : 0) : -1; }
  int optional_inputs() const { return (mask ? 1 : 0) + (bias ? 1 : 0) + (dropout > 0 ? 2 : 0); }
};

// Where the optional inputs begin.
inline constexpr int kAttentionOptional = 3, kAttentionGradOptional = 6;

}  // namespace lockstep
