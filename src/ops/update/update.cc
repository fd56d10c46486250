#include "ops/update/update.h"

#include "graph/emit.h"
#include "ops/elementwise/expander.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

using elementwise::Expander;
using elementwise::Opcode;
using elementwise::Scalar;

// --- shape rules -------------------------------------------------------------------------------------------

// `results` of the weights' spec; the last `scalars` inputs are scalars.
SpecList infer_update(const InferContext& c, size_t scalars, size_t results) {
  const size_t tensors = c.inputs.size() - scalars;
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "takes floating-point weights, received ",
          c.inputs[0]);
  for (size_t i = 1; i < tensors; ++i) {
    c.check(c.inputs[i].dtype == c.dtype(0), ErrorCode::dtype_mismatch,
            "weights, slots and gradient must have one dtype, received ", c.inputs[0], " and ", c.inputs[i]);
    c.check(c.inputs[i].shape == c.shape(0), ErrorCode::shape_mismatch,
            "weights, slots and gradient must agree, received ", c.inputs[0], " and ", c.inputs[i]);
  }
  const DType dtype = update_scalar_dtype(c.dtype(0));
  for (size_t i = tensors; i < c.inputs.size(); ++i) {
    c.check(c.inputs[i].dtype == dtype, ErrorCode::dtype_mismatch, "the rate must be a ", dtype,
            " scalar, received ", c.inputs[i]);
    c.check(c.inputs[i].shape == Shape{}, ErrorCode::shape_mismatch, "the rate must be a ", dtype,
            " scalar, received ", c.inputs[i]);
  }
  return SpecList(results, c.inputs[0]);
}

template <int Slots, int Scalars = 1>
SpecList infer(const InferContext& c) {
  return infer_update(c, Scalars, Slots + 1);
}

// For ops whose attributes say how many slots there are.
SpecList infer_slots(const InferContext& c, size_t slots) {
  c.check(c.inputs.size() == slots + 3, ErrorCode::invalid_argument, "takes ", slots,
          " slots with these settings, received ", c.inputs.size() - 3);
  return infer_update(c, 1, slots + 1);
}

constexpr OpDef update(std::string_view name, int min_inputs, int max_inputs,
                       SpecList (*infer)(const InferContext&), void (*expand)(Expander&)) {
  return {.name = name,
          .min_inputs = min_inputs,
          .max_inputs = max_inputs,
          .infer = infer,
          .cost = cost_elementwise,
          .expand = expand};
}
constexpr OpDef update(std::string_view name, int inputs, SpecList (*infer)(const InferContext&),
                       void (*expand)(Expander&)) {
  return update(name, inputs, inputs, infer, expand);
}

// --- formulas ----------------------------------------------------------------------------------------------

// 16-bit inputs as float32, and results back again.
class Formula {
 public:
  explicit Formula(Expander& e) : e_(e), dtype_(e.in(0).dtype()) {}
  Scalar in(int i) {
    const Scalar value = e_.in(i);
    return converted(value, update_scalar_dtype(value.dtype()));
  }
  void out(Scalar value) { e_.out(converted(value, dtype_)); }

 private:
  Scalar converted(Scalar value, DType dtype) {
    return value.dtype() == dtype ? value : e_.apply(Opcode::cast, dtype, value);
  }
  Expander& e_;
  DType dtype_;
};

Scalar sqrt(Scalar x) { return unary(Opcode::sqrt, x); }
Scalar maximum(Scalar a, Scalar b) { return binary(Opcode::maximum, a, b); }
Scalar minimum(Scalar a, Scalar b) { return binary(Opcode::minimum, a, b); }
// The average of which `keep` stays: Keras writes it in both ways, and rounding tells them apart.
Scalar moved_towards(Scalar average, Scalar x, double keep) { return average + (x - average) * (1.0 - keep); }
Scalar mixed(Scalar average, Scalar x, double keep) { return keep * average + (1.0 - keep) * x; }

}  // namespace

constinit const OpDef kSgdUpdate = update("sgd_update", 3, infer<0>, [](Expander& e) {
  Formula f(e);
  f.out(f.in(0) - f.in(2) * f.in(1));
});

constinit const OpDef kSgdMomentumUpdate = update("sgd_momentum_update", 4, infer<1>, [](Expander& e) {
  const auto& a = e.attrs<MomentumAttrs>();
  Formula f(e);
  const Scalar w = f.in(0), m = f.in(1), step = f.in(3) * f.in(2);
  const Scalar new_m = m * a.momentum - step;
  f.out(w + (a.nesterov ? new_m * a.momentum - step : new_m));
  f.out(new_m);
});

