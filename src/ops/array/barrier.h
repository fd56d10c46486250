// A value that must not be read before others are there.
#pragma once

#include <source_location>
#include <span>

#include "graph/op.h"

namespace lockstep {

extern const OpDef kBarrier;

// `x` itself, in its own memory, for readers that must wait for `gates`: no pass takes the two for the same
// value, and what is computed from the result is scheduled behind all gates. For work that is done a second
// time to save memory.
Tensor barrier(const Tensor& x, std::span<const Tensor> gates, std::source_location where);

}  // namespace lockstep
