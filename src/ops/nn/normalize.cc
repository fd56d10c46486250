#include "ops/nn/normalize.h"

#include <vector>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

void check_operands(const InferContext& c) {
  const Shape& x = c.shape(0);
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "takes floating-point tensors, received ",
          c.inputs[0], "; cast() it first");
  c.check(x.rank() >= 1 && x[-1] > 0, ErrorCode::shape_mismatch,
          "the normalised dimension needs one or more elements, received ", x);
}

void check_weight(const InferContext& c, int input, const char* name) {
  const TensorSpec expected{c.dtype(0), {c.shape(0)[-1]}};
  c.check(c.dtype(input) == expected.dtype, ErrorCode::dtype_mismatch, name, " must be ", expected,
          ", received ", c.inputs[static_cast<size_t>(input)], "; cast() it first");
  c.check(c.inputs[static_cast<size_t>(input)] == expected, ErrorCode::shape_mismatch, name, " must be ",
          expected, ", one element for each of the normalised dimension of ", c.inputs[0], ", received ",
          c.inputs[static_cast<size_t>(input)]);
}

SpecList infer(const InferContext& c) {
  check_operands(c);
  check_weight(c, 1, "gamma");
  check_weight(c, 2, "beta");
  const TensorSpec stats{c.dtype(0) == DType::float64 ? DType::float64 : DType::float32,
                         c.shape(0).drop_last(1)};
  return {c.inputs[0], stats, stats};
}

void check_gradient(const InferContext& c, int input) {
  const TensorSpec& gradient = c.inputs[static_cast<size_t>(input)];
  c.check(gradient.dtype == c.dtype(0), ErrorCode::dtype_mismatch, "the gradient must have x's dtype, ",
          c.inputs[0], ", received ", gradient);
  c.check(gradient == c.inputs[0], ErrorCode::shape_mismatch, "the gradient must be like x, ", c.inputs[0],
          ", received ", gradient);
}

// Behind `inputs` others.
void check_addend(const InferContext& c, size_t inputs) {
  const bool addend = c.attrs<LayerNormAttrs>().addend;
  c.check(c.inputs.size() == inputs + (addend ? 1 : 0), ErrorCode::invalid_argument, "takes ",
          inputs + (addend ? 1 : 0), " inputs with these attributes, received ", c.inputs.size());
  c.check(!addend || c.inputs.back() == c.inputs[0], ErrorCode::shape_mismatch,
          "what is added must be like x, ", c.inputs[0], ", received ", c.inputs.back());
}

SpecList infer_grad(const InferContext& c) {
  check_operands(c);
  check_weight(c, 1, "gamma");
  check_gradient(c, 4);
  check_addend(c, 5);
  return {c.inputs[0], c.inputs[1], c.inputs[1]};
}

SpecList infer_rms(const InferContext& c) {
  check_operands(c);
  check_weight(c, 1, "gamma");
  return {c.inputs[0],
          {c.dtype(0) == DType::float64 ? DType::float64 : DType::float32, c.shape(0).drop_last(1)}};
}

SpecList infer_rms_grad(const InferContext& c) {
  check_operands(c);
  check_weight(c, 1, "gamma");
  check_gradient(c, 3);
  check_addend(c, 4);
  return {c.inputs[0], c.inputs[1]};
}

Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  Cost cost{.flops = 8 * c.shape(0).size()};
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : outputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  return cost;
}

std::optional<Attrs> with_addend(const Attrs& attrs) {
  auto changed = attrs.as<LayerNormAttrs>();
  if (changed.addend) return std::nullopt;
  changed.addend = true;
  return changed;
}

TensorList grad(const GradContext& g) {
  const Tensor inputs[] = {g.in(0), g.in(1), g.out(1), g.out(2), g.dout()};
  return emit(kLayerNormGrad, inputs, g.attributes(), std::source_location::current());
}

Tensor row_mean(const Tensor& x) { return reduce_mean(x, {.axis = {-1}, .keepdims = true}); }

// With h the normalised x, r = rstd, a = dy gamma, m the mean over a row and P(v) = v - m(v) - h m(h v), the
// op is dx = r P(a), dgamma = sum(dy h), dbeta = sum(dy). P is symmetric, dh = r P(dx) and dr = -r^2 m(h dx),
// so for gradients w, u, v that arrive at the three results:
//   to dy:     r gamma P(w) + u h + v
//   to gamma:  sum(r dy P(w))
//   to x:      -r^2 (s h + P(w m(h a) + a m(h w))) + r P(u dy),  s = m(w a) - m(w) m(a) - m(h w) m(h a)
// mean and rstd are made again from x, so that this can be differentiated in turn.
TensorList grad_grad(const GradContext& g) {
  const Tensor &x = g.in(0), &gamma = g.in(1), &dy = g.in(4);
  const Tensor centered = x - row_mean(x);
  const Tensor r = rsqrt(row_mean(square(centered)) + g.attrs<LayerNormAttrs>().epsilon);
  const Tensor h = centered * r;
  const auto project = [&](const Tensor& v) { return v - row_mean(v) - h * row_mean(h * v); };
  const Tensor w = g.dout(0), u = g.dout(1), v = g.dout(2);
  const Tensor a = dy * gamma;
  const Tensor pw = project(w);
  Tensor dx, dgamma, ddy;
  if (g.needs(0)) {
    const Tensor ha = row_mean(h * a), hw = row_mean(h * w);
    const Tensor s = row_mean(w * a) - row_mean(w) * row_mean(a) - hw * ha;
    dx = r * project(u * dy) - square(r) * (s * h + project(w * ha + a * hw));
  }
  if (g.needs(1)) dgamma = sum_to_shape(r * dy * pw, gamma.shape());
  if (g.needs(4)) ddy = r * gamma * pw + u * h + v;
  return {dx, dgamma, Tensor(), Tensor(), ddy};
}

