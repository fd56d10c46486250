// Layer and RMS normalisation of the last dimension, for rules and kernels that name it.
#pragma once

#include "graph/op.h"

namespace lockstep {

// (x [..., n], gamma [n], beta [n]) -> (y, mean [...], rstd [...]); rstd is 1 / sqrt(variance + epsilon). The
// statistics are float32, for float64 inputs float64.
extern const OpDef kLayerNorm;

// (x, gamma, mean, rstd, dy) -> (dx, dgamma, dbeta)
extern const OpDef kLayerNormGrad;

// (x [..., n], gamma [n]) -> (y, rstd [...]) with rstd = 1 / sqrt(mean of squares + epsilon), and
// (x, gamma, rstd, dy) -> (dx, dgamma).
extern const OpDef kRmsNorm, kRmsNormGrad;

// Attributes of all four.
struct LayerNormAttrs {
  double epsilon = 1e-3;
  bool addend = false;  // of gradients: the last input is added to that of x; made by the compiler
  bool operator==(const LayerNormAttrs&) const = default;
  void visit(auto&& v) const { v("epsilon", epsilon), v("addend", addend); }
};

}  // namespace lockstep
