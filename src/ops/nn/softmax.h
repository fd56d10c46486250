// Softmax over the last dimension, for rules and kernels that name it.
#pragma once

#include "graph/op.h"

namespace lockstep {

extern const OpDef kSoftmax, kLogSoftmax;

}  // namespace lockstep
