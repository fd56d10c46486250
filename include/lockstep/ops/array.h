// Ops that move elements: reshaping, transposing, slicing, joining, looking up.
// reshape, transpose, slice and broadcast_to are views where the memory layout allows it.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

// The shape as a tensor of one dimension; x.shape() is the same as a value of the program.
Tensor shape(const TensorArg& x, DType out_type = DType::int32);

// One dimension may be -1: it takes what is left.
Tensor reshape(const TensorArg& x, const Shape& shape);
// Axes in the new order; empty: reversed.
Tensor transpose(const TensorArg& x, const Dims& permutation = {});
// x[begin : begin + size] in every dimension; a size of -1 means up to the end.
Tensor slice(const TensorArg& x, const Dims& begin, const Dims& size);
// x[begin : end : stride] in every dimension, Python's rules for negative positions and strides.
Tensor strided_slice(const TensorArg& x, const Dims& begin, const Dims& end, const Dims& strides);
Tensor broadcast_to(const TensorArg& x, const Shape& shape);
Tensor expand_dims(const TensorArg& x, int axis);
// Empty axes: every dimension of size 1.
Tensor squeeze(const TensorArg& x, const Dims& axes = {});
// concat({a, b}, 0)
Tensor concat(std::span<const Tensor> parts, int axis,
              std::source_location where = std::source_location::current());
Tensor concat(std::initializer_list<TensorArg> parts, int axis,
              std::source_location where = std::source_location::current());
// Tensors of one shape, joined along a new dimension at `axis`; and the reverse. stack({a, b})
Tensor stack(std::span<const Tensor> parts, int axis = 0,
             std::source_location where = std::source_location::current());
Tensor stack(std::initializer_list<TensorArg> parts, int axis = 0,
             std::source_location where = std::source_location::current());
TensorList unstack(const TensorArg& x, int axis = 0);
// Equal parts, or parts of these sizes, of which one may be -1: it takes what is left.
TensorList split(const TensorArg& x, int parts, int axis);
TensorList split(const TensorArg& x, std::span<const int64_t> sizes, int axis);
TensorList split(const TensorArg& x, std::initializer_list<int64_t> sizes, int axis);

// x again and again: multiples[i] times along dimension i.
Tensor tile(const TensorArg& x, const Dims& multiples);
// Every element along `axis` `repeats` times in succession; or the i-th one repeats[i] times.
Tensor repeat(const TensorArg& x, int64_t repeats, int axis);
Tensor repeat(const TensorArg& x, const std::vector<int64_t>& repeats, int axis);
// Backwards along these axes: a view.
Tensor reverse(const TensorArg& x, const Dims& axes);
inline Tensor flip(const TensorArg& x, const Dims& axes) { return reverse(x, axes); }
// Elements move by shift[i] along axes[i]; those that leave come in at the other end.
Tensor roll(const TensorArg& x, const Dims& shift, const Dims& axes);
Tensor swapaxes(const TensorArg& x, int a, int b);
// Axes source[i] go to the places destination[i]; the others keep their order.
Tensor moveaxis(const TensorArg& x, const Dims& source, const Dims& destination);
enum class MeshIndexing { xy, ij };
// The grid that vectors span: result k has vector k's elements along its dimension (xy: the first two are
// swapped).
TensorList meshgrid(std::span<const Tensor> vectors, MeshIndexing indexing = MeshIndexing::xy,
                    std::source_location where = std::source_location::current());
// Squares of block x block pixels of [batch, height, width, channels] become channels of one pixel; and the
// reverse.
Tensor space_to_depth(const TensorArg& x, int64_t block);
Tensor depth_to_space(const TensorArg& x, int64_t block);

