#include "lockstep/ops/activations.h"

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "ops/elementwise/activations.h"
#include "ops/elementwise/rows.h"

namespace lockstep {
namespace {

using namespace elementwise;

Scalar constant(Scalar like, double value) { return like.expander().constant(value, like.dtype()); }
Scalar above(Scalar x, double bound) { return compare(Opcode::greater, x, constant(x, bound)); }
Scalar clamped(Scalar x, double low, double high) {
  return binary(Opcode::minimum, binary(Opcode::maximum, x, constant(x, low)), constant(x, high));
}
Scalar hard_sigmoid_of(Scalar x) { return clamped(x * (1.0 / 6) + 0.5, 0, 1); }

// n / (n + 2) with n = e^x (e^x + 2) is tanh(log(1 + e^x)); from 20 on it is 1 in every dtype.
Scalar mish_of(Scalar x) {
  const Scalar e = unary(Opcode::exp, binary(Opcode::minimum, x, constant(x, 20)));
  const Scalar n = e * (e + 2.0);
  return x * (n / (n + 2.0));
}

// Below 0 the sum of x and the root would cancel.
Scalar squareplus_of(Scalar x, Expander& e) {
  const double b = e.attrs<ActivationAttrs>().setting;
  const Scalar root = unary(Opcode::sqrt, x * x + b);
  return select(above(x, 0), 0.5 * (x + root), (0.5 * b) / (root - x));
}

Scalar leaky_relu_of(Scalar x, Expander& e) {
  return select(compare(Opcode::less, x, constant(x, 0)), e.attrs<ActivationAttrs>().setting * x, x);
}

Scalar elu_of(Scalar x, Expander& e) {
  const auto& [alpha, scale, rate] = e.attrs<EluAttrs>();
  const Scalar below = alpha * scale * unary(Opcode::expm1, rate == 1 ? x : rate * x);
  return select(above(x, 0), scale == 1 ? x : scale * x, below);
}

Scalar silu_of(Scalar x) { return x / (1.0 + unary(Opcode::exp, -x)); }
Scalar softsign_of(Scalar x) { return x / (1.0 + unary(Opcode::abs, x)); }
Scalar hard_silu_of(Scalar x) { return x * hard_sigmoid_of(x); }
Scalar tanh_shrink_of(Scalar x) { return x - unary(Opcode::tanh, x); }

Scalar sparse_plus_of(Scalar x) {
  const Scalar shifted = clamped(x, -1, 1) + 1.0;
  return select(above(x, 1), x, 0.25 * (shifted * shifted));
}

}  // namespace

// clang-format off
constinit const OpDef kLeakyRelu = number("leaky_relu", widened<leaky_relu_of>,
    [](const GradContext& g) -> TensorList {
      return {where(g.in() < 0.0, g.attrs<ActivationAttrs>().setting * g.dout(), g.dout())};
    });
constinit const OpDef kElu = floating("elu", widened<elu_of>,
    [](const GradContext& g) -> TensorList {
      const auto& [alpha, scale, rate] = g.attrs<EluAttrs>();
      return {where(g.in() > 0.0, scale * g.dout(), g.dout() * ((g.out() + alpha * scale) * rate))};
    });
constinit const OpDef kSilu = floating("silu", widened<silu_of>,
    [](const GradContext& g) -> TensorList {
      const Tensor s = sigmoid(g.in());
      return {g.dout() * (s + g.out() * (1.0 - s))};
    });
constinit const OpDef kMish = floating("mish", widened<mish_of>,
    [](const GradContext& g) -> TensorList {
      const Tensor t = tanh(softplus(g.in()));
      return {g.dout() * (t + g.in() * (1.0 - t * t) * sigmoid(g.in()))};
    });
constinit const OpDef kSoftsign = floating("softsign", widened<softsign_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() / square(1.0 + abs(g.in()))}; });
constinit const OpDef kHardSigmoid = floating("hard_sigmoid", widened<hard_sigmoid_of>,
    [](const GradContext& g) -> TensorList { return {where(abs(g.in()) < 3.0, g.dout() * (1.0 / 6), 0.0)}; });
constinit const OpDef kHardSilu = floating("hard_silu", widened<hard_silu_of>,
    [](const GradContext& g) -> TensorList {
      const Tensor& x = g.in();
      const Tensor inside = where(abs(x) < 3.0, x * (1.0 / 3) + 0.5, 0.0);
      return {g.dout() * where(x < 3.0, inside, 1.0)};
    });
constinit const OpDef kTanhShrink = floating("tanh_shrink", widened<tanh_shrink_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * square(tanh(g.in()))}; });
constinit const OpDef kSquareplus = floating("squareplus", widened<squareplus_of>,
    [](const GradContext& g) -> TensorList {
      const Tensor root = sqrt(square(g.in()) + g.attrs<ActivationAttrs>().setting);
      return {g.dout() * (0.5 * (1.0 + g.in() / root))};
    });
constinit const OpDef kSparsePlus = floating("sparse_plus", widened<sparse_plus_of>,
    [](const GradContext& g) -> TensorList {
      return {g.dout() * clip_by_value(0.5 * g.in() + 0.5, 0.0, 1.0)};
    });
// clang-format on

