// Functions on the last two dimensions, and others that compare positions.
#include <algorithm>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/array/array.h"
#include "ops/array/range.h"

namespace lockstep {
namespace {

void require_matrices(const char* name, const TensorArg& x) {
  require(x.tensor(name).rank() >= 2, ErrorCode::shape_mismatch, x.where(), name,
          ": takes matrices (rank 2 or more), received ", x.tensor().shape());
}

// Column number minus row number.
Tensor distance_from_diagonal(const Tensor& x) {
  const int64_t rows = x.shape()[-2], columns = x.shape()[-1];
  return index_range(x, columns, 1, DType::int32) - reshape(index_range(x, rows, 1, DType::int32), {rows, 1});
}

}  // namespace

Tensor eye(int64_t rows, int64_t columns, DType dtype, std::source_location where) {
  require(rows >= 0 && columns >= -1, ErrorCode::invalid_argument, where,
          "eye: numbers of rows and columns are not negative, received ", rows, " and ", columns);
  return one_hot({range(static_cast<double>(rows), DType::int64, where), where}, columns < 0 ? rows : columns,
                 dtype);
}

Tensor diag(const TensorArg& x, int k) {
  const Shape& shape = x.tensor("diag").shape();
  require(shape.rank() >= 1, ErrorCode::shape_mismatch, x.where(),
          "diag: takes vectors (rank 1 or more), received a scalar");
  const Tensor on_diagonal = one_hot(index_range(x.tensor(), shape[-1]), shape[-1], DType::boolean);
  Tensor square = where(on_diagonal, expand_dims(x, -1), 0);
  if (k == 0) return square;
  Dims before = Dims::filled(square.rank(), 0), after = before;
  (k > 0 ? before[-1] : before[-2]) = (k > 0 ? after[-2] : after[-1]) = std::abs(k);
  return pad(square, before, after);
}

Tensor diag_part(const TensorArg& x, int k) {
  require_matrices("diag_part", x);
  const Shape& shape = x.tensor().shape();
  const int64_t rows = shape[-2], columns = shape[-1];
  const int64_t first_row = std::max(-k, 0), first_column = std::max(k, 0);
  require(first_row <= rows && first_column <= columns, ErrorCode::invalid_argument, x.where(),
          "diag_part: there is no diagonal ", k, " in ", shape);
  Shape flat = shape.drop_last(2);
  flat.push_back(rows * columns);
  // One row and one column on is columns + 1 elements on.
  StridedSliceAttrs attrs{Dims::filled(flat.rank(), 0), flat, Dims::filled(flat.rank(), 1)};
  attrs.begin[-1] = first_row * columns + first_column;
  attrs.size[-1] = std::min(rows - first_row, columns - first_column);
  attrs.stride[-1] = columns + 1;
  return emit_one(kStridedSlice, {reshape(x, flat)}, attrs, x.where());
}

Tensor trace(const TensorArg& x) {
  require_matrices("trace", x);
  return reduce_sum({diag_part(x), x.where()}, {.axis = {-1}});
}

Tensor tril(const TensorArg& x, int k) {
  require_matrices("tril", x);
  return where(distance_from_diagonal(x.tensor()) <= k, x.tensor(), 0);
}

Tensor triu(const TensorArg& x, int k) {
  require_matrices("triu", x);
  return where(distance_from_diagonal(x.tensor()) >= k, x.tensor(), 0);
}

Tensor band_part(const TensorArg& x, int64_t lower, int64_t upper) {
  require_matrices("band_part", x);
  const Tensor distance = distance_from_diagonal(x.tensor());
  const int64_t most = std::max(x.tensor().shape()[-2], x.tensor().shape()[-1]);
  const auto bound = [&](int64_t diagonals) { return diagonals < 0 ? most : std::min(diagonals, most); };
  return where(logical_and(distance >= -bound(lower), distance <= bound(upper)), x.tensor(), 0);
}

Tensor sequence_mask(const TensorArg& lengths, int64_t length) {
  require(is_integer(lengths.tensor("sequence_mask").dtype()), ErrorCode::dtype_mismatch, lengths.where(),
          "sequence_mask: lengths are integers, received ", lengths.tensor().spec());
  require(length >= 0, ErrorCode::invalid_argument, lengths.where(),
          "sequence_mask: the length is not negative, received ", length);
  const Tensor wide = cast(lengths, DType::int64);
  return index_range(wide, length) < expand_dims(wide, -1);
}

Tensor bincount(const TensorArg& x, int64_t length) {
  const TensorSpec counts{DType::int64, x.tensor("bincount").shape()};
  return bincount(x, length, {fill_beside(x.tensor(), counts, 1, x.where()), x.where()});
}

Tensor bincount(const TensorArg& x, int64_t length, const TensorArg& weights) {
  const DType dtype = x.tensor("bincount").dtype();
  require(is_integer(dtype), ErrorCode::dtype_mismatch, x.where(), "bincount: counts integers, received ",
          x.tensor().spec());
  require(length >= 0, ErrorCode::invalid_argument, x.where(),
          "bincount: the length is not negative, received ", length);
  require(weights.tensor("bincount").shape() == x.tensor().shape(), ErrorCode::shape_mismatch, x.where(),
          "bincount: one weight for each element of ", x.tensor().shape(), ", received ",
          weights.tensor().shape());
  const Tensor indices = dtype == DType::uint8 ? cast(x, DType::int32) : x.tensor();
  const Shape flat = {x.tensor().size()};
  return scatter_add({reshape(weights, flat), x.where()}, {reshape(indices, flat), x.where()}, length);
}

}  // namespace lockstep
