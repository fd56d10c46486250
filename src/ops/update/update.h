// Optimizer updates as elementwise ops: one pass over weights, slots and gradient, in place when
// compiled. Keras' formulas.
//
// Inputs are (w, slots..., gradient, scalars...), results (w, slots...). All tensors have the weights'
// spec; scalars (the learning rate, and what else is the same for all elements) are float32, or float64
// beside float64 weights. 16-bit weights and slots are computed on in float32 and rounded once, when they
// are stored.
#pragma once

#include <span>

#include "graph/op.h"

namespace lockstep {

extern const OpDef kSgdUpdate;          // (w, g, rate); no attributes
extern const OpDef kSgdMomentumUpdate;  // (w, m, g, rate); MomentumAttrs
extern const OpDef kAdamUpdate;         // (w, m, v, [v_hat,] g, rate); AdamUpdateAttrs
extern const OpDef kAdamaxUpdate;       // (w, m, norm, g, rate); BetaAttrs
extern const OpDef kNadamUpdate;        // (w, m, v, g, rate of m, rate of g, factor of v); BetaAttrs
extern const OpDef kRmspropUpdate;      // (w, v, [momentum,] [average,] g, rate); RmspropAttrs
extern const OpDef kAdagradUpdate;      // (w, accumulator, g, rate); EpsilonAttrs
extern const OpDef kAdadeltaUpdate;     // (w, accumulated g, accumulated step, g, rate); AdadeltaAttrs
extern const OpDef kLionUpdate;         // (w, m, g, rate); BetaAttrs without epsilon
extern const OpDef kFtrlUpdate;         // (w, accumulator, linear, g, rate); FtrlAttrs
// (m, v, g, factor of m, factor of v) -> (m, v, direction): Lamb's step before it knows its length.
extern const OpDef kLambDirection;  // BetaAttrs

// The dtype of an update's scalars.
inline DType update_scalar_dtype(DType weights) {
  return weights == DType::float64 ? DType::float64 : DType::float32;
}

// w - rate * step, in the update's precision: the last part of several rules.
Tensor descend(const Tensor& w, const Tensor& step, const Tensor& rate, std::source_location where);

struct MomentumAttrs {
  double momentum = 0;
  bool nesterov = false;
  bool operator==(const MomentumAttrs&) const = default;
  void visit(auto&& v) const { v("momentum", momentum), v("nesterov", nesterov); }
};

struct AdamUpdateAttrs {
  double beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  bool amsgrad = false;
  bool operator==(const AdamUpdateAttrs&) const = default;
  void visit(auto&& v) const {
    v("beta_1", beta_1), v("beta_2", beta_2), v("epsilon", epsilon), v("amsgrad", amsgrad);
  }
};

struct BetaAttrs {
  double beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  bool operator==(const BetaAttrs&) const = default;
  void visit(auto&& v) const { v("beta_1", beta_1), v("beta_2", beta_2), v("epsilon", epsilon); }
};

struct RmspropAttrs {
  double rho = 0.9, momentum = 0, epsilon = 1e-7;
  bool centered = false;
  bool operator==(const RmspropAttrs&) const = default;
  void visit(auto&& v) const {
    v("rho", rho), v("momentum", momentum), v("epsilon", epsilon), v("centered", centered);
  }
};

struct EpsilonAttrs {
  double epsilon = 1e-7;
  bool operator==(const EpsilonAttrs&) const = default;
  void visit(auto&& v) const { v("epsilon", epsilon); }
};

struct AdadeltaAttrs {
  double rho = 0.95, epsilon = 1e-7;
  bool operator==(const AdadeltaAttrs&) const = default;
  void visit(auto&& v) const { v("rho", rho), v("epsilon", epsilon); }
};

struct FtrlAttrs {
  double learning_rate_power = -0.5, l1 = 0, l2 = 0, l2_shrinkage = 0, beta = 0;
  bool operator==(const FtrlAttrs&) const = default;
  void visit(auto&& v) const {
    v("learning_rate_power", learning_rate_power), v("l1", l1), v("l2", l2), v("l2_shrinkage", l2_shrinkage),
        v("beta", beta);
  }
};

}  // namespace lockstep
