// Matrix products.
#pragma once

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// The product of the last two dimensions; the dimensions before them broadcast.
Tensor matmul(const TensorArg& a, const TensorArg& b, MatmulOptions options = {});

}  // namespace lockstep
