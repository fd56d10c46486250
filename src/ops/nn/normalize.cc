#include "ops/nn/normalize.h"

#include <utility>

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

SpecList infer_grad(const InferContext& c) {
  check_operands(c);
  check_weight(c, 1, "gamma");
  c.check(c.dtype(4) == c.dtype(0), ErrorCode::dtype_mismatch, "the gradient must have x's dtype, ",
          c.inputs[0], ", received ", c.inputs[4]);
  c.check(c.inputs[4] == c.inputs[0], ErrorCode::shape_mismatch, "the gradient must be like x, ", c.inputs[0],
          ", received ", c.inputs[4]);
  return {c.inputs[0], c.inputs[1], c.inputs[1]};
}

Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  Cost cost{.flops = 8 * c.shape(0).size()};
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : outputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  return cost;
}

TensorList grad(const GradContext& g) {
  const Tensor inputs[] = {g.in(0), g.in(1), g.out(1), g.out(2), g.dout()};
  return emit(kLayerNormGrad, inputs, g.attributes(), std::source_location::current());
}

Tensor row_mean(const Tensor& x) { return reduce_mean(x, {.axis = {-1}, .keepdims = true}); }

// With h the normalised x, r = rstd, a = dy gamma, m the mean over a row and P(v) = v - m(v) - h m(h v), the op is
// dx = r P(a), dgamma = sum(dy h), dbeta = sum(dy). P is symmetric, dh = r P(dx) and dr = -r^2 m(h dx), so for
// gradients w, u, v that arrive at the three results:
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

}  // namespace

constinit const OpDef kLayerNorm{
    .name = "layer_norm", .min_inputs = 3, .max_inputs = 3, .infer = infer, .grad = grad, .cost = cost};
constinit const OpDef kLayerNormGrad{.name = "layer_norm_grad",
                                     .min_inputs = 5,
                                     .max_inputs = 5,
                                     .infer = infer_grad,
                                     .grad = grad_grad,
                                     .cost = cost};

namespace {
const RegisterOp registered[] = {RegisterOp(kLayerNorm), RegisterOp(kLayerNormGrad)};
}

Tensor layer_norm(const TensorArg& x, const TensorArg& gamma, const TensorArg& beta,
                  LayerNormOptions options) {
  const int rank = x.tensor("layer_norm").rank();
  const int axis = normalize_axis(options.axis, rank, "layer_norm", x.where());
  const auto last = [&](const Tensor& input) {
    const Tensor inputs[] = {input, gamma.tensor(), beta.tensor()};
    return emit(kLayerNorm, inputs, LayerNormAttrs{options.epsilon}, x.where()).front();
  };
  if (axis == rank - 1) return last(x.tensor());
  Dims swapped;
  for (int i = 0; i < rank; ++i) swapped.push_back(i);
  std::swap(swapped[axis], swapped[rank - 1]);
  return transpose(last(transpose(x, swapped)), swapped);
}

}  // namespace lockstep
