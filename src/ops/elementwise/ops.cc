#include "ops/elementwise/ops.h"

#include <cmath>
#include <numbers>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/elementwise/rows.h"

namespace lockstep {
namespace {

using namespace elementwise;

// --- shape rules -------------------------------------------------------------------------------------------

void check_equal_dtypes(const InferContext& c) {
  for (size_t i = 1; i < c.inputs.size(); ++i)
    c.check(c.inputs[i].dtype == c.inputs[0].dtype, ErrorCode::dtype_mismatch,
            "operands must have one dtype, received ", c.inputs[0], " and ", c.inputs[i],
            "; cast() one of them");
}

Shape broadcast_inputs(const InferContext& c) {
  Shape shape = c.shape(0);
  for (size_t i = 1; i < c.inputs.size(); ++i)
    shape = broadcast(shape, c.inputs[i].shape, std::string(c.op.name).c_str(), c.where);
  return shape;
}

SpecList infer_comparison(const InferContext& c) {
  check_equal_dtypes(c);
  return {{DType::boolean, broadcast_inputs(c)}};
}

SpecList infer_select(const InferContext& c) {
  c.check(c.dtype(0) == DType::boolean, ErrorCode::dtype_mismatch, "the condition must be boolean, received ",
          c.inputs[0]);
  c.check(c.dtype(1) == c.dtype(2), ErrorCode::dtype_mismatch, "both choices must have one dtype, received ",
          c.inputs[1], " and ", c.inputs[2], "; cast() one of them");
  return {{c.dtype(1), broadcast_inputs(c)}};
}

// --- rows --------------------------------------------------------------------------------------------------

constexpr OpDef activation(OpDef op, Epilogue (*as_epilogue)(const Attrs&)) {
  op.as_epilogue = as_epilogue;
  return op;
}

constexpr OpDef with_traits(OpTraits traits, OpDef op) {
  op.traits = traits;
  return op;
}

template <Opcode op>
constexpr OpDef comparison(std::string_view name) {
  return row(
      name, 2, infer_comparison, [](Expander& e) { e.out(compare(op, e.in(0), e.in(1))); }, nullptr);
}

// The winner of maximum/minimum takes the gradient; equal operands share it, as in TensorFlow's
// choice for maximum (a >= b sends it to a).
template <const OpDef& wins>
TensorList grad_extremum(const GradContext& g) {
  const Tensor mask = emit_one(wins, {g.in(0), g.in(1)}, {}, std::source_location::current());
  return to_inputs(g, where(mask, g.dout(), 0.0), where(mask, 0.0, g.dout()));
}

Scalar gelu_of(Scalar x, Expander& e) {
  if (e.attrs<GeluAttrs>().approximate) {
    const Scalar inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * (x * x * x));
    return 0.5 * x * (1.0 + unary(Opcode::tanh, inner));
  }
  return 0.5 * x * (1.0 + unary(Opcode::erf, x * (1.0 / std::numbers::sqrt2)));
}

TensorList grad_gelu(const GradContext& g) {
  // 16-bit floats are computed with in float32, as forward.
  const DType dtype = g.in().dtype();
  const DType computed = size_of(dtype) == 2 ? DType::float32 : dtype;
  const Tensor x = cast(g.in(), computed), dout = cast(g.dout(), computed);
  if (g.attrs<GeluAttrs>().approximate) {
    const double k = std::sqrt(2.0 / std::numbers::pi);
    const Tensor t = tanh(k * (x + 0.044715 * (x * x * x)));
    return {cast(dout * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * (k * (1.0 + 3 * 0.044715 * (x * x)))),
                 dtype)};
  }
  const Tensor cdf = 0.5 * (1.0 + erf(x * (1.0 / std::numbers::sqrt2)));
  const Tensor pdf = exp(-0.5 * (x * x)) * (1.0 / std::sqrt(2.0 * std::numbers::pi));
  return {cast(dout * (cdf + x * pdf), dtype)};
}

}  // namespace

