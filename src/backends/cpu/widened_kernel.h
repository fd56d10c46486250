// Kernels of 16-bit floats that compute in float32.
#pragma once

#include <memory>

#include "graph/kernel.h"

namespace lockstep::cpu {

// Serves a request whose operands are all of one 16-bit float by the kernel that `prepare` makes for float32:
// inputs are widened before it, results rounded once behind it, in the workspace. For ops of many operations
// per element, whose library has no kernels for the type on this processor.
std::unique_ptr<Kernel> prepare_in_float32(const KernelRequest& request,
                                           std::unique_ptr<Kernel> (*prepare)(const KernelRequest&));

}  // namespace lockstep::cpu
