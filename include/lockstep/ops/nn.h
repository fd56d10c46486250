// Neural-network ops: softmax, cross entropy, layer normalisation.
//
// Rows are independent of each other: a slice of a batch gives the same bits as the whole. 16-bit floats are
// computed in float32.
#pragma once

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

Tensor softmax(const TensorArg& logits, int axis = -1);
Tensor log_softmax(const TensorArg& logits, int axis = -1);

// One loss an example: labels are class numbers, int32 or int64 [...]; logits are [..., classes]. A label outside
// of [0, classes) throws Error(invalid_argument) naming its position and value.
Tensor sparse_softmax_cross_entropy_with_logits(const TensorArg& labels, const TensorArg& logits);

// One loss an example: labels are probabilities of the logits' shape and dtype. Differentiable in both.
Tensor softmax_cross_entropy_with_logits(const TensorArg& labels, const TensorArg& logits);

// One loss an element: labels are probabilities of the logits' shape and dtype. Differentiable in both.
Tensor sigmoid_cross_entropy_with_logits(const TensorArg& labels, const TensorArg& logits);

struct LayerNormOptions {
  int axis = -1;  // the dimension that is normalised
  double epsilon = 1e-3;
};

// (x - mean) / sqrt(variance + epsilon) * gamma + beta; gamma and beta have one element for each of the normalised
// dimension. The sums over the batch in the gradients of gamma and beta are made in a fixed order.
Tensor layer_norm(const TensorArg& x, const TensorArg& gamma, const TensorArg& beta,
                  LayerNormOptions options = {});

// TensorFlow's module of these names.
namespace nn {
using lockstep::log_softmax;
using lockstep::sigmoid_cross_entropy_with_logits;
using lockstep::softmax;
using lockstep::softmax_cross_entropy_with_logits;
using lockstep::sparse_softmax_cross_entropy_with_logits;
}  // namespace nn

}  // namespace lockstep
