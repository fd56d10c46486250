// Convolution as products of gathered patches with the filter (im2col), a tile at a time: for float64, and for
// what oneDNN has no fast kernel for.
#pragma once

#include <memory>

#include "graph/kernel.h"

namespace lockstep::cpu {

// For the convolutions and their backprops, on contiguous operands of float32 or float64. Null where the
// groups are too narrow for products to pay, or an operand is empty. Every element is summed over taps and
// channels (of a filter's gradient: over images and places) in order, so results do not depend on the number
// of threads.
std::unique_ptr<Kernel> prepare_conv_products(const KernelRequest& request);

}  // namespace lockstep::cpu
