#include "ops/array/places.h"

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

SpecList infer_ravel(const InferContext& c) {
  const Shape &indices = c.shape(0), &shape = c.attrs<ShapeAttrs>().shape;
  check_indices(c, 0);
  c.check(indices.rank() > 0 && indices[-1] == shape.rank(), ErrorCode::shape_mismatch,
          "the last dimension of the indices ", indices, " must have one entry for each dimension of ",
          shape);
  return {{DType::int64, indices.drop_last(1)}};
}

SpecList infer_scatter_update(const InferContext& c) {
  const Shape &x = c.shape(0), &values = c.shape(1), &indices = c.shape(2);
  check_indices(c, 2);
  c.check(c.dtype(0) == c.dtype(1), ErrorCode::dtype_mismatch, "operands must have one dtype, received ",
          c.inputs[0], " and ", c.inputs[1], "; cast() one of them");
  Shape expected = indices;
  for (int i = 1; i < x.rank(); ++i) expected.push_back(x[i]);
  c.check(x.rank() > 0 && values == expected, ErrorCode::shape_mismatch, "for rows of ", x, " at indices ",
          indices, " the values must have shape ", expected, ", received ", values);
  return {c.inputs[0]};
}

Tensor scatter_update(const Tensor& x, const Tensor& values, const Tensor& indices) {
  return emit_one(kScatterUpdate, {x, values, indices}, {}, std::source_location::current());
}

TensorList grad_scatter_update(const GradContext& g) {
  const Tensor &x = g.in(0), &values = g.in(1), &indices = g.in(2), d = g.dout();
  Tensor dx, dvalues;
  if (g.needs(0)) dx = scatter_update(d, zeros_like(values), indices);
  if (g.needs(1)) {
    // Of the values for one row the last was kept: it alone has a gradient.
    const int64_t count = indices.size();
    const Tensor order = index_range(indices, count), rows = reshape(indices, {count});
    const Tensor winner = scatter_update(index_range(indices, x.shape()[0], 0), order, rows);
    Shape shape = indices.shape();
    while (shape.rank() < values.rank()) shape.push_back(1);
    dvalues = where(reshape(equal(gather(winner, rows), order), shape), gather(d, indices), 0.0);
  }
  return {dx, dvalues, Tensor()};
}

// x as rows: the dimensions that a place names, and the rest.
struct Rows {
  Shape named, rest;
  Shape flat() const {
    Shape shape = {named.size()};
    for (const int64_t d : rest) shape.push_back(d);
    return shape;
  }
};

Rows rows_of(const char* name, const Shape& shape, const TensorArg& indices) {
  const Shape& given = indices.tensor(name).shape();
  require(given.rank() > 0 && given[-1] <= shape.rank(), ErrorCode::shape_mismatch, indices.where(), name,
          ": the last dimension of the indices ", given, " names places in ", shape, ", which has ",
          shape.rank(), " dimensions");
  Rows rows{shape.first(static_cast<int>(given[-1])), {}};
  for (int i = rows.named.rank(); i < shape.rank(); ++i) rows.rest.push_back(shape[i]);
  return rows;
}

void require_updates(const char* name, const TensorArg& indices, const TensorArg& updates, const Rows& rows) {
  Shape expected = indices.tensor().shape().drop_last(1);
  for (const int64_t d : rows.rest) expected.push_back(d);
  require(updates.tensor(name).shape() == expected, ErrorCode::shape_mismatch, indices.where(), name,
          ": for indices ", indices.tensor().shape(), " the updates must have shape ", expected,
          ", received ", updates.tensor().shape());
}

}  // namespace

constinit const OpDef kRavelMultiIndex{.name = "ravel_multi_index", .infer = infer_ravel};
constinit const OpDef kScatterUpdate{.name = "scatter_update",
                                     .min_inputs = 3,
                                     .max_inputs = 3,
                                     .infer = infer_scatter_update,
                                     .grad = grad_scatter_update};

namespace {
const RegisterOp registered[] = {RegisterOp(kRavelMultiIndex), RegisterOp(kScatterUpdate)};
}

Tensor ravel_multi_index(const TensorArg& indices, const Shape& shape) {
  return emit_one(kRavelMultiIndex, {indices.tensor()}, ShapeAttrs{shape}, indices.where());
}

Tensor gather_nd(const TensorArg& x, const TensorArg& indices) {
  const Rows rows = rows_of("gather_nd", x.tensor("gather_nd").shape(), indices);
  return gather({reshape(x, rows.flat()), x.where()}, ravel_multi_index(indices, rows.named));
}

Tensor scatter_nd(const TensorArg& indices, const TensorArg& updates, const Shape& shape) {
  const Rows rows = rows_of("scatter_nd", shape, indices);
  require_updates("scatter_nd", indices, updates, rows);
  const Tensor flat = ravel_multi_index(indices, rows.named);
  return reshape(scatter_add({updates.tensor(), indices.where()}, flat, rows.named.size()), shape);
}

Tensor tensor_scatter_nd_add(const TensorArg& x, const TensorArg& indices, const TensorArg& updates) {
  const Tensor sums =
      scatter_nd({indices.tensor(), x.where()}, updates, x.tensor("tensor_scatter_nd_add").shape());
  return add({x.tensor(), x.where()}, sums);
}

Tensor tensor_scatter_nd_update(const TensorArg& x, const TensorArg& indices, const TensorArg& updates) {
  const char* name = "tensor_scatter_nd_update";
  const TensorArg places(indices.tensor(name), x.where());
  const Rows rows = rows_of(name, x.tensor(name).shape(), places);
  require_updates(name, places, updates, rows);
  const Tensor flat = ravel_multi_index(places, rows.named);
  const Tensor updated =
      emit_one(kScatterUpdate, {reshape(x, rows.flat()), updates.tensor(), flat}, {}, x.where());
  return reshape(updated, x.tensor().shape());
}

Tensor take_along_axis(const TensorArg& x, const TensorArg& indices, int axis) {
  const char* name = "take_along_axis";
  const int rank = x.tensor(name).rank();
  require(indices.tensor(name).rank() == rank, ErrorCode::shape_mismatch, x.where(), name,
          ": the indices must have as many dimensions as x, received ", x.tensor().shape(), " and ",
          indices.tensor().shape());
  const int position = normalize_axis(axis, rank, name, x.where());
  // With the axis at the end everything before it is batch.
  const auto moved = [&](const TensorArg& t) { return swapaxes(t, position, -1); };
  Tensor table = moved(x), rows = moved({indices.tensor(), x.where()});
  Shape batch = broadcast(table.shape().drop_last(1), rows.shape().drop_last(1), name, x.where());
  const auto widened = [&](const Tensor& t) {
    Shape shape = batch;
    shape.push_back(t.shape()[-1]);
    return broadcast_to(t, shape);
  };
  return swapaxes(gather({widened(table), x.where()}, widened(rows), rank - 1, rank - 1), position, -1);
}

}  // namespace lockstep
