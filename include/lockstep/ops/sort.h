// Order: sorting, the largest elements, positions in sorted lists.
//
// Equal elements keep their order; NaN is larger than every number, and -0 equals 0. Results do not depend on
// the number of threads.
#pragma once

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

enum class SortDirection { ascending, descending };

struct SortOptions {
  int axis = -1;
  SortDirection direction = SortDirection::ascending;
};

// Differentiable.
Tensor sort(const TensorArg& x, const SortOptions& options = {});
// Where the elements of sort(x) stand in x; int32.
Tensor argsort(const TensorArg& x, const SortOptions& options = {});

struct TopK {
  Tensor values;   // largest first; differentiable
  Tensor indices;  // their places in the last dimension; int32
};
// The k largest elements of the last dimension.
TopK top_k(const TensorArg& x, int64_t k = 1);

// Whether fewer than k of an example's predictions [batch, classes] are larger than its target's, and that
// one is finite. Targets [batch] are class numbers, int32 or int64; one that does not exist is an error.
Tensor in_top_k(const TensorArg& targets, const TensorArg& predictions, int64_t k);

enum class SearchSide { left, right };
// For each of `values` [..., m] the number of elements of `sorted` [..., n], ascending in the last dimension,
// that are smaller (left) or not larger (right); int32. The dimensions before the last are equal.
Tensor searchsorted(const TensorArg& sorted, const TensorArg& values, SearchSide side = SearchSide::left);

}  // namespace lockstep
