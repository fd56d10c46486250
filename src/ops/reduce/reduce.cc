#include "ops/reduce/reduce.h"

#include <algorithm>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

SpecList infer_reduce(const InferContext& c) {
  const auto& attrs = c.attrs<ReduceAttrs>();
  c.check(c.dtype(0) != DType::boolean, ErrorCode::dtype_mismatch, "takes numbers, received ", c.inputs[0],
          "; cast() it first");
  Shape shape;
  for (int i = 0; i < c.shape(0).rank(); ++i) {
    const bool reduced = std::count(attrs.axes.begin(), attrs.axes.end(), i) > 0;
    if (!reduced)
      shape.push_back(c.shape(0)[i]);
    else if (attrs.keepdims)
      shape.push_back(1);
  }
  return {{c.dtype(0), shape}};
}

SpecList infer_extremum(const InferContext& c) {
  const auto& attrs = c.attrs<ReduceAttrs>();
  for (const int64_t axis : attrs.axes)
    c.check(c.shape(0)[static_cast<int>(axis)] > 0, ErrorCode::shape_mismatch, "dimension ", axis, " of ",
            c.shape(0), " is empty: it has no extremum");
  return infer_reduce(c);
}

SpecList infer_argmax(const InferContext& c) {
  const int axis = static_cast<int>(c.attrs<ArgmaxAttrs>().axis);
  c.check(c.dtype(0) != DType::boolean, ErrorCode::dtype_mismatch, "takes numbers, received ", c.inputs[0],
          "; cast() it first");
  c.check(c.shape(0)[axis] > 0, ErrorCode::shape_mismatch, "dimension ", axis, " of ", c.shape(0),
          " is empty");
  Shape shape = c.shape(0);
  shape.erase(axis);
  return {{DType::int64, shape}};
}

Cost cost_reduce(const InferContext& c, std::span<const TensorSpec> outputs) {
  return {.flops = c.shape(0).size(),
          .bytes = static_cast<int64_t>(c.inputs[0].bytes() + outputs[0].bytes())};
}

// The input's shape with the reduced axes as 1, so that what was reduced broadcasts back.
Shape kept_shape(const Shape& shape, const Dims& axes) {
  Shape kept = shape;
  for (const int64_t axis : axes) kept[static_cast<int>(axis)] = 1;
  return kept;
}

TensorList grad_sum(const GradContext& g) {
  const Shape kept = kept_shape(g.in().shape(), g.attrs<ReduceAttrs>().axes);
  return {broadcast_to(reshape(g.dout(), kept), g.in().shape())};
}

// Elements that equal the extremum share its gradient.
TensorList grad_extremum(const GradContext& g) {
  const auto& attrs = g.attrs<ReduceAttrs>();
  const Shape kept = kept_shape(g.in().shape(), attrs.axes);
  const Tensor hit = cast(equal(g.in(), reshape(g.out(), kept)), g.in().dtype());
  const Tensor hits = reduce_sum(hit, {.axis = {attrs.axes.begin(), attrs.axes.end()}, .keepdims = true});
  return {hit * (reshape(g.dout(), kept) / hits)};
}

// Products of all other elements: by division, but for an element that is 0, whose others are not unless there
// is another 0 among them.
TensorList grad_prod(const GradContext& g) {
  const auto& attrs = g.attrs<ReduceAttrs>();
  const ReduceOptions kept{.axis = {attrs.axes.begin(), attrs.axes.end()}, .keepdims = true};
  const Shape shape = kept_shape(g.in().shape(), attrs.axes);
  const Tensor& x = g.in();
  const Tensor zero = equal(x, 0.0), none = zeros_like(x);
  const Tensor alone = equal(reduce_sum(cast(zero, x.dtype()), kept), 1.0);
  const Tensor others = reduce_prod(where(zero, ones_like(x), x), kept);
  const Tensor dout = reshape(g.dout(), shape);
  return {where(zero, where(alone, dout * others, none),
                dout * reshape(g.out(), shape) / where(zero, ones_like(x), x))};
}

SumOverStack sum_over_stack(const Attrs&, std::span<const TensorSpec>) {
  return [](const Attrs& attrs, std::span<const TensorArg> stacks, const Shape& result) {
    ReduceOptions options{.axis = {0}};
    for (const int64_t axis : attrs.as<ReduceAttrs>().axes) options.axis.push_back(axis + 1);
    return reshape(reduce_sum(stacks[0], options), result);
  };
}

constexpr OpDef reduction(std::string_view name, SpecList (*infer)(const InferContext&),
                          TensorList (*grad)(const GradContext&),
                          SumOverStack (*sum_over_stack)(const Attrs&,
                                                         std::span<const TensorSpec>) = nullptr) {
  return {.name = name, .infer = infer, .grad = grad, .cost = cost_reduce, .sum_over_stack = sum_over_stack};
}

}  // namespace

constinit const OpDef kReduceSum = reduction("reduce_sum", infer_reduce, grad_sum, sum_over_stack);
constinit const OpDef kReduceMax = reduction("reduce_max", infer_extremum, grad_extremum);
constinit const OpDef kReduceMin = reduction("reduce_min", infer_extremum, grad_extremum);
constinit const OpDef kReduceProd = reduction("reduce_prod", infer_reduce, grad_prod);
constinit const OpDef kArgmax = reduction("argmax", infer_argmax, nullptr);

namespace {
const RegisterOp registered[] = {RegisterOp(kReduceSum), RegisterOp(kReduceMax), RegisterOp(kReduceMin),
                                 RegisterOp(kReduceProd), RegisterOp(kArgmax)};
}  // namespace

Tensor reduce(const OpDef& op, const char* name, const TensorArg& x, const ReduceOptions& options) {
  const int rank = x.tensor(name).rank();
  std::vector<int64_t> axes;
  for (const int64_t axis : options.axis) axes.push_back(normalize_axis(axis, rank, name, x.where()));
  if (options.axis.empty())
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  std::sort(axes.begin(), axes.end());
  require(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), ErrorCode::invalid_argument, x.where(),
          name, ": an axis was given twice");
  return emit_one(op, {x.tensor()}, ReduceAttrs{Dims(std::span<const int64_t>(axes)), options.keepdims},
                  x.where());
}

Tensor reduce_sum(const TensorArg& x, const ReduceOptions& options) {
  return reduce(kReduceSum, "reduce_sum", x, options);
}
Tensor reduce_max(const TensorArg& x, const ReduceOptions& options) {
  return reduce(kReduceMax, "reduce_max", x, options);
}
Tensor reduce_min(const TensorArg& x, const ReduceOptions& options) {
  return reduce(kReduceMin, "reduce_min", x, options);
}
Tensor reduce_prod(const TensorArg& x, const ReduceOptions& options) {
  return reduce(kReduceProd, "reduce_prod", x, options);
}

Tensor reduce_mean(const TensorArg& x, const ReduceOptions& options) {
  require(is_floating(x.tensor("reduce_mean").dtype()), ErrorCode::dtype_mismatch, x.where(),
          "reduce_mean: takes floating-point tensors, received ", x.tensor().spec(), "; cast() it first");
  const Tensor sum = reduce(kReduceSum, "reduce_mean", x, options);
  const double count =
      static_cast<double>(x.tensor().size()) / static_cast<double>(std::max<int64_t>(sum.size(), 1));
  return sum * (1.0 / count);
}

Tensor argmax(const TensorArg& x, int axis) {
  return emit_one(kArgmax, {x.tensor()},
                  ArgmaxAttrs{normalize_axis(axis, x.tensor("argmax").rank(), "argmax", x.where())},
                  x.where());
}

}  // namespace lockstep
