// Pooling and its gradients, for rules and kernels that name them.
#pragma once

#include "graph/op.h"
#include "ops/nn/conv_window.h"

namespace lockstep {

// max_pool2d(x) -> y, positions: where in its window each maximum stands, taps counted in row-major
// order; uint8, or int32 where a window has more taps. The gradients read the positions, so nothing is
// searched again:
//   max_pool2d_grad(dy, positions) -> dx puts each gradient at its position, 0 elsewhere;
//   max_pool2d_gather(x, positions) -> y reads x at the positions.
// The two are linear and each other's gradient.
extern const OpDef kMaxPool2d, kMaxPool2dGrad, kMaxPool2dGather;

// avg_pool2d(x) -> y and avg_pool2d_grad(dy) -> dx: linear, and each other's gradient.
extern const OpDef kAvgPool2d, kAvgPool2dGrad;

// Attributes of all five. The window has no dilations.
struct PoolAttrs {
  Window window;
  bool operator==(const PoolAttrs&) const = default;
  void visit(auto&& v) const { window.visit(v); }
};

}  // namespace lockstep
