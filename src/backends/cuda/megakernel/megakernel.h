// A small program as one kernel.
#pragma once

#include <memory>
#include <span>

#include "execute/whole_step_fusion.h"

namespace lockstep::cuda {

// What GPUs have registered as their execute::FuseWholeStep. The kernel is compiled, for the GPU of `device`.
std::unique_ptr<execute::WholeStepKernel> make_megakernel(std::span<const compile::KernelCall> calls,
                                                          std::span<const TensorSpec> parameters,
                                                          Device& device);

}  // namespace lockstep::cuda