constinit const OpDef kAdamUpdate = update(
    "adam_update", 5, 6,
    [](const InferContext& c) { return infer_slots(c, c.attrs<AdamUpdateAttrs>().amsgrad ? 3 : 2); },
    [](Expander& e) {
      const auto& a = e.attrs<AdamUpdateAttrs>();
      Formula f(e);
      const int next = a.amsgrad ? 4 : 3;
      const Scalar w = f.in(0), m = f.in(1), v = f.in(2), g = f.in(next), rate = f.in(next + 1);
      const Scalar new_m = moved_towards(m, g, a.beta_1);
      const Scalar new_v = moved_towards(v, g * g, a.beta_2);
      const Scalar largest_v = a.amsgrad ? maximum(f.in(3), new_v) : new_v;
      f.out(w - rate * new_m / (sqrt(largest_v) + a.epsilon));
      f.out(new_m);
      f.out(new_v);
      if (a.amsgrad) f.out(largest_v);
    });

constinit const OpDef kAdamaxUpdate = update("adamax_update", 5, infer<2>, [](Expander& e) {
  const auto& a = e.attrs<BetaAttrs>();
  Formula f(e);
  const Scalar w = f.in(0), m = f.in(1), norm = f.in(2), g = f.in(3), rate = f.in(4);
  const Scalar new_m = moved_towards(m, g, a.beta_1);
  const Scalar new_norm = maximum(a.beta_2 * norm, unary(Opcode::abs, g));
  f.out(w - rate * new_m / (new_norm + a.epsilon));
  f.out(new_m);
  f.out(new_norm);
});

constinit const OpDef kNadamUpdate = update("nadam_update", 7, infer<2, 3>, [](Expander& e) {
  const auto& a = e.attrs<BetaAttrs>();
  Formula f(e);
  const Scalar w = f.in(0), m = f.in(1), v = f.in(2), g = f.in(3);
  const Scalar new_m = moved_towards(m, g, a.beta_1);
  const Scalar new_v = moved_towards(v, g * g, a.beta_2);
  f.out(w - (f.in(4) * new_m + f.in(5) * g) / (sqrt(f.in(6) * new_v) + a.epsilon));
  f.out(new_m);
  f.out(new_v);
});

constinit const OpDef kRmspropUpdate = update(
    "rmsprop_update", 4, 6,
    [](const InferContext& c) {
      const auto& a = c.attrs<RmspropAttrs>();
      return infer_slots(c, 1u + (a.momentum > 0 ? 1 : 0) + (a.centered ? 1 : 0));
    },
    [](Expander& e) {
      const auto& a = e.attrs<RmspropAttrs>();
      Formula f(e);
      int next = 2;
      const Scalar w = f.in(0), v = f.in(1);
      const Scalar momentum = a.momentum > 0 ? f.in(next++) : Scalar();
      const Scalar average = a.centered ? f.in(next++) : Scalar();
      const Scalar g = f.in(next), rate = f.in(next + 1);
      const Scalar new_v = mixed(v, g * g, a.rho);
      const Scalar new_average = a.centered ? mixed(average, g, a.rho) : Scalar();
      const Scalar variance = a.centered ? new_v - new_average * new_average : new_v;
      const Scalar step = rate * g / sqrt(variance + a.epsilon);
      const Scalar new_momentum = a.momentum > 0 ? a.momentum * momentum + step : step;
      f.out(w - new_momentum);
      f.out(new_v);
      if (a.momentum > 0) f.out(new_momentum);
      if (a.centered) f.out(new_average);
    });

constinit const OpDef kAdagradUpdate = update("adagrad_update", 4, infer<1>, [](Expander& e) {
  Formula f(e);
  const Scalar w = f.in(0), accumulator = f.in(1), g = f.in(2), rate = f.in(3);
  const Scalar sum = accumulator + g * g;
  f.out(w - rate * g / sqrt(sum + e.attrs<EpsilonAttrs>().epsilon));
  f.out(sum);
});

constinit const OpDef kAdadeltaUpdate = update("adadelta_update", 5, infer<2>, [](Expander& e) {
  const auto& a = e.attrs<AdadeltaAttrs>();
  Formula f(e);
  const Scalar w = f.in(0), gradients = f.in(1), steps = f.in(2), g = f.in(3), rate = f.in(4);
  const Scalar new_gradients = mixed(gradients, g * g, a.rho);
  const Scalar step = sqrt(steps + a.epsilon) * g / sqrt(new_gradients + a.epsilon);
  f.out(w - rate * step);
  f.out(new_gradients);
  f.out(mixed(steps, step * step, a.rho));
});

