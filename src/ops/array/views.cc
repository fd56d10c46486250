// Views: ops whose result reads the input's memory through other strides.
#include <algorithm>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "ops/array/array.h"
#include "ops/array/strided_slice_grad.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

SpecList infer_reshape(const InferContext& c) {
  const Shape& shape = c.attrs<ShapeAttrs>().shape;
  c.check(shape.size() == c.shape(0).size(), ErrorCode::shape_mismatch, "the elements of ", c.shape(0), " (",
          c.shape(0).size(), ") do not fill ", shape, " (", shape.size(), ")");
  return {{c.dtype(0), shape}};
}

// A reshape is a view where each run of new dimensions splits or joins old ones that lie densely
// one behind the other.
std::optional<ViewLayout> view_reshape(const ViewContext& c) {
  const Shape &from = c.input.shape, &to = c.output.shape;
  if (from.size() == 0) return ViewLayout{contiguous_strides(to)};
  Strides result = Strides::filled(to.rank(), 1);
  int i = from.rank() - 1;
  int j = to.rank() - 1;
  while (i >= 0 || j >= 0) {
    if (i >= 0 && from[i] == 1) {
      --i;
      continue;
    }
    if (j >= 0 && to[j] == 1) {
      --j;
      continue;
    }
    if (i < 0 || j < 0) break;
    // Join old dimensions, and split into new ones, until both products agree.
    int64_t old_product = from[i];
    int64_t new_product = to[j];
    const int64_t step = c.strides[i];
    int64_t stride = step;
    result[j] = stride;
    while (old_product != new_product) {
      if (old_product < new_product) {
        if (c.strides[i - 1] != c.strides[i] * from[i] && from[i - 1] != 1) return std::nullopt;
        --i;
        if (from[i] == 1) return std::nullopt;
        old_product *= from[i];
      } else {
        stride *= to[j];
        --j;
        result[j] = stride;
        new_product *= to[j];
      }
    }
    --i;
    --j;
  }
  return ViewLayout{result};
}

SpecList infer_transpose(const InferContext& c) {
  const Dims& permutation = c.attrs<TransposeAttrs>().permutation;
  c.check(permutation.rank() == c.shape(0).rank(), ErrorCode::shape_mismatch, "the permutation ", permutation,
          " has not one entry for each dimension of ", c.shape(0));
  Shape shape;
  for (int i = 0; i < permutation.rank(); ++i) {
    c.check(std::count(permutation.begin(), permutation.end(), i) == 1, ErrorCode::invalid_argument,
            permutation, " is no permutation: axis ", i, " must appear once");
    shape.push_back(c.shape(0)[static_cast<int>(permutation[i])]);
  }
  return {{c.dtype(0), shape}};
}

std::optional<ViewLayout> view_transpose(const ViewContext& c) {
  ViewLayout layout;
  for (const int64_t axis : c.attributes.as<TransposeAttrs>().permutation)
    layout.strides.push_back(c.strides[static_cast<int>(axis)]);
  return layout;
}

SpecList infer_strided_slice(const InferContext& c) {
  const auto& a = c.attrs<StridedSliceAttrs>();
  c.check(a.size.rank() == c.shape(0).rank(), ErrorCode::shape_mismatch, "takes one range a dimension of ",
          c.shape(0), ", received ", a.size.rank());
  for (int i = 0; i < a.size.rank(); ++i) {
    const int64_t last = a.begin[i] + (a.size[i] - 1) * a.stride[i];
    c.check(a.size[i] == 0 ||
                (a.begin[i] >= 0 && a.begin[i] < c.shape(0)[i] && last >= 0 && last < c.shape(0)[i]),
            ErrorCode::invalid_argument, "the range from ", a.begin[i], " of ", a.size[i],
            " elements in steps of ", a.stride[i], " leaves dimension ", i, " of ", c.shape(0));
  }
  return {{c.dtype(0), Shape(a.size)}};
}

std::optional<ViewLayout> view_strided_slice(const ViewContext& c) {
  const auto& a = c.attributes.as<StridedSliceAttrs>();
  ViewLayout layout;
  for (int i = 0; i < a.size.rank(); ++i) {
    layout.strides.push_back(c.strides[i] * a.stride[i]);
    if (a.size[i] > 0) layout.offset += a.begin[i] * c.strides[i];
  }
  return layout;
}