enum class PadMode {
  constant,
  reflect,    // the elements beside the edge, mirrored: 3 2 [1 2 3] 2 1
  symmetric,  // the edge too: 2 1 [1 2 3] 3 2
};
struct PadOptions {
  PadMode mode = PadMode::constant;
  double constant_value = 0;
};
// Elements around x: before[i] and after[i] along dimension i.
Tensor pad(const TensorArg& x, const Dims& before, const Dims& after, const PadOptions& options = {});

// Rows of `table` along `axis`, chosen by int32 or int64 `indices`. The first `batch_dims` dimensions of both
// are the same: each of those rows has its own indices.
Tensor gather(const TensorArg& table, const TensorArg& indices, int axis = 0, int batch_dims = 0);
// x[..., indices[..., k], ...]: one element for each index, chosen along `axis`; all other dimensions
// broadcast.
Tensor take_along_axis(const TensorArg& x, const TensorArg& indices, int axis);
// The last dimension of `indices` is a place in the first dimensions of x: the elements, or parts, that stand
// there.
Tensor gather_nd(const TensorArg& x, const TensorArg& indices);
// Adds `updates` into zeros of `shape` at the places that `indices` name as gather_nd reads them, in order.
Tensor scatter_nd(const TensorArg& indices, const TensorArg& updates, const Shape& shape);
// x with `updates` added to, or put at, these places. Where a place is named twice the last update stays.
Tensor tensor_scatter_nd_add(const TensorArg& x, const TensorArg& indices, const TensorArg& updates);
Tensor tensor_scatter_nd_update(const TensorArg& x, const TensorArg& indices, const TensorArg& updates);
// The number, in row-major order, of each place in `shape` that the last dimension of `indices` names; int64.
// A place that does not exist is an error that names it.
Tensor ravel_multi_index(const TensorArg& indices, const Shape& shape);
// Sums the rows of `values` into a tensor of `rows` rows at `indices`: the gradient of gather. The
// rows are added in order, so the result does not depend on the number of threads.
Tensor scatter_add(const TensorArg& values, const TensorArg& indices, int64_t rows);
// 1 at the index and 0 elsewhere, in a new last dimension.
Tensor one_hot(const TensorArg& indices, int64_t depth, DType dtype = DType::float32);

// --- numbers in a row, matrices ----------------------------------------------------------------------------

// start, start + delta, ... while below `limit` (above it where delta is negative).
Tensor range(double start, double limit, double delta = 1, DType dtype = DType::int32,
             std::source_location where = std::source_location::current());
Tensor range(double limit, DType dtype = DType::int32,
             std::source_location where = std::source_location::current());
// `count` numbers from `start` to `stop`, both of them among the numbers.
Tensor linspace(double start, double stop, int64_t count, DType dtype = DType::float32,
                std::source_location where = std::source_location::current());
// Ones on the diagonal; columns of -1: as many as rows.
Tensor eye(int64_t rows, int64_t columns = -1, DType dtype = DType::float32,
           std::source_location where = std::source_location::current());
// Matrices are the last two dimensions. `k`: the diagonal so far above (below: negative) the main one.
Tensor diag(const TensorArg& x, int k = 0);       // matrices with x on the diagonal, 0 elsewhere
Tensor diag_part(const TensorArg& x, int k = 0);  // the diagonals of matrices
Tensor trace(const TensorArg& x);
Tensor tril(const TensorArg& x, int k = 0);  // 0 above diagonal k
Tensor triu(const TensorArg& x, int k = 0);  // 0 below diagonal k
// 0 but for `lower` diagonals below the main one and `upper` above it; negative: all of them.
Tensor band_part(const TensorArg& x, int64_t lower, int64_t upper);
// Row i is true in its first lengths[i] of `length` places.
Tensor sequence_mask(const TensorArg& lengths, int64_t length);
// How often each of 0 ... length - 1 is in x, or the sum of its weights; another number is an error. int64,
// or the weights' dtype.
Tensor bincount(const TensorArg& x, int64_t length);
Tensor bincount(const TensorArg& x, int64_t length, const TensorArg& weights);

}  // namespace lockstep
