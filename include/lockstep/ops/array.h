// Ops that move elements: reshaping, transposing, slicing, joining, looking up.
// reshape, transpose, slice and broadcast_to are views where the memory layout allows it.
#pragma once

#include <span>
#include <vector>

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

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
Tensor concat(std::span<const Tensor> parts, int axis,
              std::source_location where = std::source_location::current());
TensorList split(const TensorArg& x, int parts, int axis);
// Zeros around x: before[i] and after[i] elements along dimension i.
Tensor pad(const TensorArg& x, const Dims& before, const Dims& after);
// Rows of `table` along `axis`, chosen by int32 or int64 `indices`.
Tensor gather(const TensorArg& table, const TensorArg& indices, int axis = 0);
// Sums the rows of `values` into a tensor of `rows` rows at `indices`: the gradient of gather. The
// rows are added in order, so the result does not depend on the number of threads.
Tensor scatter_add(const TensorArg& values, const TensorArg& indices, int64_t rows);
// 1 at the index and 0 elsewhere, in a new last dimension.
Tensor one_hot(const TensorArg& indices, int64_t depth, DType dtype = DType::float32);

}  // namespace lockstep
