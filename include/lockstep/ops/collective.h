// What a replica can ask of the others. Outside a replicated function there is one replica, so the
// same training step runs unchanged on one device and on many.
#pragma once

#include <span>

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

// The sum over all replicas, the same bits on each; added in a fixed order.
Tensor all_reduce_sum(const TensorArg& x);
// Undefined tensors stay undefined.
TensorList all_reduce_sum(std::span<const Tensor> tensors,
                          std::source_location where = std::source_location::current());

// Examples in the whole batch of which `batch` (first dimension: examples) is this replica's slice.
int64_t global_batch_size(const Tensor& batch, std::source_location where = std::source_location::current());
// Elements of the whole batch's tensor of which `slice` has this replica's rows; 1 for a scalar.
int64_t global_size(const Tensor& slice, std::source_location where = std::source_location::current());

}  // namespace lockstep
