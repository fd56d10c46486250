// Attention: layer({query, value}) or layer({query, value, key}); where no key is given it is the value.
//
// Masks that the inputs carry are heeded: keys and values that are masked are not seen.
// CallOptions::attention_mask, booleans (batch, queries, keys), and use_causal_mask narrow it further. The
// result carries the query's mask. In the multi-head layers a query that sees no key gives zeros.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/one_or_many.h"

namespace lockstep::keras::layers {

struct MultiHeadAttentionOptions {
  std::optional<int64_t> value_dim = {};  // nullopt: key_dim
  double dropout = 0;                     // of the attention weights
  bool use_bias = true;
  Axes output_shape = {};  // empty: the query's last dimension
  // Dimensions, the batch being 0, that attention runs over; empty: all but the last.
  Axes attention_axes = {};
  std::optional<int64_t> sliding_window = {};  // nullopt: every key; else those nearer than this
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  bool use_gate = false;  // the heads' results are multiplied by a sigmoid of the query
  std::optional<int64_t> seed = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Its weights are those of the layers "query", "key", "value", "attention_output" (and "gate") inside it.
Layer MultiHeadAttention(int64_t num_heads, int64_t key_dim, const MultiHeadAttentionOptions& options = {},
                         std::source_location where = std::source_location::current());

struct GroupQueryAttentionOptions {
  double dropout = 0;
  bool use_bias = true;
  std::optional<int64_t> sliding_window = {};
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  bool use_gate = false;
  std::optional<int64_t> seed = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Neighbouring heads of the query share a head of key and value.
Layer GroupQueryAttention(int64_t head_dim, int64_t num_query_heads, int64_t num_key_value_heads,
                          const GroupQueryAttentionOptions& options = {},
                          std::source_location where = std::source_location::current());

struct AttentionOptions {
  bool use_scale = false;          // a learned factor of the scores
  std::string score_mode = "dot";  // or concat: sum(tanh(query + key))
  double dropout = 0;
  std::optional<int64_t> seed = {};
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer Attention(const AttentionOptions& options = {},
                std::source_location where = std::source_location::current());

struct AdditiveAttentionOptions {
  bool use_scale = true;  // a learned factor of each feature
  double dropout = 0;
  std::optional<int64_t> seed = {};
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Scores are sum(scale * tanh(query + key)).
Layer AdditiveAttention(const AdditiveAttentionOptions& options = {},
                        std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
