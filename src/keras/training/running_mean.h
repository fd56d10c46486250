// A mean over batches, kept in two variables that compiled steps update.
#pragma once

#include <vector>

#include "lockstep/graph/variable.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {

class RunningMean {
 public:
  RunningMean()
      : total_(Tensor::scalar(0.0F), {.name = "total", .trainable = false}),
        count_(Tensor::scalar(0.0F), {.name = "count", .trainable = false}) {}

  // `mean` over `examples` examples; the same on every replica.
  void add(const Tensor& mean, int64_t examples) const {
    const double weight = static_cast<double>(examples);
    total_.assign_add(cast(mean, DType::float32) * weight);
    count_.assign_add(ones_like(count_) * weight);
  }
  // Not finite any more once a mean was not.
  Tensor total() const { return total_.value(); }
  // In float32, as Keras divides.
  double result() const {
    const float count = count_.value().item<float>();
    return count == 0 ? 0 : total_.value().item<float>() / count;
  }
  std::vector<Variable> variables() const { return {total_, count_}; }
  void reset() const {
    total_.assign(Tensor::scalar(0.0F));
    count_.assign(Tensor::scalar(0.0F));
  }

 private:
  Variable total_;
  Variable count_;
};

}  // namespace lockstep::keras
