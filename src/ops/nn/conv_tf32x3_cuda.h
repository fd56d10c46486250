// Float32 convolutions on tensor cores at float32's accuracy (backends/cuda/tf32x3.h), as products of
// matrices that are never written out (implicit GEMM): the window's taps are read where they lie in the
// images.
#pragma once

#include <memory>

#include "graph/kernel.h"

namespace lockstep::cuda {

// A convolution or one of its gradients. Null where it is not one for this kernel: other dtypes, groups, or
// more than 2^30 elements in an operand.
std::unique_ptr<Kernel> prepare_conv_tf32x3(const KernelRequest& request);

}  // namespace lockstep::cuda
