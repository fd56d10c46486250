// Batch normalisation with the batch's own statistics, for rules and kernels that name it.
#pragma once

#include "graph/op.h"

namespace lockstep {

// (x [..., n], gamma [n], beta [n]) -> (y, mean [n], variance [n]): statistics over all but the last
// dimension, those of the whole population; float32, for float64 inputs float64.
extern const OpDef kBatchNorm;

// (x, gamma, mean, variance, dy) -> (dx, dgamma, dbeta)
extern const OpDef kBatchNormGrad;

// (x [..., n]) -> (mean [n], variance [n]), the statistics alone; 0 where there are no rows.
extern const OpDef kBatchMoments;

// (x [..., n], its mean [n], dy like x) -> (sum of dy [n], sum of dy (x - mean) [n]), of the statistics'
// type: what the gradients of a normalisation are made of. BatchNormSumsAttrs
extern const OpDef kBatchNormSums;

// What the compiler lets the sums do to dy first, where a ReLU stands behind the normalisation.
struct BatchNormSumsAttrs {
  enum class Dy : uint8_t {
    as_is,
    masked,  // two more inputs, factor [n] and shift [n]: dy counts as 0 where x factor + shift is not above 0
    joined,  // two more inputs and one more output like dy: a second gradient that is added to it, and y; the sum of the two
             // where y is above 0, else 0, is what counts as dy and comes out
  };
  Dy dy = Dy::as_is;
  bool operator==(const BatchNormSumsAttrs&) const = default;
  void visit(auto&& v) const { v("dy", dy); }
};

struct BatchNormAttrs {
  double epsilon = 1e-3;
  bool operator==(const BatchNormAttrs&) const = default;
  void visit(auto&& v) const { v("epsilon", epsilon); }
};

}  // namespace lockstep
