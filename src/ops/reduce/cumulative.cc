#include "ops/reduce/cumulative.h"

#include "graph/emit.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

SpecList infer(const InferContext& c) {
  c.check(c.dtype(0) != DType::boolean, ErrorCode::dtype_mismatch, "takes numbers, received ", c.inputs[0],
          "; cast() it first");
  c.check(c.attrs<CumulativeAttrs>().axis < c.shape(0).rank(), ErrorCode::shape_mismatch, "there is no axis ",
          c.attrs<CumulativeAttrs>().axis, " in ", c.shape(0));
  return {c.inputs[0]};
}

Cost cost(const InferContext& c, std::span<const TensorSpec>) {
  return {.flops = c.shape(0).size(), .bytes = 2 * static_cast<int64_t>(c.inputs[0].bytes())};
}

Tensor backwards(const CumulativeAttrs& attrs, const Tensor& x) {
  return cumsum(
      x, {.axis = static_cast<int>(attrs.axis), .exclusive = attrs.exclusive, .reverse = !attrs.reverse});
}

TensorList grad_cumsum(const GradContext& g) { return {backwards(g.attrs<CumulativeAttrs>(), g.dout())}; }

// Products of all other elements by division, but for the first element that is 0, with 1 in its place. What
// stands behind it, the next 0 too, is multiplied by it.
TensorList grad_cumprod(const GradContext& g) {
  const auto& attrs = g.attrs<CumulativeAttrs>();
  const int axis = static_cast<int>(attrs.axis);
  const Tensor& x = g.in();
  const Tensor zero = equal(x, 0.0), one = ones_like(x);
  const Tensor before =
      cumsum(cast(zero, x.dtype()), {.axis = axis, .exclusive = true, .reverse = attrs.reverse});
  const Tensor first = logical_and(zero, equal(before, 0.0));
  const Tensor others =
      cumprod(where(first, one, x), {.axis = axis, .exclusive = attrs.exclusive, .reverse = attrs.reverse});
  const Tensor divided = backwards(attrs, g.dout() * g.out()) / where(zero, one, x);
  return {where(first, backwards(attrs, g.dout() * others), where(zero, zeros_like(x), divided))};
}

Tensor cumulative(const OpDef& op, const char* name, const TensorArg& x, const CumulativeOptions& options) {
  const int axis = normalize_axis(options.axis, x.tensor(name).rank(), name, x.where());
  return emit_one(op, {x.tensor()}, CumulativeAttrs{axis, options.exclusive, options.reverse}, x.where());
}

}  // namespace

constinit const OpDef kCumsum{.name = "cumsum", .infer = infer, .grad = grad_cumsum, .cost = cost};
constinit const OpDef kCumprod{.name = "cumprod", .infer = infer, .grad = grad_cumprod, .cost = cost};

namespace {
const RegisterOp registered[] = {RegisterOp(kCumsum), RegisterOp(kCumprod)};
}

Tensor cumsum(const TensorArg& x, const CumulativeOptions& options) {
  return cumulative(kCumsum, "cumsum", x, options);
}
Tensor cumprod(const TensorArg& x, const CumulativeOptions& options) {
  return cumulative(kCumprod, "cumprod", x, options);
}

}  // namespace lockstep
