#include "ops/reduce/cumulative.h"

#include "graph/emit.h"
#include "lockstep/ops/array.h"
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

// The products that an element is a factor of, without it: by division where it is not 0. What stands behind the
// first 0 of a line is a factor of zeros alone; for that 0 itself the products are made anew, without it.
TensorList grad_cumprod(const GradContext& g) {
  const auto& attrs = g.attrs<CumulativeAttrs>();
  const Tensor &x = g.in(), zero = equal(x, 0.0);
  const auto options = [&](bool exclusive) {
    return CumulativeOptions{static_cast<int>(attrs.axis), exclusive, attrs.reverse};
  };
  const Tensor first_zero = logical_and(zero, equal(cumsum(cast(zero, DType::int32), options(false)), 1));
  const Tensor without = cumprod(where(first_zero, 1.0, x), options(attrs.exclusive));
  return {where(first_zero, backwards(attrs, g.dout() * without),
                where(zero, 0.0, backwards(attrs, g.dout() * g.out()) / where(zero, 1.0, x)))};
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
