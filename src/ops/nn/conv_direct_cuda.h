// Float32 convolutions of small images with few channels, at the entrance of small networks: a block has an
// image in shared memory and adds products up in registers. As products of matrices (conv_tf32x3_cuda.h) most
// of a tile would be empty there.
#pragma once

#include <memory>

#include "graph/kernel.h"

namespace lockstep::cuda {

// A convolution or one of its gradients. Null where it is not one for this kernel.
std::unique_ptr<Kernel> prepare_conv_direct(const KernelRequest& request);

}  // namespace lockstep::cuda
