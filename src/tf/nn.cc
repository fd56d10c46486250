#include "lockstep/tf/nn.h"

#include "graph/emit.h"
#include "lockstep/base/error.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::nn {

Tensor conv2d(const TensorArg& x, const TensorArg& filters, const Dims& strides, const Padding& padding) {
  if (strides.rank() != 4) return lockstep::conv2d(x, filters, {.strides = strides, .padding = padding});
  require(strides[0] == 1 && strides[3] == 1, ErrorCode::invalid_argument, x.where(),
          "conv2d: strides along the batch and the channels must be 1, received ", strides);
  return lockstep::conv2d(x, filters, {.strides = {strides[1], strides[2]}, .padding = padding});
}

Tensor compute_average_loss(const TensorArg& per_example_loss, const AverageLossOptions& options) {
  const std::source_location where = per_example_loss.where();
  Tensor losses = per_example_loss.tensor("compute_average_loss");
  if (options.sample_weight.defined()) losses = multiply({losses, where}, {options.sample_weight, where});
  if (options.global_batch_size == -1) return distribute::global_mean(losses, where);
  require(options.global_batch_size > 0, ErrorCode::invalid_argument, where,
          "compute_average_loss: global_batch_size must be positive, received ", options.global_batch_size);
  return divide({reduce_sum({losses, where}), where}, {options.global_batch_size, where});
}

Tensor scale_regularization_loss(const TensorArg& penalty) {
  const std::source_location where = penalty.where();
  const Tensor sum = reduce_sum({penalty.tensor("scale_regularization_loss"), where});
  const ReplicaTrace* replica = ReplicaTrace::current();
  return replica ? multiply({sum, where}, {replica->share(), where}) : sum;
}

}  // namespace lockstep::nn
