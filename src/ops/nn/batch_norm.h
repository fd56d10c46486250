// Batch normalisation with the batch's own statistics, for rules and kernels that name it.
#pragma once

#include "graph/op.h"

namespace lockstep {

// (x [..., n], gamma [n], beta [n]) -> (y, mean [n], variance [n]): statistics over all but the last dimension, those of
// the whole population; float32, for float64 inputs float64.
extern const OpDef kBatchNorm;

// (x, gamma, mean, variance, dy) -> (dx, dgamma, dbeta)
extern const OpDef kBatchNormGrad;

// (x [..., n]) -> (mean [n], variance [n]), the statistics alone; 0 where there are no rows.
extern const OpDef kBatchMoments;

// (x [..., n], its mean [n], dy like x) -> (sum of dy [n], sum of dy (x - mean) [n]), of the statistics' type: what the
// gradients of a normalisation are made of. The compiler may add two inputs, factor [n] and shift [n]: dy then counts as 0
// where x factor + shift is not above 0, as it does behind a ReLU.
extern const OpDef kBatchNormSums;

struct BatchNormAttrs {
  double epsilon = 1e-3;
  bool operator==(const BatchNormAttrs&) const = default;
  void visit(auto&& v) const { v("epsilon", epsilon); }
};

}  // namespace lockstep
