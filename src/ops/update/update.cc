#include "ops/update/update.h"

#include "graph/emit.h"
#include "ops/elementwise/expander.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

using elementwise::Expander;
using elementwise::Opcode;
using elementwise::Scalar;

// All tensors have the weights' spec; the last input is the rate, a scalar of the same dtype.
template <int States>
SpecList infer(const InferContext& c) {
  for (const TensorSpec& input : c.inputs)
    c.check(input.dtype == c.dtype(0), ErrorCode::dtype_mismatch,
            "weights, slots, gradient and rate must have one dtype, received ", c.inputs[0], " and ", input);
  for (size_t i = 1; i + 1 < c.inputs.size(); ++i)
    c.check(c.inputs[i] == c.inputs[0], ErrorCode::shape_mismatch,
            "weights, slots and gradient must agree, received ", c.inputs[0], " and ", c.inputs[i]);
  c.check(c.inputs.back() == TensorSpec{c.dtype(0), {}}, ErrorCode::shape_mismatch, "the rate must be a ",
          c.dtype(0), " scalar, received ", c.inputs.back());
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "takes floating-point weights, received ",
          c.inputs[0]);
  return SpecList(States, c.inputs[0]);
}

constexpr OpDef update(std::string_view name, int inputs, SpecList (*infer)(const InferContext&),
                       void (*expand)(Expander&)) {
  return {.name = name,
          .min_inputs = inputs,
          .max_inputs = inputs,
          .infer = infer,
          .cost = cost_elementwise,
          .expand = expand};
}

}  // namespace

constinit const OpDef kAdamUpdate = update("adam_update", 5, infer<3>, [](Expander& e) {
  const auto& a = e.attrs<AdamUpdateAttrs>();
  const Scalar w = e.in(0), m = e.in(1), v = e.in(2), g = e.in(3), rate = e.in(4);
  const Scalar new_m = m + (g - m) * (1.0 - a.beta_1);
  const Scalar new_v = v + (g * g - v) * (1.0 - a.beta_2);
  e.out(w - rate * new_m / (unary(Opcode::sqrt, new_v) + a.epsilon));
  e.out(new_m);
  e.out(new_v);
});

constinit const OpDef kSgdUpdate =
    update("sgd_update", 3, infer<1>, [](Expander& e) { e.out(e.in(0) - e.in(2) * e.in(1)); });

constinit const OpDef kSgdMomentumUpdate = update("sgd_momentum_update", 4, infer<2>, [](Expander& e) {
  const auto& a = e.attrs<MomentumAttrs>();
  const Scalar w = e.in(0), m = e.in(1), step = e.in(3) * e.in(2);
  const Scalar new_m = m * a.momentum - step;
  e.out(w + (a.nesterov ? new_m * a.momentum - step : new_m));
  e.out(new_m);
});

namespace {
const RegisterOp registered[] = {RegisterOp(kAdamUpdate), RegisterOp(kSgdUpdate),
                                 RegisterOp(kSgdMomentumUpdate)};
}  // namespace

TensorList adam_update(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& gradient,
                       const Tensor& rate, const AdamUpdateAttrs& attrs, std::source_location where) {
  return emit(kAdamUpdate, TensorList{w, m, v, gradient, rate}, attrs, where);
}

Tensor sgd_update(const Tensor& w, const Tensor& gradient, const Tensor& rate, std::source_location where) {
  return emit_one(kSgdUpdate, {w, gradient, rate}, {}, where);
}

TensorList sgd_momentum_update(const Tensor& w, const Tensor& m, const Tensor& gradient, const Tensor& rate,
                               const MomentumAttrs& attrs, std::source_location where) {
  return emit(kSgdMomentumUpdate, TensorList{w, m, gradient, rate}, attrs, where);
}

}  // namespace lockstep
