#include "ops/array/lookup.h"

#include "graph/emit.h"
#include "lockstep/ops/array.h"

namespace lockstep {
namespace {

void check_indices(const InferContext& c, int input) {
  c.check(c.dtype(input) == DType::int32 || c.dtype(input) == DType::int64, ErrorCode::dtype_mismatch,
          "indices must be int32 or int64, received ", c.inputs[static_cast<size_t>(input)], "; cast() them");
}

SpecList infer_gather(const InferContext& c) {
  const auto axis = static_cast<int>(c.attrs<GatherAttrs>().axis);
  const Shape &table = c.shape(0), &indices = c.shape(1);
  check_indices(c, 1);
  c.check(axis < table.rank(), ErrorCode::shape_mismatch, "there is no axis ", axis, " in ", table);
  Shape shape = table.first(axis);
  for (const int64_t d : indices) shape.push_back(d);
  for (int i = axis + 1; i < table.rank(); ++i) shape.push_back(table[i]);
  return {{c.dtype(0), shape}};
}

// The index dimensions stand at `axis`. scatter_add wants them in front and gives the table's axis in front.
TensorList grad_gather(const GradContext& g) {
  const auto axis = static_cast<int>(g.attrs<GatherAttrs>().axis);
  const Tensor &table = g.in(0), &indices = g.in(1);
  const int index_rank = indices.rank();
  Tensor d = g.dout();
  if (axis == 0) return {scatter_add(d, indices, table.shape()[0]), Tensor()};
  Dims to_front;
  for (int i = 0; i < index_rank; ++i) to_front.push_back(axis + i);
  for (int i = 0; i < d.rank(); ++i)
    if (i < axis || i >= axis + index_rank) to_front.push_back(i);
  d = scatter_add(transpose(d, to_front), indices, table.shape()[axis]);
  Dims back;
  for (int i = 0; i < axis; ++i) back.push_back(i + 1);
  back.push_back(0);
  for (int i = axis + 1; i < table.rank(); ++i) back.push_back(i);
  return {transpose(d, back), Tensor()};
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

Tensor gather(const TensorArg& table, const TensorArg& indices, int axis) {
  const int position = normalize_axis(axis, table.tensor().rank(), "gather", table.where());
  return emit_one(kGather, {table.tensor(), indices.tensor()}, GatherAttrs{position}, table.where());
}

Tensor scatter_add(const TensorArg& values, const TensorArg& indices, int64_t rows) {
  return emit_one(kScatterAdd, {values.tensor(), indices.tensor()}, ScatterAddAttrs{rows}, values.where());
}

Tensor one_hot(const TensorArg& indices, int64_t depth, DType dtype) {
  return emit_one(kOneHot, {indices.tensor()}, OneHotAttrs{depth, dtype}, indices.where());
}

}  // namespace lockstep
