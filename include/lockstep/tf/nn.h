// tf::nn: what neural networks are made of, under TensorFlow's module of this name.
#pragma once

#include <cstdint>

#include "lockstep/graph/tensor_arg.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/sort.h"

namespace lockstep::nn {

using lockstep::avg_pool1d;
using lockstep::avg_pool2d;
using lockstep::avg_pool3d;
using lockstep::batch_normalization;
using lockstep::celu;
using lockstep::conv1d;
using lockstep::conv1d_transpose;
using lockstep::conv2d;
using lockstep::conv2d_transpose;
using lockstep::conv3d;
using lockstep::conv3d_transpose;
using lockstep::depthwise_conv2d;
using lockstep::dropout;
using lockstep::elu;
using lockstep::gelu;
using lockstep::in_top_k;
using lockstep::l2_normalize;
using lockstep::leaky_relu;
using lockstep::log_sigmoid;
using lockstep::log_softmax;
using lockstep::max_pool1d;
using lockstep::max_pool2d;
using lockstep::max_pool3d;
using lockstep::moments;
using lockstep::relu;
using lockstep::relu6;
using lockstep::selu;
using lockstep::sigmoid;
using lockstep::sigmoid_cross_entropy_with_logits;
using lockstep::silu;
using lockstep::softmax;
using lockstep::softmax_cross_entropy_with_logits;
using lockstep::softplus;
using lockstep::softsign;
using lockstep::sparse_softmax_cross_entropy_with_logits;
using lockstep::swish;
using lockstep::tanh;
using lockstep::top_k;

// As TensorFlow writes it: nn::conv2d(x, filters, 1, "SAME"); strides may have 1, 2 or 4 numbers, {1, 2, 2,
// 1}.
Tensor conv2d(const TensorArg& x, const TensorArg& filters, const Dims& strides, const Padding& padding);
inline Tensor conv2d(const TensorArg& x, const TensorArg& filters, int64_t stride, const Padding& padding) {
  return nn::conv2d(x, filters, Dims{stride}, padding);
}

struct AverageLossOptions {
  Tensor sample_weight = {};       // a factor for each loss
  int64_t global_batch_size = -1;  // -1: that of the step
};
// The sum of the losses, one for each example of this replica's slice, divided by the examples of the whole
// batch: the sum over the replicas is the mean. A loss written by hand for strategy.run() returns it.
Tensor compute_average_loss(const TensorArg& per_example_loss, const AverageLossOptions& options = {});
// This replica's share of a penalty that does not depend on the examples: the sum over the replicas is the
// penalty. For penalties computed by hand: what a model's losses() gives in a replica are shares already.
Tensor scale_regularization_loss(const TensorArg& penalty);

}  // namespace lockstep::nn
