// Optimizer updates as elementwise ops: one pass over weights, slots and gradient, in place when
// compiled. Keras' formulas.
#pragma once

#include "graph/op.h"
#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

extern const OpDef kAdamUpdate, kSgdUpdate, kSgdMomentumUpdate;

struct AdamUpdateAttrs {
  double beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-7;
  bool operator==(const AdamUpdateAttrs&) const = default;
  void visit(auto&& v) const { v("beta_1", beta_1), v("beta_2", beta_2), v("epsilon", epsilon); }
};

struct MomentumAttrs {
  double momentum = 0;
  bool nesterov = false;
  bool operator==(const MomentumAttrs&) const = default;
  void visit(auto&& v) const { v("momentum", momentum), v("nesterov", nesterov); }
};

// (w, m, v, gradient, rate) -> (w, m, v); rate = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t).
TensorList adam_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& gradient,
                       const Tensor& rate, const AdamUpdateAttrs& attrs, std::source_location where);
// (w, gradient, learning_rate) -> w
Tensor sgd_update(const Tensor& w, const Tensor& gradient, const Tensor& rate, std::source_location where);
// (w, m, gradient, learning_rate) -> (w, m)
TensorList sgd_momentum_update(const Tensor& w, const Tensor& m, const Tensor& gradient, const Tensor& rate,
                               const MomentumAttrs& attrs, std::source_location where);

}  // namespace lockstep
