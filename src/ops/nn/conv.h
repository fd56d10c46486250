// Convolution and its two gradients, for rules and kernels that name them.
#pragma once

#include "graph/op.h"
#include "ops/nn/conv_window.h"

namespace lockstep {

// With x (images), w (filter) and y (result): conv2d(x, w) -> y, conv2d_backprop_input(w, dy) -> dx,
// conv2d_backprop_filter(x, dy) -> dw. Each is linear in both inputs, and all three have the same
// attributes, so the gradients of each are the other two.
extern const OpDef kConv2d, kConv2dBackpropInput, kConv2dBackpropFilter;
// The same over (batch, depth, height, width, channels).
extern const OpDef kConv3d, kConv3dBackpropInput, kConv3dBackpropFilter;

enum class ConvDirection : uint8_t { forward, backprop_input, backprop_filter };
// The direction of one of these ops.
ConvDirection conv_direction(const OpDef& op);

struct ConvAttrs {
  Window window;
  int64_t groups = 1;
  bool bias = false;  // the convolution's third input: one value per output channel
  Epilogue epilogue = Epilogue::none;
  bool operator==(const ConvAttrs&) const = default;
  void visit(auto&& v) const {
    window.visit(v);
    v("groups", groups), v("bias", bias), v("epilogue", epilogue);
  }
};

}  // namespace lockstep
