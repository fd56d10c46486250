// Reductions over any axes, and what is made of them. Sums are made in a fixed order that does not depend on
// the number of threads.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

struct ReduceOptions {
  std::vector<int64_t> axis = {};  // empty: all
  bool keepdims = false;
};

Tensor reduce_sum(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_mean(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_max(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_min(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_prod(const TensorArg& x, const ReduceOptions& options = {});
// Booleans: false and true where nothing is reduced.
Tensor reduce_any(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_all(const TensorArg& x, const ReduceOptions& options = {});
// log(sum(exp(x))) without overflow.
Tensor reduce_logsumexp(const TensorArg& x, const ReduceOptions& options = {});
// The variance of the population, the mean squared distance from the mean, and its square root.
Tensor reduce_variance(const TensorArg& x, const ReduceOptions& options = {});
Tensor reduce_std(const TensorArg& x, const ReduceOptions& options = {});
// How many elements are not 0 (booleans: true); int64.
Tensor count_nonzero(const TensorArg& x, const ReduceOptions& options = {});

// The same with axes by position: reduce_mean(x, 0), reduce_sum(x, {0, 1}, true). Templates, so that {} are
// options.
template <std::integral T>
ReduceOptions reduce_options(std::initializer_list<T> axes, bool keepdims) {
  return {std::vector<int64_t>(axes.begin(), axes.end()), keepdims};
}
#define LOCKSTEP_AXES_BY_POSITION(reduction)                                                   \
  template <std::integral T>                                                                   \
  Tensor reduction(const TensorArg& x, T axis, bool keepdims = false) {                        \
    return reduction(x, reduce_options({axis}, keepdims));                                     \
  }                                                                                            \
  template <std::integral T>                                                                   \
  Tensor reduction(const TensorArg& x, std::initializer_list<T> axes, bool keepdims = false) { \
    return reduction(x, reduce_options(axes, keepdims));                                       \
  }
LOCKSTEP_AXES_BY_POSITION(reduce_sum)
LOCKSTEP_AXES_BY_POSITION(reduce_mean)
LOCKSTEP_AXES_BY_POSITION(reduce_max)
LOCKSTEP_AXES_BY_POSITION(reduce_min)
LOCKSTEP_AXES_BY_POSITION(reduce_prod)
LOCKSTEP_AXES_BY_POSITION(reduce_any)
LOCKSTEP_AXES_BY_POSITION(reduce_all)
LOCKSTEP_AXES_BY_POSITION(reduce_logsumexp)
LOCKSTEP_AXES_BY_POSITION(reduce_variance)
LOCKSTEP_AXES_BY_POSITION(reduce_std)
LOCKSTEP_AXES_BY_POSITION(count_nonzero)
#undef LOCKSTEP_AXES_BY_POSITION

// Position of the largest or smallest element along `axis`, the first of equals; NaN comes before all; int64.
Tensor argmax(const TensorArg& x, int axis = -1);
Tensor argmin(const TensorArg& x, int axis = -1);

struct NormOptions {
  double ord = 2;                  // 1, 2 (Euclid's), infinity, or any other positive power
  std::vector<int64_t> axis = {};  // empty: all elements, as one vector
  bool keepdims = false;
};
// (sum |x|^ord)^(1/ord). The gradient of a Euclidean norm of 0 is 0.
Tensor norm(const TensorArg& x, const NormOptions& options = {});

struct CumulativeOptions {
  int axis = 0;
  bool exclusive = false;  // without the element itself: the first is 0 or 1
  bool reverse = false;    // from the end
};
// Sums and products of the elements up to each one. float32 is carried in float64, 16-bit floats in float32.
// The second derivative of cumprod is exact where no line has two zeros.
Tensor cumsum(const TensorArg& x, const CumulativeOptions& options = {});
Tensor cumprod(const TensorArg& x, const CumulativeOptions& options = {});

// The Euclidean norm of all elements of all tensors together, none left out; float64 where one of them is,
// else float32.
Tensor global_norm(std::span<const Tensor> tensors,
                   std::source_location where = std::source_location::current());
// x, scaled down where its Euclidean norm (over `axis`, or all) is above `clip_norm`.
Tensor clip_by_norm(const TensorArg& x, double clip_norm, const std::vector<int64_t>& axis = {});

struct ClippedByGlobalNorm {
  TensorList tensors;
  Tensor norm;  // before clipping
};
// All tensors scaled by one number, so that their global norm is at most `clip_norm`; NaN where the norm is
// not finite. A tensor that is none stays none. `use_norm`: the global norm, where it is known already.
ClippedByGlobalNorm clip_by_global_norm(std::span<const Tensor> tensors, double clip_norm,
                                        const Tensor& use_norm = {},
                                        std::source_location where = std::source_location::current());

}  // namespace lockstep