namespace elementwise {

SpecList infer_number(const InferContext& c) {
  c.check(c.dtype(0) != DType::boolean, ErrorCode::dtype_mismatch, "takes numbers, received ", c.inputs[0],
          "; cast() it first");
  return infer_elementwise(c);
}

SpecList infer_floating(const InferContext& c) {
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "takes floating-point tensors, received ",
          c.inputs[0], "; cast() it first");
  return infer_elementwise(c);
}

SpecList infer_logical(const InferContext& c) {
  c.check(c.dtype(0) == DType::boolean, ErrorCode::dtype_mismatch, "takes booleans, received ", c.inputs[0],
          "; compare it first, for example x != 0");
  return infer_comparison(c);
}

SpecList infer_float_test(const InferContext& c) { return {{DType::boolean, infer_floating(c)[0].shape}}; }

TensorList to_inputs(const GradContext& g, const Tensor& da, const Tensor& db) {
  return {da.defined() ? sum_to_shape(da, g.in(0).shape()) : Tensor(),
          db.defined() ? sum_to_shape(db, g.in(1).shape()) : Tensor()};
}

}  // namespace elementwise

SpecList infer_elementwise(const InferContext& c) {
  check_equal_dtypes(c);
  return {{c.dtype(0), broadcast_inputs(c)}};
}

Cost cost_elementwise(const InferContext& c, std::span<const TensorSpec> outputs) {
  Cost cost;
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : outputs) {
    cost.bytes += static_cast<int64_t>(spec.bytes());
    cost.flops += spec.shape.size();
  }
  return cost;
}

Tensor sum_to_shape(const Tensor& gradient, const Shape& shape) {
  if (gradient.shape() == shape) return gradient;
  std::vector<int64_t> axes;
  const int extra = gradient.rank() - shape.rank();
  for (int i = 0; i < gradient.rank(); ++i)
    if (i < extra || (shape[i - extra] == 1 && gradient.shape()[i] != 1)) axes.push_back(i);
  return reshape(axes.empty() ? gradient : reduce_sum(gradient, {.axis = axes}), shape);
}

// One row per op: the columns are easier to read than any wrapping.
// clang-format off
constinit const OpDef kIdentity = row("identity", 1, infer_elementwise, [](Expander& e) { e.out(e.in(0)); },
    [](const GradContext& g) -> TensorList { return {g.dout()}; });
constinit const OpDef kStopGradient = with_traits({.forwards = true},
    row("stop_gradient", 1, infer_elementwise, [](Expander& e) { e.out(e.in(0)); }, nullptr));
constinit const OpDef kAdd = with_traits({.adds = true}, arithmetic("add", one<Opcode::add>,
    [](const GradContext& g) { return to_inputs(g, g.dout(), g.dout()); }));
constinit const OpDef kSub = arithmetic("sub", one<Opcode::sub>,
    [](const GradContext& g) { return to_inputs(g, g.dout(), g.needs(1) ? -g.dout() : Tensor()); });
constinit const OpDef kMul = with_traits({.neutral = 1.0}, arithmetic("mul", one<Opcode::mul>,
    [](const GradContext& g) {
      return to_inputs(g, g.needs(0) ? g.dout() * g.in(1) : Tensor(), g.needs(1) ? g.dout() * g.in(0) : Tensor());
    }));
constinit const OpDef kDiv = arithmetic("div", one<Opcode::div>,
    [](const GradContext& g) {
      return to_inputs(g, g.dout() / g.in(1), g.needs(1) ? -g.dout() * g.out() / g.in(1) : Tensor());
    });
constinit const OpDef kMaximum = arithmetic("maximum", one<Opcode::maximum>, grad_extremum<kGreaterEqual>);
constinit const OpDef kMinimum = arithmetic("minimum", one<Opcode::minimum>, grad_extremum<kLessEqual>);
constinit const OpDef kPow = arithmetic("pow", one<Opcode::pow>,
    [](const GradContext& g) {
      const Tensor &x = g.in(0), &y = g.in(1);
      Tensor dy;
      // x^y log x has no meaning at x <= 0: the gradient of the exponent is taken as 0 there.
      if (g.needs(1)) dy = g.dout() * g.out() * where(x > 0.0, log(where(x > 0.0, x, 1.0)), 0.0);
      return to_inputs(g, g.needs(0) ? g.dout() * y * pow(x, y - 1.0) : Tensor(), dy);
    });
