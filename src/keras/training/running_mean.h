// A mean over batches, kept in two variables that compiled steps update.
#pragma once

#include <vector>

#include "graph/emit.h"
#include "keras/weighing.h"
#include "lockstep/graph/variable.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {

class RunningMean {
 public:
  // `mean` over `examples` examples; the same on every replica. The first one says what is added up in.
  void add(const Tensor& mean, int64_t examples) {
    make(value_dtype(mean.dtype()));
    const double weight = static_cast<double>(examples);
    total_.assign_add(cast(mean, total_.dtype()) * weight);
    count_.assign_add(ones_like(count_) * weight);
  }
  // Not finite any more once a mean was not. After the first mean.
  Tensor total() const { return total_.value(); }
  // 0 before the first mean. In float32, as Keras divides, where the means are.
  double result() const {
    if (!total_.defined()) return 0;
    return total_.dtype() == DType::float64 ? quotient<double>() : static_cast<double>(quotient<float>());
  }
  // Empty before the first mean.
  std::vector<Variable> variables() const {
    return total_.defined() ? std::vector{total_, count_} : std::vector<Variable>();
  }
  void reset() const {
    for (const Variable& variable : variables()) variable.assign(zeros_like(variable));
  }

  // Makes the variables before the first mean, where they are to be filled.
  void make(DType dtype) {
    if (total_.defined()) return;
    const TracePause outside;
    total_ = Variable(zeros({}, dtype), {.name = "total", .trainable = false});
    count_ = Variable(zeros({}, dtype), {.name = "count", .trainable = false});
  }

 private:
  template <class T>
  T quotient() const {
    const T count = count_.value().item<T>();
    return count == 0 ? 0 : total_.value().item<T>() / count;
  }

  Variable total_;
  Variable count_;
};

}  // namespace lockstep::keras
