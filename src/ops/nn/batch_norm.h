// Batch normalisation with the batch's own statistics, for rules and kernels that name it.
#pragma once

#include "graph/op.h"

namespace lockstep {

// (x [..., n], gamma [n], beta [n]) -> (y, mean [n], variance [n]): statistics over all but the last dimension, those of
// the whole population; float32, for float64 inputs float64.
extern const OpDef kBatchNorm;

// (x, gamma, mean, variance, dy) -> (dx, dgamma, dbeta)
extern const OpDef kBatchNormGrad;

struct BatchNormAttrs {
  double epsilon = 1e-3;
  bool operator==(const BatchNormAttrs&) const = default;
  void visit(auto&& v) const { v("epsilon", epsilon); }
};

}  // namespace lockstep
