// Reductions over any axes. Sums are made in a fixed order that does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

struct ReduceOptions {
  std::vector<int64_t> axis = {};  // empty: all
  bool keepdims = false;
};

Tensor reduce_sum(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_mean(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_max(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_min(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_prod(const TensorArg& x, const ReduceOptions& options = {});
// Position of the largest element along `axis`, the first of equals; int64.
Tensor argmax(const TensorArg& x, int axis = -1);

}  // namespace lockstep
