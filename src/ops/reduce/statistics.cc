// Functions made of reductions and elementwise ops, which are fused around them.
#include <cmath>
#include <limits>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/reduce/reduce.h"

namespace lockstep {
namespace {

void require_floating(const char* name, const TensorArg& x) {
  require(is_floating(x.tensor(name).dtype()), ErrorCode::dtype_mismatch, x.where(), name,
          ": takes floating-point tensors, received ", x.tensor().spec(), "; cast() it first");
}

ReduceOptions kept(const ReduceOptions& options) { return {.axis = options.axis, .keepdims = true}; }

// Booleans as 0 and 1: the largest says whether there is any, the smallest whether all are.
Tensor reduce_booleans(const char* name, const OpDef& op, bool of_nothing, const TensorArg& x,
                       const ReduceOptions& options) {
  require(x.tensor(name).dtype() == DType::boolean, ErrorCode::dtype_mismatch, x.where(), name,
          ": takes booleans, received ", x.tensor().spec(), "; compare it first, for example x != 0");
  const TensorArg numbers(cast(x, DType::uint8), x.where());
  if (x.tensor().size() == 0) {  // there is no extremum of nothing, but there is a sum
    const Tensor sum = reduce(kReduceSum, name, numbers, options);
    return fill_beside(sum, {DType::boolean, sum.shape()}, of_nothing, x.where());
  }
  return cast(reduce(op, name, numbers, options), DType::boolean);
}

// The root, whose gradient at 0 is 0 and not infinite.
Tensor safe_sqrt(const Tensor& square_sum) {
  const Tensor zero = equal(square_sum, 0.0);
  return where(zero, 0.0, sqrt(where(zero, 1.0, square_sum)));
}

}  // namespace

Tensor reduce_any(const TensorArg& x, const ReduceOptions& options) {
  return reduce_booleans("reduce_any", kReduceMax, false, x, options);
}
Tensor reduce_all(const TensorArg& x, const ReduceOptions& options) {
  return reduce_booleans("reduce_all", kReduceMin, true, x, options);
}

Tensor reduce_logsumexp(const TensorArg& x, const ReduceOptions& options) {
  const char* name = "reduce_logsumexp";
  require_floating(name, x);
  // Any shift gives the same result: the largest element keeps the exponentials in range.
  const Tensor largest = stop_gradient(reduce(kReduceMax, name, x, kept(options)));
  const Tensor shift = where(is_finite(largest), largest, 0.0);
  const Tensor sum = reduce(kReduceSum, name, {exp(x.tensor() - shift), x.where()}, options);
  return log(sum) + reshape(shift, sum.shape());
}

Tensor reduce_variance(const TensorArg& x, const ReduceOptions& options) {
  const char* name = "reduce_variance";
  require_floating(name, x);
  const Tensor sum = reduce(kReduceSum, name, x, kept(options));
  const double count =
      static_cast<double>(x.tensor().size()) / static_cast<double>(std::max<int64_t>(sum.size(), 1));
  const Tensor squares = square(x.tensor() - sum * (1 / count));
  return reduce(kReduceSum, name, {squares, x.where()}, options) * (1 / count);
}

Tensor reduce_std(const TensorArg& x, const ReduceOptions& options) {
  require_floating("reduce_std", x);
  return sqrt(reduce_variance(x, options));
}

Tensor count_nonzero(const TensorArg& x, const ReduceOptions& options) {
  const char* name = "count_nonzero";
  const Tensor hits =
      x.tensor(name).dtype() == DType::boolean ? x.tensor() : not_equal(OperandArg(x.tensor(), x.where()), 0);
  return reduce(kReduceSum, name, {cast(hits, DType::int64), x.where()}, options);
}

Tensor argmin(const TensorArg& x, int axis) {
  const DType dtype = x.tensor("argmin").dtype();
  require(dtype != DType::boolean, ErrorCode::dtype_mismatch, x.where(), "argmin: takes numbers, received ",
          x.tensor().spec(), "; cast() it first");
  const int position = normalize_axis(axis, x.tensor().rank(), "argmin", x.where());
  // Upside down. The lowest integer has no negative, but every integer has a complement.
  const OperandArg value(x.tensor(), x.where());
  const Tensor reversed = is_floating(dtype) ? -x : (dtype == DType::uint8 ? 255 : -1) - value;
  return argmax({reversed, x.where()}, position);
}

Tensor norm(const TensorArg& x, const NormOptions& options) {
  const char* name = "norm";
  require_floating(name, x);
  const double p = options.ord;
  require(p > 0, ErrorCode::invalid_argument, x.where(),
          "norm: ord is positive (infinity for the largest element), received ", p);
  const ReduceOptions over{.axis = options.axis, .keepdims = options.keepdims};
  if (p == 2) return safe_sqrt(reduce(kReduceSum, name, {square(x), x.where()}, over));
  const TensorArg magnitudes(abs(x), x.where());
  if (p == 1) return reduce(kReduceSum, name, magnitudes, over);
  if (std::isinf(p)) return reduce(kReduceMax, name, magnitudes, over);
  return pow(reduce(kReduceSum, name, {pow(magnitudes.tensor(), p), x.where()}, over), 1 / p);
}

Tensor global_norm(std::span<const Tensor> tensors, std::source_location where) {
  DType dtype = DType::float32;
  for (const Tensor& x : tensors)
    if (x.defined()) {
      require_floating("global_norm", {x, where});
      if (x.dtype() == DType::float64) dtype = DType::float64;
    }
  Tensor sum;
  for (const Tensor& x : tensors) {
    if (!x.defined()) continue;
    const Tensor own = reduce_sum(square(cast(x, dtype)));
    sum = sum.defined() ? sum + own : own;
  }
  require(sum.defined(), ErrorCode::invalid_argument, where,
          "global_norm: takes one or more tensors, received none");
  return safe_sqrt(sum);
}

Tensor clip_by_norm(const TensorArg& x, double clip_norm, const std::vector<int64_t>& axis) {
  require_floating("clip_by_norm", x);
  require(clip_norm > 0, ErrorCode::invalid_argument, x.where(),
          "clip_by_norm: clip_norm is positive, received ", clip_norm);
  const Tensor sum =
      reduce(kReduceSum, "clip_by_norm", {square(x), x.where()}, {.axis = axis, .keepdims = true});
  return x.tensor() * (clip_norm / maximum(safe_sqrt(sum), clip_norm));
}

ClippedByGlobalNorm clip_by_global_norm(std::span<const Tensor> tensors, double clip_norm,
                                        const Tensor& use_norm, std::source_location where) {
  require(clip_norm > 0, ErrorCode::invalid_argument, where,
          "clip_by_global_norm: clip_norm is positive, received ", clip_norm);
  ClippedByGlobalNorm result{.tensors = {},
                             .norm = use_norm.defined() ? use_norm : global_norm(tensors, where)};
  // norm - norm is 0, or NaN where the norm is not finite: infinities must not be scaled to 0 unseen.
  const Tensor scale = clip_norm / maximum(result.norm, clip_norm) + (result.norm - result.norm);
  for (const Tensor& x : tensors)
    result.tensors.push_back(x.defined() ? x * cast(scale, x.dtype()) : Tensor());
  return result;
}

}  // namespace lockstep
