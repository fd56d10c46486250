#include "ops/array/join.h"

#include <algorithm>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "ops/elementwise/ops.h"
#include "tensor/countable.h"

namespace lockstep {
namespace {

SpecList infer_concat(const InferContext& c) {
  const auto axis = static_cast<int>(c.attrs<ConcatAttrs>().axis);
  Shape shape = c.shape(0);
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    const TensorSpec& part = c.inputs[i];
    c.check(part.dtype == c.dtype(0), ErrorCode::dtype_mismatch, "parts must have one dtype, received ",
            c.inputs[0], " and ", part, "; cast() one of them");
    bool fits = part.shape.rank() == shape.rank();
    for (int d = 0; fits && d < shape.rank(); ++d) fits = d == axis || part.shape[d] == shape[d];
    c.check(fits, ErrorCode::shape_mismatch, "parts must agree in every dimension but ", axis, ", received ",
            c.shape(0), " and ", part.shape);
    shape[axis] = counted_sum(shape[axis], part.shape[axis]);
  }
  return {{c.dtype(0), shape}};
}

TensorList grad_concat(const GradContext& g) {
  const auto axis = static_cast<int>(g.attrs<ConcatAttrs>().axis);
  const Tensor d = g.dout();
  TensorList parts;
  Dims begin = Dims::filled(d.rank(), 0);
  for (int i = 0; i < g.num_inputs(); ++i) {
    parts.push_back(g.needs(i) ? slice(d, begin, g.in(i).shape()) : Tensor());
    begin[axis] += g.in(i).shape()[axis];
  }
  return parts;
}

SpecList infer_pad(const InferContext& c) {
  const auto& [before, after, value] = c.attrs<PadAttrs>();
  c.check(holds_exactly(c.dtype(0), value), ErrorCode::dtype_mismatch, "the number ", value, " has no exact ",
          c.dtype(0), " value");
  Shape shape = c.shape(0);
  c.check(before.rank() == shape.rank() && after.rank() == shape.rank(), ErrorCode::shape_mismatch, "before ",
          before, " and after ", after, " need one entry for each dimension of ", shape);
  for (int i = 0; i < shape.rank(); ++i) {
    c.check(before[i] >= 0 && after[i] >= 0, ErrorCode::invalid_argument, "before ", before, " and after ",
            after, " may not be negative; slice() takes elements away");
    shape[i] = counted_sum(shape[i], counted_sum(before[i], after[i]));
  }
  return {{c.dtype(0), shape}};
}

}  // namespace

constinit const OpDef kConcat{
    .name = "concat", .min_inputs = 1, .max_inputs = -1, .infer = infer_concat, .grad = grad_concat};
constinit const OpDef kPad{.name = "pad", .infer = infer_pad, .grad = [](const GradContext& g) -> TensorList {
                             return {slice(g.dout(), g.attrs<PadAttrs>().before, g.in().shape())};
                           }};

namespace {
const RegisterOp registered[] = {RegisterOp(kConcat), RegisterOp(kPad)};
}

Tensor concat(std::span<const Tensor> parts, int axis, std::source_location where) {
  require(!parts.empty(), ErrorCode::invalid_argument, where,
          "concat: takes one or more tensors, received none");
  require(parts[0].defined(), ErrorCode::invalid_argument, where, "concat: part 0 is none");
  const int position = normalize_axis(axis, parts[0].rank(), "concat", where);
  if (parts.size() == 1) return parts[0];
  return emit_one(kConcat, parts, ConcatAttrs{position}, where);
}

Tensor concat(std::initializer_list<TensorArg> parts, int axis, std::source_location where) {
  TensorList tensors;
  for (const TensorArg& part : parts) tensors.push_back(part.tensor("concat"));
  return concat(tensors, axis, where);
}

TensorList split(const TensorArg& x, int parts, int axis) {
  const Shape& shape = x.tensor("split").shape();
  const int position = normalize_axis(axis, shape.rank(), "split", x.where());
  require(parts > 0 && shape[position] % parts == 0, ErrorCode::invalid_argument, x.where(),
          "split: dimension ", position, " of ", shape, " does not divide into ", parts, " equal parts");
  Dims begin = Dims::filled(shape.rank(), 0);
  Dims size = shape;
  size[position] /= parts;
  TensorList result;
  for (int i = 0; i < parts; ++i, begin[position] += size[position]) result.push_back(slice(x, begin, size));
  return result;
}

TensorList split(const TensorArg& x, std::span<const int64_t> sizes, int axis) {
  const Shape& shape = x.tensor("split").shape();
  const int position = normalize_axis(axis, shape.rank(), "split", x.where());
  int64_t sum = 0, unknown = 0;
  for (const int64_t size : sizes) {
    require(size >= -1, ErrorCode::invalid_argument, x.where(), "split: a size is not negative, received ",
            size);
    size == -1 ? ++unknown : sum += size;
  }
  require(unknown <= 1 && sum <= shape[position] && (unknown == 1 || sum == shape[position]),
          ErrorCode::invalid_argument, x.where(), "split: ", sizes.size(), " sizes, ", sum, " together",
          unknown > 0 ? detail::concat(" beside ", unknown, " of -1") : "", ", do not fill dimension ",
          position, " of ", shape);
  Dims begin = Dims::filled(shape.rank(), 0), size = shape;
  TensorList result;
  for (const int64_t given : sizes) {
    size[position] = given == -1 ? shape[position] - sum : given;
    result.push_back(slice(x, begin, size));
    begin[position] += size[position];
  }
  return result;
}

TensorList split(const TensorArg& x, std::initializer_list<int64_t> sizes, int axis) {
  return split(x, std::span<const int64_t>(sizes.begin(), sizes.size()), axis);
}

namespace {

// The elements beside one end of `axis`, mirrored; `skip`: 1 where the edge itself stays out.
Tensor mirrored(const Tensor& x, int axis, int64_t count, int64_t skip, bool at_end) {
  Dims begin = Dims::filled(x.rank(), 0), size = x.shape();
  begin[axis] = at_end ? x.shape()[axis] - skip - count : skip;
  size[axis] = count;
  return reverse(slice(x, begin, size), {axis});
}

}  // namespace

Tensor pad(const TensorArg& x, const Dims& before, const Dims& after, const PadOptions& options) {
  if (options.mode == PadMode::constant)
    return emit_one(kPad, {x.tensor()}, PadAttrs{before, after, options.constant_value}, x.where());
  const Shape& shape = x.tensor("pad").shape();
  require(before.rank() == shape.rank() && after.rank() == shape.rank(), ErrorCode::shape_mismatch, x.where(),
          "pad: before ", before, " and after ", after, " need one entry for each dimension of ", shape);
  const int64_t skip = options.mode == PadMode::reflect ? 1 : 0;
  Tensor result = x.tensor();
  for (int i = 0; i < shape.rank(); ++i) {
    require(before[i] >= 0 && after[i] >= 0 &&
                std::max(before[i], after[i]) <= std::max<int64_t>(shape[i] - skip, 0),
            ErrorCode::invalid_argument, x.where(), "pad: before ", before, " and after ", after,
            " may not be negative, nor larger than what can be mirrored in dimension ", i, " of ", shape);
    if (before[i] + after[i] == 0) continue;
    const Tensor parts[] = {mirrored(result, i, before[i], skip, false), result,
                            mirrored(result, i, after[i], skip, true)};
    result = concat(parts, i);
  }
  return result;
}

}  // namespace lockstep
