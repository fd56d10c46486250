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

// One of the updates with its settings.
class Update {
 public:
  Update(const OpDef& op, Attrs attrs) : op_(&op), attrs_(std::move(attrs)) {}
  TensorList apply(std::span<const Tensor> inputs, std::source_location where) const;

 private:
  const OpDef* op_;
  Attrs attrs_;
};

Update sgd_update();                           // (w, g, rate)
Update momentum_update(const MomentumAttrs&);  // (w, m, g, rate)
Update adam_update(const AdamUpdateAttrs&);    // (w, m, v, [v_hat,] g, rate)
Update adamax_update(const BetaAttrs&);        // (w, m, norm, g, rate)
Update nadam_update(const BetaAttrs&);         // (w, m, v, g, rate of m, rate of g, factor of v)
Update rmsprop_update(const RmspropAttrs&);    // (w, v, [momentum,] [average,] g, rate)
Update adagrad_update(const EpsilonAttrs&);    // (w, accumulator, g, rate)
Update adadelta_update(const AdadeltaAttrs&);  // (w, accumulated g, accumulated step, g, rate)
Update lion_update(const BetaAttrs&);          // (w, m, g, rate); without epsilon
Update ftrl_update(const FtrlAttrs&);          // (w, accumulator, linear, g, rate)
// (m, v, g, factor of m, factor of v) -> (m, v, direction): Lamb's step before it knows its length.
Update lamb_direction(const BetaAttrs&);

}  // namespace lockstep
