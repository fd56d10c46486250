// A mean over batches, kept in two variables that compiled steps update.
#pragma once

#include <vector>

#include "lockstep/graph/variable.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {

class RunningMean {
 public:
  // In this dtype: float64 for means of float64, else float32.
  explicit RunningMean(DType dtype)
      : total_(zero(dtype), {.name = "total", .trainable = false}),
        count_(zero(dtype), {.name = "count", .trainable = false}) {}

  // `mean` over `examples` examples; the same on every replica.
  void add(const Tensor& mean, int64_t examples) const {
    const double weight = static_cast<double>(examples);
    total_.assign_add(cast(mean, total_.dtype()) * weight);
    count_.assign_add(ones_like(count_) * weight);
  }
  // Not finite any more once a mean was not.
  Tensor total() const { return total_.value(); }
  // Divided in its dtype, as Keras divides.
  double result() const { return total_.dtype() == DType::float64 ? quotient<double>() : quotient<float>(); }
  std::vector<Variable> variables() const { return {total_, count_}; }
  void reset() const {
    for (const Variable& variable : {total_, count_}) variable.assign(zero(variable.dtype()));
  }

 private:
  static Tensor zero(DType dtype) { return Tensor::full(dtype, {}, 0); }
  template <class T>
  T quotient() const {
    const T count = count_.value().item<T>();
    return count == 0 ? 0 : total_.value().item<T>() / count;
  }

  Variable total_;
  Variable count_;
};

}  // namespace lockstep::keras
