// Convolution as plain loops, for what oneDNN does not do: float64 and float16, empty tensors, and
// shapes for which it has no fast kernel. Results do not depend on the number of threads.
#pragma once

#include <memory>

#include "graph/kernel.h"

namespace lockstep::cpu {

// For the convolutions and their backprops, on contiguous operands of any floating-point dtype.
std::unique_ptr<Kernel> prepare_conv_loops(const KernelRequest& request);

}  // namespace lockstep::cpu