TensorList grad_rms(const GradContext& g) {
  const Tensor inputs[] = {g.in(0), g.in(1), g.out(1), g.dout()};
  return emit(kRmsNormGrad, inputs, g.attributes(), std::source_location::current());
}

// The same with P(v) = v - h m(h v) and r of the mean of squares:
//   to dy: r gamma P(w) + u h,  to gamma: sum(r dy P(w)),
//   to x:  -r^2 (s h + P(w m(h a) + a m(h w))) + r P(u dy),  s = m(w a) - m(h w) m(h a).
TensorList grad_rms_grad(const GradContext& g) {
  const Tensor &x = g.in(0), &gamma = g.in(1), &dy = g.in(3);
  const Tensor r = rsqrt(row_mean(square(x)) + g.attrs<LayerNormAttrs>().epsilon);
  const Tensor h = x * r;
  const auto project = [&](const Tensor& v) { return v - h * row_mean(h * v); };
  const Tensor w = g.dout(0), u = g.dout(1);
  const Tensor a = dy * gamma;
  const Tensor pw = project(w);
  Tensor dx, dgamma, ddy;
  if (g.needs(0)) {
    const Tensor ha = row_mean(h * a), hw = row_mean(h * w);
    const Tensor s = row_mean(w * a) - hw * ha;
    dx = r * project(u * dy) - square(r) * (s * h + project(w * ha + a * hw));
  }
  if (g.needs(1)) dgamma = sum_to_shape(r * dy * pw, gamma.shape());
  if (g.needs(3)) ddy = r * gamma * pw + u * h;
  return {dx, dgamma, Tensor(), ddy};
}

}  // namespace

constinit const OpDef kLayerNorm{
    .name = "layer_norm", .min_inputs = 3, .max_inputs = 3, .infer = infer, .grad = grad, .cost = cost};
constinit const OpDef kLayerNormGrad{.name = "layer_norm_grad",
                                     .min_inputs = 5,
                                     .max_inputs = 6,
                                     .infer = infer_grad,
                                     .grad = grad_grad,
                                     .cost = cost,
                                     .with_addend = with_addend};

constinit const OpDef kRmsNorm{
    .name = "rms_norm", .min_inputs = 2, .max_inputs = 2, .infer = infer_rms, .grad = grad_rms, .cost = cost};
constinit const OpDef kRmsNormGrad{.name = "rms_norm_grad",
                                   .min_inputs = 4,
                                   .max_inputs = 5,
                                   .infer = infer_rms_grad,
                                   .grad = grad_rms_grad,
                                   .cost = cost,
                                   .with_addend = with_addend};