constinit const OpDef kMod = arithmetic("mod", one<Opcode::mod>,
    [](const GradContext& g) {
      return to_inputs(g, g.dout(), g.needs(1) ? -g.dout() * floor(g.in(0) / g.in(1)) : Tensor());
    });

constinit const OpDef kNeg = number("neg", one<Opcode::neg>, [](const GradContext& g) -> TensorList { return {-g.dout()}; });
constinit const OpDef kAbs = number("abs", one<Opcode::abs>,
    [](const GradContext& g) -> TensorList { return {g.dout() * sign(g.in())}; });
constinit const OpDef kSign = number("sign", one<Opcode::sign>, [](const GradContext& g) -> TensorList { return {zeros_like(g.in())}; });
constinit const OpDef kFloor = floating("floor", one<Opcode::floor>, [](const GradContext& g) -> TensorList { return {zeros_like(g.in())}; });
constinit const OpDef kCeil = floating("ceil", one<Opcode::ceil>, [](const GradContext& g) -> TensorList { return {zeros_like(g.in())}; });
constinit const OpDef kRound = floating("round", one<Opcode::round>, [](const GradContext& g) -> TensorList { return {zeros_like(g.in())}; });
constinit const OpDef kSquare = number("square", [](Expander& e) { e.out(e.in(0) * e.in(0)); },
    [](const GradContext& g) -> TensorList { return {g.dout() * (2.0 * g.in())}; });
constinit const OpDef kSqrt = floating("sqrt", one<Opcode::sqrt>,
    [](const GradContext& g) -> TensorList { return {g.dout() * 0.5 / g.out()}; });
constinit const OpDef kRsqrt = floating("rsqrt", [](Expander& e) { e.out(1.0 / unary(Opcode::sqrt, e.in(0))); },
    [](const GradContext& g) -> TensorList { return {g.dout() * (-0.5 * (g.out() * g.out() * g.out()))}; });
constinit const OpDef kReciprocal = floating("reciprocal", [](Expander& e) { e.out(1.0 / e.in(0)); },
    [](const GradContext& g) -> TensorList { return {-g.dout() * (g.out() * g.out())}; });
constinit const OpDef kExp = floating("exp", one<Opcode::exp>,
    [](const GradContext& g) -> TensorList { return {g.dout() * g.out()}; });
constinit const OpDef kExpm1 = floating("expm1", one<Opcode::expm1>,
    [](const GradContext& g) -> TensorList { return {g.dout() * (g.out() + 1.0)}; });
constinit const OpDef kLog = floating("log", one<Opcode::log>,
    [](const GradContext& g) -> TensorList { return {g.dout() / g.in()}; });
constinit const OpDef kLog1p = floating("log1p", one<Opcode::log1p>,
    [](const GradContext& g) -> TensorList { return {g.dout() / (g.in() + 1.0)}; });
constinit const OpDef kTanh = activation(floating("tanh", one<Opcode::tanh>,
    [](const GradContext& g) -> TensorList { return {g.dout() * (1.0 - g.out() * g.out())}; }),
    [](const Attrs&) { return Epilogue::tanh; });
constinit const OpDef kSigmoid = activation(floating("sigmoid",
    [](Expander& e) { e.out(1.0 / (1.0 + unary(Opcode::exp, -e.in(0)))); },
    [](const GradContext& g) -> TensorList { return {g.dout() * (g.out() * (1.0 - g.out()))}; }),
    [](const Attrs&) { return Epilogue::sigmoid; });
constinit const OpDef kErf = floating("erf", one<Opcode::erf>,
    [](const GradContext& g) -> TensorList {
      return {g.dout() * (2.0 / std::sqrt(std::numbers::pi) * exp(-(g.in() * g.in())))};
    });
constinit const OpDef kSin = floating("sin", one<Opcode::sin>,
    [](const GradContext& g) -> TensorList { return {g.dout() * cos(g.in())}; });
constinit const OpDef kCos = floating("cos", one<Opcode::cos>,
    [](const GradContext& g) -> TensorList { return {-g.dout() * sin(g.in())}; });
