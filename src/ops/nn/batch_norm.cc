#include "ops/nn/batch_norm.h"

#include <algorithm>

#include "graph/emit.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

DType wide(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

void check_input(const InferContext& c, int input, const TensorSpec& expected, const char* name) {
  const TensorSpec& received = c.inputs[static_cast<size_t>(input)];
  c.check(received.dtype == expected.dtype, ErrorCode::dtype_mismatch, name, " must be ", expected,
          ", received ", received, "; cast() it first");
  c.check(received == expected, ErrorCode::shape_mismatch, name, " must be ", expected, ", received ",
          received);
}

TensorSpec checked_columns(const InferContext& c) {
  const Shape& x = c.shape(0);
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "takes floating-point tensors, received ",
          c.inputs[0], "; cast() it first");
  c.check(x.rank() >= 1 && x[-1] > 0, ErrorCode::shape_mismatch,
          "takes (..., channels) with one or more channels, received ", x);
  return {c.dtype(0), {x[-1]}};
}

SpecList infer(const InferContext& c) {
  const TensorSpec columns = checked_columns(c);
  check_input(c, 1, columns, "gamma");
  check_input(c, 2, columns, "beta");
  const TensorSpec stats{wide(columns.dtype), columns.shape};
  return {c.inputs[0], stats, stats};
}

SpecList infer_grad(const InferContext& c) {
  const TensorSpec columns = checked_columns(c);
  check_input(c, 1, columns, "gamma");
  check_input(c, 2, {wide(columns.dtype), columns.shape}, "mean");
  check_input(c, 3, {wide(columns.dtype), columns.shape}, "variance");
  check_input(c, 4, c.inputs[0], "the gradient");
  return {c.inputs[0], columns, columns};
}

SpecList infer_moments(const InferContext& c) {
  const TensorSpec columns = checked_columns(c);
  const TensorSpec stats{wide(columns.dtype), columns.shape};
  return {stats, stats};
}

SpecList infer_sums(const InferContext& c) {
  const TensorSpec columns = checked_columns(c);
  const TensorSpec stats{wide(columns.dtype), columns.shape};
  check_input(c, 1, stats, "mean");
  check_input(c, 2, c.inputs[0], "the gradient");
  using Dy = BatchNormSumsAttrs::Dy;
  const Dy dy = c.attrs<BatchNormSumsAttrs>().dy;
  const size_t inputs = dy == Dy::as_is ? 3 : 5;
  c.check(c.inputs.size() == inputs, ErrorCode::invalid_argument, "takes ", inputs,
          " inputs with these attributes, received ", c.inputs.size());
  if (dy == Dy::masked) {
    check_input(c, 3, stats, "the factor");
    check_input(c, 4, stats, "the shift");
  }
  if (dy == Dy::joined) {
    check_input(c, 3, c.inputs[0], "the second gradient");
    check_input(c, 4, c.inputs[0], "y");
    return {stats, stats, c.inputs[0]};
  }
  return {stats, stats};
}

Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  Cost cost{.flops = 8 * c.shape(0).size()};
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : outputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  return cost;
}

Tensor column_mean(const Tensor& x) {
  std::vector<int64_t> axes;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) axes.push_back(axis);
  return axes.empty() ? x : reduce_mean(x, {.axis = axes});
}

double share_of_row(const Tensor& x) {
  return static_cast<double>(x.shape()[-1]) / static_cast<double>(std::max<int64_t>(1, x.size()));
}

// What mean(x) and mean((x - mean)^2) change by.
Tensor moments_gradient(const Tensor& input, const Tensor& mean, const Tensor& dmean,
                        const Tensor& dvariance) {
  const Tensor x = cast(input, mean.dtype());
  const double share = share_of_row(x);
  return cast(dmean * share + dvariance * (2 * share) * (x - mean), input.dtype());
}

// Gradients that arrive at the statistics: mean(x) and mean((x - mean)^2).
TensorList grad(const GradContext& g) {
  const Tensor inputs[] = {g.in(0), g.in(1), g.out(1), g.out(2), g.dout()};
  TensorList made = emit(kBatchNormGrad, inputs, g.attributes(), std::source_location::current());
  if (g.has_dout(1) || g.has_dout(2)) {
    made[0] = made[0] + moments_gradient(g.in(0), g.out(1), g.dout(1), g.dout(2));
  }
  return made;
}

