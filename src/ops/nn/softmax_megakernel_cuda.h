// What softmax and the losses made of it share in a megakernel.
#pragma once

#include <string>

#include "backends/cuda/megakernel/op_rule.h"

namespace lockstep::cuda::megakernel {

// Code that gives every lane `top`, the largest element of its line, and `sum`, that of exp(element - top)
// over the line. Returns an expression for exp(element c - top).
std::string write_softmax_statistics(OpCode& code);

}  // namespace lockstep::cuda::megakernel