constinit const OpDef kLionUpdate = update("lion_update", 4, infer<1>, [](Expander& e) {
  const auto& a = e.attrs<BetaAttrs>();
  Formula f(e);
  const Scalar w = f.in(0), m = f.in(1), g = f.in(2), rate = f.in(3);
  f.out(w - rate * unary(Opcode::sign, mixed(m, g, a.beta_1)));
  f.out(mixed(m, g, a.beta_2));
});

constinit const OpDef kFtrlUpdate = update("ftrl_update", 5, infer<2>, [](Expander& e) {
  const auto& a = e.attrs<FtrlAttrs>();
  Formula f(e);
  const Scalar w = f.in(0), accumulator = f.in(1), linear = f.in(2), g = f.in(3), rate = f.in(4);
  const auto power = [&](Scalar x) {
    if (a.learning_rate_power == -0.5) return sqrt(x);
    return binary(Opcode::pow, x, e.constant(-a.learning_rate_power, x.dtype()));
  };
  const Scalar sum = accumulator + g * g;
  const Scalar raised = power(sum);
  const Scalar new_linear = linear + (g + 2 * a.l2_shrinkage * w) - (raised - power(accumulator)) / rate * w;
  const Scalar quadratic = (raised + a.beta) / rate + 2 * a.l2;
  const Scalar bound = e.constant(a.l1, w.dtype());
  const Scalar clipped = minimum(maximum(new_linear, -bound), bound);
  f.out((clipped - new_linear) / quadratic);
  f.out(sum);
  f.out(new_linear);
});

constinit const OpDef kLambDirection = update("lamb_direction", 5, infer<2, 2>, [](Expander& e) {
  const auto& a = e.attrs<BetaAttrs>();
  Formula f(e);
  const Scalar m = f.in(0), v = f.in(1), g = f.in(2);
  const Scalar new_m = moved_towards(m, g, a.beta_1);
  const Scalar new_v = moved_towards(v, g * g, a.beta_2);
  f.out(new_m);
  f.out(new_v);
  f.out(f.in(3) * new_m / (sqrt(f.in(4) * new_v) + a.epsilon));
});

namespace {
const RegisterOp registered[] = {
    RegisterOp(kSgdUpdate),     RegisterOp(kSgdMomentumUpdate), RegisterOp(kAdamUpdate),
    RegisterOp(kAdamaxUpdate),  RegisterOp(kNadamUpdate),       RegisterOp(kRmspropUpdate),
    RegisterOp(kAdagradUpdate), RegisterOp(kAdadeltaUpdate),    RegisterOp(kLionUpdate),
    RegisterOp(kFtrlUpdate),    RegisterOp(kLambDirection),
};
}  // namespace

TensorList Update::apply(std::span<const Tensor> inputs, std::source_location where) const {
  return emit(*op_, inputs, attrs_, where);
}

Update sgd_update() { return {kSgdUpdate, {}}; }
Update momentum_update(const MomentumAttrs& attrs) { return {kSgdMomentumUpdate, attrs}; }
Update adam_update(const AdamUpdateAttrs& attrs) { return {kAdamUpdate, attrs}; }
Update adamax_update(const BetaAttrs& attrs) { return {kAdamaxUpdate, attrs}; }
Update nadam_update(const BetaAttrs& attrs) { return {kNadamUpdate, attrs}; }
Update rmsprop_update(const RmspropAttrs& attrs) { return {kRmspropUpdate, attrs}; }
Update adagrad_update(const EpsilonAttrs& attrs) { return {kAdagradUpdate, attrs}; }
Update adadelta_update(const AdadeltaAttrs& attrs) { return {kAdadeltaUpdate, attrs}; }
Update lion_update(const BetaAttrs& attrs) { return {kLionUpdate, attrs}; }
Update ftrl_update(const FtrlAttrs& attrs) { return {kFtrlUpdate, attrs}; }
Update lamb_direction(const BetaAttrs& attrs) { return {kLambDirection, attrs}; }

Tensor descend(const Tensor& w, const Tensor& step, const Tensor& rate, std::source_location where) {
  return emit_one(kSgdUpdate, {w, step, rate}, {}, where);
}

}  // namespace lockstep
