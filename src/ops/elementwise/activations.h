// Rows of the activations that have settings.
#pragma once

#include "graph/op.h"

namespace lockstep {

// scale * x above 0, else scale * alpha * expm1(rate * x): elu, selu and celu.
struct EluAttrs {
  double alpha = 1, scale = 1, rate = 1;
  bool operator==(const EluAttrs&) const = default;
  void visit(auto&& v) const { v("alpha", alpha), v("scale", scale), v("rate", rate); }
};

// The one setting of leaky_relu (the slope) and squareplus (b).
struct ActivationAttrs {
  double setting = 0;
  bool operator==(const ActivationAttrs&) const = default;
  void visit(auto&& v) const { v("setting", setting); }
};

}  // namespace lockstep