// max(x, 0) + log1p(exp(-|x|)) does not overflow.
constinit const OpDef kSoftplus = floating("softplus",
    [](Expander& e) {
      const Scalar x = e.in(0);
      e.out(binary(Opcode::maximum, x, e.constant(0, x.dtype())) +
            unary(Opcode::log1p, unary(Opcode::exp, -unary(Opcode::abs, x))));
    },
    [](const GradContext& g) -> TensorList { return {g.dout() * sigmoid(g.in())}; });
constinit const OpDef kRelu = activation(number("relu",
    [](Expander& e) { e.out(binary(Opcode::maximum, e.in(0), e.constant(0, e.in(0).dtype()))); },
    [](const GradContext& g) -> TensorList { return {where(g.out() > 0.0, g.dout(), 0.0)}; }),
    [](const Attrs&) { return Epilogue::relu; });
constinit const OpDef kGelu = activation(floating("gelu", widened<gelu_of>, grad_gelu),
    [](const Attrs& attrs) { return attrs.as<GeluAttrs>().approximate ? Epilogue::gelu_tanh : Epilogue::gelu_erf; });

constinit const OpDef kLess = comparison<Opcode::less>("less");
constinit const OpDef kLessEqual = comparison<Opcode::less_equal>("less_equal");
constinit const OpDef kGreater = comparison<Opcode::greater>("greater");
constinit const OpDef kGreaterEqual = comparison<Opcode::greater_equal>("greater_equal");
constinit const OpDef kEqual = comparison<Opcode::equal>("equal");
constinit const OpDef kNotEqual = comparison<Opcode::not_equal>("not_equal");
constinit const OpDef kLogicalAnd = row("logical_and", 2, infer_logical,
    [](Expander& e) { e.out(binary(Opcode::logical_and, e.in(0), e.in(1))); }, nullptr);
constinit const OpDef kLogicalOr = row("logical_or", 2, infer_logical,
    [](Expander& e) { e.out(binary(Opcode::logical_or, e.in(0), e.in(1))); }, nullptr);
constinit const OpDef kLogicalNot = row("logical_not", 1, infer_logical, one<Opcode::logical_not>, nullptr);

constinit const OpDef kSelect = row("select", 3, infer_select,
    [](Expander& e) { e.out(select(e.in(0), e.in(1), e.in(2))); },
    [](const GradContext& g) -> TensorList {
      const Tensor da = g.needs(1) ? sum_to_shape(where(g.in(0), g.dout(), 0.0), g.in(1).shape()) : Tensor();
      const Tensor db = g.needs(2) ? sum_to_shape(where(g.in(0), 0.0, g.dout()), g.in(2).shape()) : Tensor();
      return {Tensor(), da, db};
    });
constinit const OpDef kCast = with_traits({.converts = true}, row("cast", 1,
    [](const InferContext& c) -> SpecList { return {{c.attrs<CastAttrs>().dtype, c.shape(0)}}; },
    [](Expander& e) { e.out(e.apply(Opcode::cast, e.attrs<CastAttrs>().dtype, e.in(0))); },
    [](const GradContext& g) -> TensorList {
      const DType source = g.in().dtype();
      if (!is_floating(source) || !is_floating(g.out().dtype())) return {Tensor()};
      return {cast(g.dout(), source)};
    }));

// clang-format on

namespace {
const bool registered = [] {
  for (const OpDef* op :
       {&kIdentity,     &kStopGradient, &kAdd,      &kSub,        &kMul,       &kDiv,        &kMaximum,
        &kMinimum,      &kPow,          &kMod,      &kNeg,        &kAbs,       &kSign,       &kFloor,
        &kCeil,         &kRound,        &kSquare,   &kSqrt,       &kRsqrt,     &kReciprocal, &kExp,
        &kExpm1,        &kLog,          &kLog1p,    &kTanh,       &kSigmoid,   &kErf,        &kSin,
        &kCos,          &kSoftplus,     &kRelu,     &kGelu,       &kLess,      &kLessEqual,  &kGreater,
        &kGreaterEqual, &kEqual,        &kNotEqual, &kLogicalAnd, &kLogicalOr, &kLogicalNot, &kSelect,
        &kCast})
    RegisterOp{*op};
  return true;
}();
}  // namespace
}  // namespace lockstep