namespace {

const RegisterOp registered[] = {RegisterOp(kLayerNorm), RegisterOp(kLayerNormGrad), RegisterOp(kRmsNorm),
                                 RegisterOp(kRmsNormGrad)};

// f(x as rows of the normalised dimensions) in x's shape again. These dimensions are made the last ones, and
// then one.
template <class F>
Tensor over_axes(const char* op, const TensorArg& x, const Dims& axes, F f) {
  const Shape& shape = x.tensor(op).shape();
  const int rank = shape.rank();
  require(!axes.empty(), ErrorCode::invalid_argument, x.where(), op, ": no axis was given");
  std::vector<bool> normalised(static_cast<size_t>(rank), false);
  int64_t n = 1;
  for (const int64_t given : axes) {
    const int axis = normalize_axis(given, rank, op, x.where());
    require(!normalised[static_cast<size_t>(axis)], ErrorCode::invalid_argument, x.where(), op, ": axis ",
            given, " is given twice");
    normalised[static_cast<size_t>(axis)] = true;
    n *= shape[axis];
  }
  Dims order;
  for (const bool last : {false, true})
    for (int axis = 0; axis < rank; ++axis)
      if (normalised[static_cast<size_t>(axis)] == last) order.push_back(axis);
  Dims back = Dims::filled(rank, 0);
  bool moved = false;
  for (int i = 0; i < rank; ++i) back[static_cast<int>(order[i])] = i, moved = moved || order[i] != i;
  Tensor rows = moved ? transpose(x, order) : x.tensor();
  const Shape ordered = rows.shape();
  const bool several = axes.rank() > 1;
  if (several) {
    Shape flat = ordered.drop_last(axes.rank());
    flat.push_back(n);
    rows = reshape(TensorArg(rows, x.where()), flat);
  }
  Tensor y = f(rows);
  if (several) y = reshape(y, ordered);
  return moved ? transpose(y, back) : y;
}

// What 16-bit floats are computed in, and back.
Tensor widened(const TensorArg& x) {
  return size_of(x.tensor().dtype()) == 2 ? cast(x, DType::float32) : x.tensor();
}
Tensor narrowed(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

// gamma or beta, one element for each of the normalised ones, as one dimension.
Tensor flat(const TensorArg& weight, const char* op, const Dims& axes) {
  const Tensor& tensor = weight.tensor(op);
  return axes.rank() > 1 && tensor.rank() > 1 ? reshape(weight, {tensor.size()}) : tensor;
}

}  // namespace

Tensor layer_norm(const TensorArg& x, const TensorArg& gamma, const TensorArg& beta,
                  const LayerNormOptions& options) {
  return over_axes("layer_norm", x, options.axis, [&](const Tensor& rows) {
    const Tensor inputs[] = {rows, flat(gamma, "layer_norm", options.axis),
                             flat(beta, "layer_norm", options.axis)};
    return emit(kLayerNorm, inputs, LayerNormAttrs{options.epsilon}, x.where()).front();
  });
}

Tensor rms_norm(const TensorArg& x, const TensorArg& gamma, const RmsNormOptions& options) {
  return over_axes("rms_norm", x, options.axis, [&](const Tensor& rows) {
    const Tensor inputs[] = {rows, flat(gamma, "rms_norm", options.axis)};
    return emit(kRmsNorm, inputs, LayerNormAttrs{options.epsilon}, x.where()).front();
  });
}

Moments moments(const TensorArg& x, const ReduceOptions& options) {
  const DType dtype = x.tensor("moments").dtype();
  const Tensor wide = widened(x);
  const Tensor mean = reduce_mean(TensorArg(wide, x.where()), {.axis = options.axis, .keepdims = true});
  const Tensor variance = reduce_mean(square(wide - mean), options);
  return {narrowed(options.keepdims ? mean : reshape(mean, variance.shape()), dtype),
          narrowed(variance, dtype)};
}

Tensor batch_normalization(const TensorArg& x, const TensorArg& mean, const TensorArg& variance,
                           const BatchNormOptions& options) {
  const Tensor& input = x.tensor("batch_normalization");
  const int axis = normalize_axis(options.axis, input.rank(), "batch_normalization", x.where());
  const int64_t n = input.shape()[axis];
  Shape along = Dims::filled(input.rank(), 1);
  along[axis] = n;
  const auto spread = [&](const Tensor& weight, const char* name) {
    require(weight.shape() == Shape{n}, ErrorCode::shape_mismatch, x.where(), "batch_normalization: ", name,
            " must have one element for each of dimension ", axis, " of ", input.shape(), ", received ",
            weight.shape());
    return axis == input.rank() - 1 ? weight : reshape(weight, along);
  };
  Tensor scale = rsqrt(variance.tensor("batch_normalization") + options.epsilon);
  if (options.gamma.defined()) scale = scale * options.gamma;
  Tensor y =
      (input - spread(mean.tensor("batch_normalization"), "mean")) * spread(scale, "variance and gamma");
  if (options.beta.defined()) y = y + spread(options.beta, "beta");
  return y;
}

Tensor group_norm(const TensorArg& x, const TensorArg& gamma, const TensorArg& beta,
                  const GroupNormOptions& options) {
  const Shape& shape = x.tensor("group_norm").shape();
  const int64_t channels = shape.rank() >= 2 ? shape[-1] : 0;
  const int64_t groups = options.groups == -1 ? channels : options.groups;
  require(channels > 0 && groups >= 1 && channels % groups == 0, ErrorCode::shape_mismatch, x.where(),
          "group_norm: the groups must divide the channels of (batch, ..., channels), received ",
          options.groups, " groups and ", shape);
  const Tensor grouped =
      reshape(TensorArg(widened(x), x.where()),
              {shape[0], shape[0] > 0 ? shape.size() / shape[0] / channels : 0, groups, channels / groups});
  const Moments m = moments(grouped, {.axis = {1, 3}, .keepdims = true});
  const Tensor h = (grouped - m.mean) * rsqrt(m.variance + options.epsilon);
  gamma.tensor("group_norm"), beta.tensor("group_norm");
  return narrowed(reshape(h, shape) * widened(gamma) + widened(beta), x.tensor().dtype());
}

Tensor l2_normalize(const TensorArg& x, const Dims& axis, double epsilon) {
  const Tensor& input = x.tensor("l2_normalize");
  const Tensor squares =
      reduce_sum(TensorArg(square(x), x.where()), {.axis = {axis.begin(), axis.end()}, .keepdims = true});
  return input * rsqrt(maximum(squares, epsilon));
}

}  // namespace lockstep
