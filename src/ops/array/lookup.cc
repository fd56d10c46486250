#include "ops/array/lookup.h"

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "ops/array/range.h"

namespace lockstep {
namespace {

void check_indices(const InferContext& c, int input) {
  c.check(c.dtype(input) == DType::int32 || c.dtype(input) == DType::int64, ErrorCode::dtype_mismatch,
          "indices must be int32 or int64, received ", c.inputs[static_cast<size_t>(input)], "; cast() them");
}

SpecList infer_gather(const InferContext& c) {
  const auto axis = static_cast<int>(c.attrs<GatherAttrs>().axis);
  const auto batch_dims = static_cast<int>(c.attrs<GatherAttrs>().batch_dims);
  const Shape &table = c.shape(0), &indices = c.shape(1);
  check_indices(c, 1);
  c.check(axis < table.rank(), ErrorCode::shape_mismatch, "there is no axis ", axis, " in ", table);
  c.check(batch_dims >= 0 && batch_dims <= axis && batch_dims <= indices.rank(), ErrorCode::invalid_argument,
          batch_dims, " batch dimensions do not fit before axis ", axis, " of ", table,
          " and into the indices' ", indices);
  c.check(table.first(batch_dims) == indices.first(batch_dims), ErrorCode::shape_mismatch, "the table ",
          table, " and the indices ", indices, " must begin with the same ", batch_dims, " batch dimensions");
  Shape shape = table.first(axis);
  for (int i = batch_dims; i < indices.rank(); ++i) shape.push_back(indices[i]);
  for (int i = axis + 1; i < table.rank(); ++i) shape.push_back(table[i]);
  return {{c.dtype(0), shape}};
}

int64_t product(const Shape& shape, int first, int last) {
  int64_t size = 1;
  for (int i = first; i < last; ++i) size *= shape[i];
  return size;
}

// The index dimensions stand at `axis`. Sums are made by rows, [batch, row, outer * inner], and the rows
// moved back.
TensorList grad_gather(const GradContext& g) {
  const auto axis = static_cast<int>(g.attrs<GatherAttrs>().axis);
  const auto batch_dims = static_cast<int>(g.attrs<GatherAttrs>().batch_dims);
  const Tensor &table = g.in(0), &indices = g.in(1), d = g.dout();
  const Shape& shape = table.shape();
  if (axis == 0) return {scatter_add(d, indices, shape[0]), Tensor()};
  const int64_t batch = product(shape, 0, batch_dims), outer = product(shape, batch_dims, axis),
                rows = shape[axis], inner = product(shape, axis + 1, shape.rank()),
                count = product(indices.shape(), batch_dims, indices.rank());
  const Tensor by_row = reshape(transpose(reshape(d, {batch, outer, count, inner}), {0, 2, 1, 3}),
                                {batch, count, outer * inner});
  const Tensor sums = scatter_add_rows(by_row, reshape(indices, {batch, count}), rows);
  return {reshape(transpose(reshape(sums, {batch, rows, outer, inner}), {0, 2, 1, 3}), shape), Tensor()};
}

SpecList infer_scatter_add(const InferContext& c) {
  const int64_t rows = c.attrs<ScatterAddAttrs>().rows;
  const Shape &values = c.shape(0), &indices = c.shape(1);
  check_indices(c, 1);
  c.check(c.dtype(0) != DType::boolean, ErrorCode::dtype_mismatch, "takes numbers, received ", c.inputs[0]);
  c.check(rows >= 0, ErrorCode::invalid_argument, "the number of rows is not negative, received ", rows);
  c.check(values.rank() >= indices.rank() && values.first(indices.rank()) == indices,
          ErrorCode::shape_mismatch, "values must begin with the indices' shape ", indices, ", received ",
          values);
  Shape shape = {rows};
  for (int i = indices.rank(); i < values.rank(); ++i) shape.push_back(values[i]);
  return {{c.dtype(0), shape}};
}

Cost cost_scatter_add(const InferContext& c, std::span<const TensorSpec> outputs) {
  return {.flops = c.shape(0).size(),
          .bytes = static_cast<int64_t>(c.inputs[0].bytes() + c.inputs[1].bytes() + outputs[0].bytes())};
}

SpecList infer_one_hot(const InferContext& c) {
  const auto& [depth, dtype] = c.attrs<OneHotAttrs>();
  check_indices(c, 0);
  c.check(depth >= 0, ErrorCode::invalid_argument, "the depth is not negative, received ", depth);
  Shape shape = c.shape(0);
  shape.push_back(depth);
  return {{dtype, shape}};
}

}  // namespace

constinit const OpDef kGather{
    .name = "gather", .min_inputs = 2, .max_inputs = 2, .infer = infer_gather, .grad = grad_gather};
constinit const OpDef kScatterAdd{.name = "scatter_add",
                                  .min_inputs = 2,
                                  .max_inputs = 2,
                                  .infer = infer_scatter_add,
                                  .grad = [](const GradContext& g) -> TensorList {
                                    return {gather(g.dout(), g.in(1)), Tensor()};
                                  },
                                  .cost = cost_scatter_add};
constinit const OpDef kOneHot{.name = "one_hot", .infer = infer_one_hot};

namespace {
const RegisterOp registered[] = {RegisterOp(kGather), RegisterOp(kScatterAdd), RegisterOp(kOneHot)};
}

Dims position_in(const Shape& shape, int64_t i) {
  Dims place = Dims::filled(shape.rank(), 0);
  for (int d = shape.rank() - 1; d >= 0; --d) {
    place[d] = i % shape[d];
    i /= shape[d];
  }
  return place;
}

void refuse_index(IndexName name, const Shape& shape, int64_t position, int64_t index, int64_t limit,
                  std::source_location where) {
  const auto& [op, labels] = name;
  fail(ErrorCode::invalid_argument, where, labels ? "labels" : op, ": the ", labels ? "label" : "index",
       " at position ", position_in(shape, position), " is ", index_text(index), ", but there are ", limit,
       labels ? " classes" : " rows",
       limit > 0 ? detail::concat(labels ? ": labels" : ": indices", " run from 0 to ", limit - 1) : "");
}

Tensor scatter_add_rows(const Tensor& values, const Tensor& indices, int64_t rows) {
  const int64_t batch = indices.shape()[0], count = indices.shape()[1], width = values.shape()[2];
  Tensor flat = cast(indices, DType::int64);
  if (batch > 1) flat = flat + reshape(index_range(indices, batch, rows), {batch, 1});
  const Tensor sums =
      scatter_add(reshape(values, {batch * count, width}), reshape(flat, {batch * count}), batch * rows);
  return reshape(sums, {batch, rows, width});
}

Tensor gather(const TensorArg& table, const TensorArg& indices, int axis, int batch_dims) {
  const int position = normalize_axis(axis, table.tensor("gather").rank(), "gather", table.where());
  return emit_one(kGather, {table.tensor(), indices.tensor()}, GatherAttrs{position, batch_dims},
                  table.where());
}

Tensor gather_labels(const TensorArg& scores, const TensorArg& labels) {
  const int64_t classes = scores.tensor("gather").rank() - 1;
  return emit_one(kGather, {scores.tensor(), labels.tensor()}, GatherAttrs{classes, classes, true},
                  scores.where());
}

Tensor whole_numbers(const Tensor& x) {
  if (!is_floating(x.dtype())) return cast(x, DType::int64);
  // What is not finite has no difference to what is below it.
  return where(equal(x - floor(x), 0.0), cast(x, DType::int64), Tensor::scalar(kNoWholeNumber));
}

Tensor checked_labels(const Tensor& labels, int64_t classes) {
  return emit_one(kGather, {range(0, static_cast<double>(classes), 1, labels.dtype()), labels},
                  GatherAttrs{0, 0, true}, std::source_location::current());
}

Tensor scatter_add(const TensorArg& values, const TensorArg& indices, int64_t rows) {
  return emit_one(kScatterAdd, {values.tensor(), indices.tensor()}, ScatterAddAttrs{rows}, values.where());
}

Tensor one_hot(const TensorArg& indices, int64_t depth, DType dtype) {
  return emit_one(kOneHot, {indices.tensor()}, OneHotAttrs{depth, dtype}, indices.where());
}

}  // namespace lockstep
