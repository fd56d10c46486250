// Convolution as plain loops, for what neither oneDNN nor products of patches serve: narrow groups in float64,
// and empty tensors. Results do not depend on the number of threads.
#pragma once

#include <memory>

#include "graph/kernel.h"

namespace lockstep::cpu {

// For the convolutions and their backprops, on contiguous operands of float32 or float64.
std::unique_ptr<Kernel> prepare_conv_loops(const KernelRequest& request);

}  // namespace lockstep::cpu