SpecList infer_broadcast_to(const InferContext& c) {
  const Shape& shape = c.attrs<ShapeAttrs>().shape;
  c.check(broadcast(c.shape(0), shape, "broadcast_to", c.where) == shape, ErrorCode::shape_mismatch,
          c.shape(0), " does not broadcast to ", shape);
  return {{c.dtype(0), shape}};
}

std::optional<ViewLayout> view_broadcast_to(const ViewContext& c) {
  return ViewLayout{broadcast_strides(c.input.shape, c.strides, c.output.shape)};
}

// Where no view is possible the elements are copied in row-major order: as identity would.
constexpr OpDef view_op(std::string_view name, SpecList (*infer)(const InferContext&),
                        TensorList (*grad)(const GradContext&),
                        std::optional<ViewLayout> (*view)(const ViewContext&)) {
  return {.name = name, .infer = infer, .grad = grad, .view = view};
}

}  // namespace

constinit const OpDef kReshape = view_op(
    "reshape", infer_reshape,
    [](const GradContext& g) -> TensorList { return {reshape(g.dout(), g.in().shape())}; }, view_reshape);

constinit const OpDef kTranspose = view_op(
    "transpose", infer_transpose,
    [](const GradContext& g) -> TensorList {
      const Dims& permutation = g.attrs<TransposeAttrs>().permutation;
      Dims inverse = Dims::filled(permutation.rank(), 0);
      for (int i = 0; i < permutation.rank(); ++i) inverse[static_cast<int>(permutation[i])] = i;
      return {transpose(g.dout(), inverse)};
    },
    view_transpose);

constinit const OpDef kStridedSlice = view_op(
    "strided_slice", infer_strided_slice,
    [](const GradContext& g) -> TensorList {
      return {strided_slice_grad(g.dout(), g.in().shape(), g.attrs<StridedSliceAttrs>())};
    },
    view_strided_slice);

constinit const OpDef kBroadcastTo = view_op(
    "broadcast_to", infer_broadcast_to,
    [](const GradContext& g) -> TensorList { return {sum_to_shape(g.dout(), g.in().shape())}; },
    view_broadcast_to);

namespace {
const RegisterOp registered[] = {RegisterOp(kReshape), RegisterOp(kTranspose), RegisterOp(kStridedSlice),
                                 RegisterOp(kBroadcastTo)};
}  // namespace

Node slice_of_rows(Value from, int64_t first, const TensorSpec& rows, std::source_location where) {
  StridedSliceAttrs slice{.begin = Dims::filled(rows.shape.rank(), 0),
                          .size = rows.shape,
                          .stride = Dims::filled(rows.shape.rank(), 1)};
  slice.begin[0] = first;
  return {.op = &kStridedSlice, .attrs = slice, .inputs = {from}, .outputs = {rows}, .where = where};
}

Tensor reshape(const TensorArg& x, const Shape& shape) {
  x.tensor("reshape");
  Shape resolved = shape;
  const int64_t unknown = std::count(shape.begin(), shape.end(), -1);
  require(unknown <= 1, ErrorCode::invalid_argument, x.where(),
          "reshape: at most one dimension may be -1, received ", shape);
  for (int i = 0; i < shape.rank(); ++i) {
    require(shape[i] >= -1, ErrorCode::invalid_argument, x.where(), "reshape: dimension ", i, " of ", shape,
            " is negative");
    if (shape[i] != -1) continue;
    resolved[i] = 1;
    const int64_t rest = resolved.size();
    const int64_t size = x.tensor().size();
    require(rest > 0 && size % rest == 0, ErrorCode::shape_mismatch, x.where(), "reshape: the ", size,
            " elements of ", x.tensor().shape(), " do not divide into ", shape);
    resolved[i] = size / rest;
  }
  if (x.tensor().shape() == resolved) return x.tensor();
  return emit_one(kReshape, {x.tensor()}, ShapeAttrs{resolved}, x.where());
}

