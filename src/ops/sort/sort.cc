#include "ops/sort/sort.h"

#include <algorithm>
#include <cmath>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/sort.h"
#include "ops/array/lookup.h"

namespace lockstep {
namespace {

SpecList infer_sort(const InferContext& c) {
  const int64_t k = c.attrs<SortAttrs>().k;
  Shape shape = c.shape(0);
  c.check(c.dtype(0) != DType::boolean, ErrorCode::dtype_mismatch, "takes numbers, received ", c.inputs[0],
          "; cast() it first");
  c.check(shape.rank() > 0, ErrorCode::shape_mismatch, "takes a tensor of rank 1 or more, received a scalar");
  c.check(k >= 0 && k <= shape[-1], ErrorCode::invalid_argument, "there are no ", k,
          " elements in the last dimension of ", shape);
  c.check(shape[-1] <= INT32_MAX, ErrorCode::unsupported, "the last dimension of ", shape,
          " has more than 2^31 - 1 elements");
  shape[-1] = k;
  return {{c.dtype(0), shape}, {DType::int32, shape}};
}

Cost cost_sort(const InferContext& c, std::span<const TensorSpec> outputs) {
  const auto n = static_cast<double>(std::max<int64_t>(c.shape(0)[-1], 2));
  return {.flops = static_cast<int64_t>(static_cast<double>(c.shape(0).size()) * std::log2(n)),
          .bytes = static_cast<int64_t>(c.inputs[0].bytes() + outputs[0].bytes() + outputs[1].bytes())};
}

// Every gradient goes back to the place that its element came from.
TensorList grad_sort(const GradContext& g) {
  const Shape& shape = g.in().shape();
  const int64_t k = g.out().shape()[-1], rows = shape.drop_last(1).size();
  const Tensor sums =
      scatter_add_rows(reshape(g.dout(0), {rows, k, 1}), reshape(g.out(1), {rows, k}), shape[-1]);
  return {reshape(sums, shape)};
}

SpecList infer_searchsorted(const InferContext& c) {
  const Shape &sorted = c.shape(0), &values = c.shape(1);
  c.check(c.dtype(0) == c.dtype(1), ErrorCode::dtype_mismatch, "both lists must have one dtype, received ",
          c.inputs[0], " and ", c.inputs[1], "; cast() one of them");
  c.check(c.dtype(0) != DType::boolean, ErrorCode::dtype_mismatch, "takes numbers, received ", c.inputs[0]);
  c.check(sorted.rank() > 0 && sorted.rank() == values.rank() && sorted.drop_last(1) == values.drop_last(1),
          ErrorCode::shape_mismatch, "lists must agree in all dimensions but the last, received ", sorted,
          " and ", values);
  c.check(sorted[-1] <= INT32_MAX, ErrorCode::unsupported, "the last dimension of ", sorted,
          " has more than 2^31 - 1 elements");
  return {{DType::int32, values}};
}

TensorList sort_last(const char* name, const TensorArg& x, int64_t k, bool descending) {
  const Tensor inputs[] = {x.tensor(name)};
  return emit(kSort, inputs, SortAttrs{k, descending}, x.where());
}

// Along any axis: it goes to the end and back.
Tensor sort_along(const char* name, const TensorArg& x, const SortOptions& options, size_t output) {
  const int rank = x.tensor(name).rank();
  const int axis = normalize_axis(options.axis, rank, name, x.where());
  const Tensor moved = axis == rank - 1 ? x.tensor() : swapaxes(x, axis, -1);
  const Tensor sorted = sort_last(name, {moved, x.where()}, moved.shape()[-1],
                                  options.direction == SortDirection::descending)[output];
  return axis == rank - 1 ? sorted : swapaxes(sorted, axis, -1);
}

}  // namespace

constinit const OpDef kSort{.name = "sort", .infer = infer_sort, .grad = grad_sort, .cost = cost_sort};
constinit const OpDef kSearchsorted{
    .name = "searchsorted", .min_inputs = 2, .max_inputs = 2, .infer = infer_searchsorted};

namespace {
const RegisterOp registered[] = {RegisterOp(kSort), RegisterOp(kSearchsorted)};
}

Tensor sort(const TensorArg& x, const SortOptions& options) { return sort_along("sort", x, options, 0); }
Tensor argsort(const TensorArg& x, const SortOptions& options) {
  return sort_along("argsort", x, options, 1);
}

TopK top_k(const TensorArg& x, int64_t k) {
  const Shape& shape = x.tensor("top_k").shape();
  require(shape.rank() > 0 && k >= 0 && k <= shape[-1], ErrorCode::invalid_argument, x.where(),
          "top_k: there are no ", k, " elements in the last dimension of ", shape);
  const TensorList sorted = sort_last("top_k", x, k, true);
  return {sorted[0], sorted[1]};
}

Tensor in_top_k(const TensorArg& targets, const TensorArg& predictions, int64_t k) {
  require(k > 0, ErrorCode::invalid_argument, targets.where(), "in_top_k: k must be positive, received ", k);
  const Shape &classes = predictions.tensor("in_top_k").shape(), &batch = targets.tensor("in_top_k").shape();
  require(classes.rank() == 2 && batch.rank() == 1 && batch[0] == classes[0], ErrorCode::shape_mismatch,
          targets.where(), "in_top_k: takes targets [batch] and predictions [batch, classes], received ",
          batch, " and ", classes);
  const Tensor chosen = expand_dims(
      gather_labels({predictions.tensor(), targets.where()}, {targets.tensor(), targets.where()}), -1);
  const Tensor larger = count_nonzero(predictions.tensor() > chosen, {.axis = {-1}});
  return logical_and(larger < k, is_finite(squeeze(chosen, {-1})));
}

Tensor searchsorted(const TensorArg& sorted, const TensorArg& values, SearchSide side) {
  return emit_one(kSearchsorted, {sorted.tensor(), values.tensor()},
                  SearchsortedAttrs{side == SearchSide::right}, sorted.where());
}

}  // namespace lockstep