// With h the normalised x, r = 1 / sqrt(variance + epsilon), a = dy gamma, m the mean of a column and
// P(v) = v - m(v) - h m(h v): as in layer normalisation (normalize.cc), with columns for rows.
TensorList grad_grad(const GradContext& g) {
  const Tensor &x = g.in(0), &gamma = g.in(1), &dy = g.in(4);
  const auto m = column_mean;
  const Tensor centered = x - m(x);
  const Tensor r = rsqrt(m(square(centered)) + g.attrs<BatchNormAttrs>().epsilon);
  const Tensor h = centered * r;
  const auto project = [&](const Tensor& v) { return v - m(v) - h * m(h * v); };
  const Tensor w = g.dout(0), u = g.dout(1), v = g.dout(2);
  const Tensor a = dy * gamma;
  const Tensor pw = project(w);
  Tensor dx, dgamma, ddy;
  if (g.needs(0)) {
    const Tensor ha = m(h * a), hw = m(h * w);
    const Tensor s = m(w * a) - m(w) * m(a) - hw * ha;
    dx = r * project(u * dy) - square(r) * (s * h + project(w * ha + a * hw));
  }
  if (g.needs(1)) dgamma = sum_to_shape(r * dy * pw, gamma.shape());
  if (g.needs(4)) ddy = r * gamma * pw + u * h + v;
  return {dx, dgamma, Tensor(), Tensor(), ddy};
}

TensorList grad_moments(const GradContext& g) {
  return {moments_gradient(g.in(0), g.out(0), g.dout(0), g.dout(1))};
}

// For gradients s and p that arrive at the two sums: p (dy - mean(dy)) to x, because the mean is x's own, and
// s + (x - mean) p to dy. The means are made again, so that this can be differentiated in turn.
TensorList grad_sums(const GradContext& g) {
  const DType type = g.in(1).dtype();
  const Tensor x = cast(g.in(0), type), dy = cast(g.in(2), type);
  const Tensor s = g.dout(0), p = g.dout(1);
  Tensor dx, ddy;
  if (g.needs(0)) dx = cast((dy - column_mean(dy)) * p, g.in(0).dtype());
  if (g.needs(2)) ddy = cast(s + (x - column_mean(x)) * p, g.in(2).dtype());
  return {dx, Tensor(), ddy};
}

}  // namespace

constinit const OpDef kBatchMoments{.name = "batch_moments",
                                    .min_inputs = 1,
                                    .max_inputs = 1,
                                    .infer = infer_moments,
                                    .grad = grad_moments,
                                    .cost = cost};
constinit const OpDef kBatchNormSums{.name = "batch_norm_sums",
                                     .min_inputs = 3,
                                     .max_inputs = 5,
                                     .infer = infer_sums,
                                     .grad = grad_sums,
                                     .cost = cost};
constinit const OpDef kBatchNorm{
    .name = "batch_norm", .min_inputs = 3, .max_inputs = 3, .infer = infer, .grad = grad, .cost = cost};
constinit const OpDef kBatchNormGrad{.name = "batch_norm_grad",
                                     .min_inputs = 5,
                                     .max_inputs = 5,
                                     .infer = infer_grad,
                                     .grad = grad_grad,
                                     .cost = cost};

namespace {
const RegisterOp registered[] = {RegisterOp(kBatchNorm), RegisterOp(kBatchNormGrad),
                                 RegisterOp(kBatchMoments), RegisterOp(kBatchNormSums)};
}

BatchNormResult fused_batch_norm(const TensorArg& x, const TensorArg& gamma, const TensorArg& beta,
                                 double epsilon) {
  const char* op = "batch_norm";
  const Tensor inputs[] = {x.tensor(op), gamma.tensor(op), beta.tensor(op)};
  TensorList made = emit(kBatchNorm, inputs, BatchNormAttrs{epsilon}, x.where());
  return {made[0], made[1], made[2]};
}

Moments batch_moments(const TensorArg& x) {
  const Tensor inputs[] = {x.tensor("batch_moments")};
  TensorList made = emit(kBatchMoments, inputs, {}, x.where());
  return {made[0], made[1]};
}

BatchNormSums batch_norm_sums(const TensorArg& x, const TensorArg& mean, const TensorArg& dy) {
  const char* op = "batch_norm_sums";
  const Tensor inputs[] = {x.tensor(op), mean.tensor(op), dy.tensor(op)};
  TensorList made = emit(kBatchNormSums, inputs, BatchNormSumsAttrs{}, x.where());
  return {made[0], made[1]};
}

}  // namespace lockstep