Tensor transpose(const TensorArg& x, const Dims& permutation) {
  Dims order = permutation;
  const int rank = x.tensor("transpose").rank();
  if (order.empty())
    for (int i = rank - 1; i >= 0; --i) order.push_back(i);
  for (int i = 0; i < order.rank() && order.rank() == rank; ++i)
    order[i] = normalize_axis(order[i], rank, "transpose", x.where());
  return emit_one(kTranspose, {x.tensor()}, TransposeAttrs{order}, x.where());
}

Tensor slice(const TensorArg& x, const Dims& begin, const Dims& size) {
  const Shape& shape = x.tensor("slice").shape();
  require(begin.rank() == shape.rank() && size.rank() == shape.rank(), ErrorCode::shape_mismatch, x.where(),
          "slice: begin ", begin, " and size ", size, " need one entry for each dimension of ", shape);
  StridedSliceAttrs attrs{begin, size, Dims::filled(shape.rank(), 1)};
  for (int i = 0; i < shape.rank(); ++i) {
    if (size[i] == -1 && begin[i] >= 0) attrs.size[i] = shape[i] - begin[i];
    require(begin[i] >= 0 && attrs.size[i] >= 0 && begin[i] <= shape[i] - attrs.size[i],
            ErrorCode::invalid_argument, x.where(), "slice: ", attrs.size[i], " elements from ", begin[i],
            " leave dimension ", i, " of ", shape);
  }
  return emit_one(kStridedSlice, {x.tensor()}, attrs, x.where());
}

Tensor strided_slice(const TensorArg& x, const Dims& begin, const Dims& end, const Dims& strides) {
  const Shape& shape = x.tensor("strided_slice").shape();
  const int rank = shape.rank();
  require(begin.rank() == rank && end.rank() == rank && strides.rank() == rank, ErrorCode::shape_mismatch,
          x.where(), "strided_slice: begin, end and strides need one entry for each dimension of ", shape);
  StridedSliceAttrs attrs{begin, end, strides};
  for (int i = 0; i < rank; ++i) {
    require(strides[i] != 0, ErrorCode::invalid_argument, x.where(),
            "strided_slice: the stride of dimension ", i, " is 0");
    // Python: negative positions count from the end, then positions are clamped to the dimension.
    const bool forward = strides[i] > 0;
    const auto position = [&](int64_t p) {
      if (p < 0) p += shape[i];
      return forward ? std::clamp<int64_t>(p, 0, shape[i]) : std::clamp<int64_t>(p, -1, shape[i] - 1);
    };
    const int64_t first = position(begin[i]);
    const int64_t last = position(end[i]);
    const int64_t distance = forward ? last - first : first - last;
    const int64_t step = forward ? strides[i] : -strides[i];
    attrs.begin[i] = first;
    attrs.size[i] = distance > 0 ? (distance + step - 1) / step : 0;
  }
  return emit_one(kStridedSlice, {x.tensor()}, attrs, x.where());
}

Tensor broadcast_to(const TensorArg& x, const Shape& shape) {
  if (x.tensor("broadcast_to").shape() == shape) return x.tensor();
  return emit_one(kBroadcastTo, {x.tensor()}, ShapeAttrs{shape}, x.where());
}

Tensor expand_dims(const TensorArg& x, int axis) {
  Shape shape = x.tensor("expand_dims").shape();
  shape.insert(normalize_axis(axis, shape.rank() + 1, "expand_dims", x.where()), 1);
  return reshape(x, shape);
}

Tensor squeeze(const TensorArg& x, const Dims& axes) {
  const Shape& shape = x.tensor("squeeze").shape();
  std::vector<bool> drop(static_cast<size_t>(shape.rank()), false);
  for (const int64_t axis : axes) {
    const int a = normalize_axis(axis, shape.rank(), "squeeze", x.where());
    require(shape[a] == 1, ErrorCode::shape_mismatch, x.where(), "squeeze: dimension ", a, " of ", shape,
            " is not 1");
    drop[static_cast<size_t>(a)] = true;
  }
  Shape result;
  for (int i = 0; i < shape.rank(); ++i)
    if (!(axes.empty() ? shape[i] == 1 : drop[static_cast<size_t>(i)])) result.push_back(shape[i]);
  return reshape(x, result);
}

}  // namespace lockstep