namespace {

const bool registered = [] {
  for (const OpDef* op : {&kLeakyRelu, &kElu, &kSilu, &kMish, &kSoftsign, &kHardSigmoid, &kHardSilu,
                          &kTanhShrink, &kSquareplus, &kSparsePlus})
    RegisterOp{*op};
  return true;
}();

Tensor apply(const OpDef& op, const TensorArg& x, const Attrs& attrs = {}) {
  return emit_one(op, {x.tensor()}, attrs, x.where());
}

OperandArg at(const Tensor& tensor, const TensorArg& x) { return {tensor, x.where()}; }

}  // namespace

Tensor relu(const TensorArg& x, const ReluOptions& options) {
  const auto& [slope, max_value, threshold] = options;
  if (slope == 0 && max_value < 0 && threshold == 0) return relu(x);
  const OperandArg value = at(x.tensor("relu"), x), bound(threshold, x.where()),
                   largest(max_value, x.where());
  // NaN is neither above nor below a bound, and stays.
  const Tensor below = slope == 0 ? zeros_like(x) : at(value - bound, x) * OperandArg(slope, x.where());
  const Tensor y = where(value <= bound, below, value);
  return max_value < 0 ? y : where(y >= largest, largest, y);
}
Tensor relu6(const TensorArg& x) { return relu(x, {.max_value = 6}); }
Tensor leaky_relu(const TensorArg& x, double negative_slope) {
  x.tensor("leaky_relu");
  require(is_floating(x.tensor().dtype()) ||
              negative_slope == static_cast<double>(static_cast<int64_t>(negative_slope)),
          ErrorCode::dtype_mismatch, x.where(), "leaky_relu: the slope ", negative_slope, " has no exact ",
          x.tensor().dtype(), " value; cast() the tensor to a floating-point dtype first");
  return apply(kLeakyRelu, x, ActivationAttrs{negative_slope});
}

Tensor elu(const TensorArg& x, double alpha) { return apply(kElu, x, EluAttrs{.alpha = alpha}); }
Tensor selu(const TensorArg& x) {
  return apply(kElu, x, EluAttrs{.alpha = 1.6732632423543772, .scale = 1.0507009873554805});
}
Tensor celu(const TensorArg& x, double alpha) {
  require(alpha != 0, ErrorCode::invalid_argument, x.where(), "celu: alpha is not 0, received ", alpha);
  return apply(kElu, x, EluAttrs{.alpha = alpha, .rate = 1 / alpha});
}
Tensor silu(const TensorArg& x) { return apply(kSilu, x); }
Tensor mish(const TensorArg& x) { return apply(kMish, x); }
Tensor softsign(const TensorArg& x) { return apply(kSoftsign, x); }
Tensor log_sigmoid(const TensorArg& x) { return -softplus(TensorArg(-x, x.where())); }

Tensor glu(const TensorArg& x, int axis) {
  const Shape& shape = x.tensor("glu").shape();
  const int position = normalize_axis(axis, shape.rank(), "glu", x.where());
  require(shape[position] % 2 == 0, ErrorCode::shape_mismatch, x.where(), "glu: dimension ", position, " of ",
          shape, " does not divide into two halves");
  const TensorList halves = split(x, 2, position);
  return at(halves[0], x) * at(sigmoid({halves[1], x.where()}), x);
}

Tensor hard_sigmoid(const TensorArg& x) { return apply(kHardSigmoid, x); }
Tensor hard_silu(const TensorArg& x) { return apply(kHardSilu, x); }
Tensor hard_tanh(const TensorArg& x) { return clip_by_value(x, -1.0, 1.0); }
Tensor tanh_shrink(const TensorArg& x) { return apply(kTanhShrink, x); }

Tensor hard_shrink(const TensorArg& x, double threshold) {
  const Tensor& value = x.tensor("hard_shrink");
  return where(abs(x) <= OperandArg(threshold, x.where()), 0.0, value);
}
Tensor soft_shrink(const TensorArg& x, double threshold) {
  const Tensor& value = x.tensor("soft_shrink");
  const OperandArg by(threshold, x.where());
  // Inside of the threshold nothing is left; NaN is not inside.
  const Tensor outside = where(at(value, x) < -threshold, at(value, x) + by, value - by);
  return where(abs(x) <= by, 0.0, outside);
}
Tensor threshold(const TensorArg& x, double threshold, double value) {
  const Tensor& tensor = x.tensor("threshold");
  return where(at(tensor, x) <= OperandArg(threshold, x.where()), OperandArg(value, x.where()), tensor);
}

Tensor squareplus(const TensorArg& x, double b) {
  require(b >= 0, ErrorCode::invalid_argument, x.where(), "squareplus: b is not negative, received ", b);
  return apply(kSquareplus, x, ActivationAttrs{b});
}
Tensor sparse_plus(const TensorArg& x) { return apply(kSparsePlus, x); }
Tensor sparse_sigmoid(const TensorArg& x) {
  const Tensor& value = x.tensor("sparse_sigmoid");
  const Tensor inside = 0.5 * at(at(value, x) + 1.0, x);
  return where(value <= -1.0, 0.0, where(value >= 1.0, 1.0, inside));
}

}  // namespace lockstep
