// Functions that move elements, made of views, concat and gather.
#include <algorithm>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "ops/array/array.h"

namespace lockstep {
namespace {

int64_t product(const Shape& shape, int first, int last) {
  int64_t size = 1;
  for (int i = first; i < last; ++i) size *= shape[i];
  return size;
}

// Every run of `run` elements so many times in a row. The result has the shape `to`.
Tensor repeat_runs(const TensorArg& x, int64_t run, int64_t times, const Shape& to) {
  const int64_t runs = run > 0 ? x.tensor().size() / run : 0;
  const Tensor rows = reshape(x, {runs, 1, run});
  return reshape(TensorArg(broadcast_to({rows, x.where()}, {runs, times, run}), x.where()), to);
}

Tensor slice_along(const TensorArg& x, int axis, int64_t begin, int64_t size) {
  Dims from = Dims::filled(x.tensor().rank(), 0), count = x.tensor().shape();
  from[axis] = begin;
  count[axis] = size;
  return slice(x, from, count);
}

}  // namespace

Tensor stack(std::span<const Tensor> parts, int axis, std::source_location where) {
  require(!parts.empty(), ErrorCode::invalid_argument, where,
          "stack: takes one or more tensors, received none");
  TensorList expanded;
  for (const Tensor& part : parts) {
    require(part.defined(), ErrorCode::invalid_argument, where, "stack: part ", expanded.size(), " is none");
    require(part.shape() == parts[0].shape(), ErrorCode::shape_mismatch, where,
            "stack: parts must have one shape, received ", parts[0].shape(), " and ", part.shape());
    const int position = normalize_axis(axis, part.rank() + 1, "stack", where);
    expanded.push_back(expand_dims({part, where}, position));
  }
  return concat(expanded, axis, where);
}

Tensor stack(std::initializer_list<TensorArg> parts, int axis, std::source_location where) {
  TensorList tensors;
  for (const TensorArg& part : parts) tensors.push_back(part.tensor("stack"));
  return stack(tensors, axis, where);
}

TensorList unstack(const TensorArg& x, int axis) {
  const int position = normalize_axis(axis, x.tensor("unstack").rank(), "unstack", x.where());
  TensorList parts;
  for (int64_t i = 0; i < x.tensor().shape()[position]; ++i)
    parts.push_back(squeeze(slice_along(x, position, i, 1), {position}));
  return parts;
}

Tensor tile(const TensorArg& x, const Dims& multiples) {
  Shape shape = x.tensor("tile").shape();
  require(multiples.rank() == shape.rank(), ErrorCode::shape_mismatch, x.where(), "tile: multiples ",
          multiples, " need one entry for each dimension of ", shape);
  Tensor result = x.tensor();
  // The innermost first: then each copy is at most half as large as the next.
  for (int i = shape.rank() - 1; i >= 0; --i) {
    require(multiples[i] >= 0, ErrorCode::invalid_argument, x.where(), "tile: multiples ", multiples,
            " may not be negative");
    if (multiples[i] == 1) continue;
    const int64_t run = product(shape, i, shape.rank());
    shape[i] *= multiples[i];
    result = repeat_runs({result, x.where()}, run, multiples[i], shape);
  }
  return result;
}

Tensor repeat(const TensorArg& x, int64_t repeats, int axis) {
  Shape shape = x.tensor("repeat").shape();
  const int position = normalize_axis(axis, shape.rank(), "repeat", x.where());
  require(repeats >= 0, ErrorCode::invalid_argument, x.where(),
          "repeat: the number of repeats is not negative, received ", repeats);
  const int64_t run = product(shape, position + 1, shape.rank());
  shape[position] *= repeats;
  return repeat_runs(x, run, repeats, shape);
}

Tensor repeat(const TensorArg& x, const std::vector<int64_t>& repeats, int axis) {
  const Shape& shape = x.tensor("repeat").shape();
  const int position = normalize_axis(axis, shape.rank(), "repeat", x.where());
  require(static_cast<int64_t>(repeats.size()) == shape[position], ErrorCode::shape_mismatch, x.where(),
          "repeat: ", repeats.size(), " numbers of repeats for the ", shape[position],
          " elements of dimension ", position, " of ", shape);
  std::vector<int64_t> rows;
  for (size_t i = 0; i < repeats.size(); ++i) {
    require(repeats[i] >= 0, ErrorCode::invalid_argument, x.where(),
            "repeat: the number of repeats is not negative, received ", repeats[i]);
    rows.insert(rows.end(), static_cast<size_t>(repeats[i]), static_cast<int64_t>(i));
  }
  Tensor indices = Tensor::from(rows, {static_cast<int64_t>(rows.size())}, x.where());
  if (!x.tensor().symbolic()) indices = indices.to(x.tensor().device());
  return gather(x, indices, position);
}

Tensor reverse(const TensorArg& x, const Dims& axes) {
  const Shape& shape = x.tensor("reverse").shape();
  StridedSliceAttrs attrs{Dims::filled(shape.rank(), 0), shape, Dims::filled(shape.rank(), 1)};
  for (const int64_t axis : axes) {
    const int i = normalize_axis(axis, shape.rank(), "reverse", x.where());
    require(attrs.stride[i] == 1, ErrorCode::invalid_argument, x.where(), "reverse: axis ", i,
            " was given twice");
    attrs.begin[i] = std::max<int64_t>(shape[i] - 1, 0);
    attrs.stride[i] = -1;
  }
  return emit_one(kStridedSlice, {x.tensor()}, attrs, x.where());
}

Tensor roll(const TensorArg& x, const Dims& shift, const Dims& axes) {
  const Shape& shape = x.tensor("roll").shape();
  require(shift.rank() == axes.rank(), ErrorCode::shape_mismatch, x.where(), "roll: shift ", shift,
          " needs one entry for each of the axes ", axes);
  Tensor result = x.tensor();
  for (int i = 0; i < axes.rank(); ++i) {
    const int axis = normalize_axis(axes[i], shape.rank(), "roll", x.where());
    const int64_t n = shape[axis];
    const int64_t by = n > 0 ? (shift[i] % n + n) % n : 0;
    if (by == 0) continue;
    const Tensor parts[] = {slice_along(result, axis, n - by, by), slice_along(result, axis, 0, n - by)};
    result = concat(parts, axis);
  }
  return result;
}

Tensor swapaxes(const TensorArg& x, int a, int b) {
  const int rank = x.tensor("swapaxes").rank();
  Dims order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  const int first = normalize_axis(a, rank, "swapaxes", x.where());
  const int second = normalize_axis(b, rank, "swapaxes", x.where());
  std::swap(order[first], order[second]);
  return transpose(x, order);
}

Tensor moveaxis(const TensorArg& x, const Dims& source, const Dims& destination) {
  const int rank = x.tensor("moveaxis").rank();
  require(source.rank() == destination.rank(), ErrorCode::shape_mismatch, x.where(), "moveaxis: source ",
          source, " needs as many entries as destination ", destination);
  Dims order = Dims::filled(rank, -1);
  std::vector<bool> moved(static_cast<size_t>(rank), false);
  for (int i = 0; i < source.rank(); ++i) {
    const int from = normalize_axis(source[i], rank, "moveaxis", x.where());
    const int to = normalize_axis(destination[i], rank, "moveaxis", x.where());
    require(!moved[static_cast<size_t>(from)] && order[to] == -1, ErrorCode::invalid_argument, x.where(),
            "moveaxis: an axis was given twice in ", source, " or ", destination);
    order[to] = from;
    moved[static_cast<size_t>(from)] = true;
  }
  int next = 0;
  for (int i = 0; i < rank; ++i) {
    if (order[i] != -1) continue;
    while (moved[static_cast<size_t>(next)]) ++next;
    order[i] = next++;
  }
  if (rank == 0) return x.tensor();
  return transpose(x, order);
}

TensorList meshgrid(std::span<const Tensor> vectors, MeshIndexing indexing, std::source_location where) {
  const auto count = static_cast<int>(vectors.size());
  // Dimension of the grid along which vector k runs.
  const auto dimension = [&](int k) {
    return indexing == MeshIndexing::xy && count > 1 && k < 2 ? 1 - k : k;
  };
  Shape grid = Dims::filled(count, 1);
  for (int k = 0; k < count; ++k) {
    const Tensor& vector = vectors[static_cast<size_t>(k)];
    require(vector.defined() && vector.rank() == 1, ErrorCode::shape_mismatch, where,
            "meshgrid: takes vectors, but number ", k, " is ",
            vector.defined() ? detail::concat(vector.spec()) : "none");
    grid[dimension(k)] = vector.size();
  }
  TensorList result;
  for (int k = 0; k < count; ++k) {
    Shape own = Dims::filled(count, 1);
    own[dimension(k)] = grid[dimension(k)];
    result.push_back(broadcast_to({reshape({vectors[static_cast<size_t>(k)], where}, own), where}, grid));
  }
  return result;
}

Tensor space_to_depth(const TensorArg& x, int64_t block) {
  const Shape& s = x.tensor("space_to_depth").shape();
  require(
      s.rank() == 4 && block > 0 && s[1] % block == 0 && s[2] % block == 0, ErrorCode::shape_mismatch,
      x.where(),
      "space_to_depth: takes [batch, height, width, channels] with height and width divisible by the block ",
      block, ", received ", s);
  const Tensor blocks = reshape(x, {s[0], s[1] / block, block, s[2] / block, block, s[3]});
  return reshape(transpose(blocks, {0, 1, 3, 2, 4, 5}),
                 {s[0], s[1] / block, s[2] / block, block * block * s[3]});
}

Tensor depth_to_space(const TensorArg& x, int64_t block) {
  const Shape& s = x.tensor("depth_to_space").shape();
  require(
      s.rank() == 4 && block > 0 && s[3] % (block * block) == 0, ErrorCode::shape_mismatch, x.where(),
      "depth_to_space: takes [batch, height, width, channels] with channels divisible by the squared block ",
      block, ", received ", s);
  const Tensor blocks = reshape(x, {s[0], s[1], s[2], block, block, s[3] / (block * block)});
  return reshape(transpose(blocks, {0, 1, 3, 2, 4, 5}),
                 {s[0], s[1] * block, s[2] * block, s[3] / (block * block)});
}

}  // namespace lockstep
