// An activation behind a kernel that has none of its own.
#pragma once

#include <memory>

#include "graph/kernel.h"

namespace lockstep::cpu {

// Computes what `kernel` computes and applies the activation to it in place, with the code of the op that it
// is when it stands alone. oneDNN would do it on the way, but its ReLU turns NaN into 0, and a network that
// is full of NaN then trains "well" (docs/decisions/0029-activations-keep-nan.md).
std::unique_ptr<Kernel> with_activation(std::unique_ptr<Kernel> kernel, Epilogue epilogue,
                                        const KernelRequest& request);

}  // namespace lockstep::cpu
