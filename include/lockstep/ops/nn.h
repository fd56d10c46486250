// Neural-network ops: softmax, cross entropy, attention, normalisation.
//
// Rows are independent of each other: a slice of a batch gives the same bits as the whole. 16-bit floats are
// computed in float32.
#pragma once

#include <optional>

#include "lockstep/graph/tensor_arg.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

Tensor softmax(const TensorArg& logits, int axis = -1);
Tensor log_softmax(const TensorArg& logits, int axis = -1);

// One loss per example: labels are class numbers, int32 or int64 [...]; logits are [..., classes]. A label
// outside of [0, classes) throws Error(invalid_argument) naming its position and value.
Tensor sparse_softmax_cross_entropy_with_logits(const TensorArg& labels, const TensorArg& logits);

// One loss per example: labels are probabilities of the logits' shape and dtype. Differentiable in both.
Tensor softmax_cross_entropy_with_logits(const TensorArg& labels, const TensorArg& logits);

// One loss per element: labels are probabilities of the logits' shape and dtype. Differentiable in both.
Tensor sigmoid_cross_entropy_with_logits(const TensorArg& labels, const TensorArg& logits);

struct LayerNormOptions {
  Dims axis = {-1};  // the dimensions that are normalised together
  double epsilon = 1e-3;
};

// (x - mean) / sqrt(variance + epsilon) * gamma + beta; gamma and beta have one element for each of the
// normalised dimension, or the shape of several of them. The sums over the batch in the gradients of gamma
// and beta are made in a fixed order.
Tensor layer_norm(const TensorArg& x, const TensorArg& gamma, const TensorArg& beta,
                  const LayerNormOptions& options = {});

struct RmsNormOptions {
  Dims axis = {-1};
  double epsilon = 1e-6;
};
// x / sqrt(mean of squares + epsilon) * gamma.
Tensor rms_norm(const TensorArg& x, const TensorArg& gamma, const RmsNormOptions& options = {});

struct Moments {
  Tensor mean, variance;
};
// The mean and the variance (of the whole population) over some axes. 16-bit floats are summed up in float32.
Moments moments(const TensorArg& x, const ReduceOptions& options = {});
template <std::integral T>
Moments moments(const TensorArg& x, std::initializer_list<T> axes, bool keepdims = false) {
  return moments(x, reduce_options(axes, keepdims));
}

struct BatchNormOptions {
  Tensor gamma = {}, beta = {};  // undefined: 1 and 0
  int axis = -1;                 // the dimension that keeps its own statistics
  double epsilon = 1e-3;
};
// (x - mean) / sqrt(variance + epsilon) * gamma + beta; all but x have one element for each of dimension
// `axis`. With moments() of x over the other dimensions it is what a batch normalisation does in training.
Tensor batch_normalization(const TensorArg& x, const TensorArg& mean, const TensorArg& variance,
                           const BatchNormOptions& options = {});

struct BatchNormResult {
  Tensor y, mean, variance;  // the statistics are float32, for float64 inputs float64
};
// The same with the moments of x over all but its last dimension, in one op: less than half the time of the
// above, forward and backward. For statistics over the replicas of a step, join their sums and use
// batch_normalization().
BatchNormResult fused_batch_norm(const TensorArg& x, const TensorArg& gamma, const TensorArg& beta,
                                 double epsilon = 1e-3);

// Its parts, for who makes something else of them. The moments of x over all but its last dimension:
Moments batch_moments(const TensorArg& x);
struct BatchNormSums {
  Tensor sum;      // of dy
  Tensor product;  // of dy (x - mean)
};
// and the sums over the same dimensions that its gradients need; `mean` is that of x. All results are of the
// statistics' dtype.
BatchNormSums batch_norm_sums(const TensorArg& x, const TensorArg& mean, const TensorArg& dy);

struct GroupNormOptions {
  int64_t groups = 32;  // of neighbouring channels; -1: each channel is one, which is instance normalisation
  double epsilon = 1e-3;
};
// Every example's groups of channels, each over all positions, become mean 0 and variance 1; then gamma and
// beta, one element per channel. x is (batch, ..., channels).
Tensor group_norm(const TensorArg& x, const TensorArg& gamma, const TensorArg& beta,
                  const GroupNormOptions& options = {});

// x / sqrt(max(sum of squares, epsilon)), over all axes where none is given.
Tensor l2_normalize(const TensorArg& x, const Dims& axis = {}, double epsilon = 1e-12);

struct AttentionOptions {
  Tensor mask = {};  // booleans that broadcast to (batch, heads, queries, keys): which keys a query sees
  Tensor bias = {};  // broadcasts to the same shape, and is added to the scores
  std::optional<double> scale = {};  // nullopt: 1 / sqrt(dim)
  bool is_causal = false;            // query i sees keys 0 to i
  // The probability with which each probability is dropped; the others grow by 1 / (1 - it).
  double dropout = 0;
  const random::Generator* generator = nullptr;  // of dropout; null: the default one
};

// softmax(scale query key^T + bias) value for query (batch, queries, heads, dim), key (batch, keys, heads,
// dim) and value (batch, keys, heads, value_dim); result (batch, queries, heads, value_dim). Key and value
// may have fewer heads, each then read by equally many neighbouring heads of the query. A query that sees no
// key gives zeros.
//
// The scores are never in memory as a whole, forward or backward: memory grows with the lengths, not with
// their product. Gradients of the bias, and second derivatives, do hold them.
Tensor scaled_dot_product_attention(const TensorArg& query, const TensorArg& key, const TensorArg& value,
                                    const AttentionOptions& options = {});

}  // namespace lockstep
