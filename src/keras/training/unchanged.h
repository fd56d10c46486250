// Trying a model's training step out without training it.
#pragma once

#include <utility>
#include <vector>

#include "lockstep/keras/model.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {

// Puts everything that a training step changes back when it goes, or when told to.
class Unchanged {
 public:
  explicit Unchanged(const Model& model) {
    keep(model.weights());
    keep(model.optimizer().variables());
    for (const Metric& metric : model.metrics()) keep(metric.variables());
    keep({random::default_generator().state()});
  }
  ~Unchanged() { restore(); }
  void restore() const {
    for (const auto& [variable, value] : values_) variable.assign(value);
  }
  Unchanged(const Unchanged&) = delete;
  Unchanged& operator=(const Unchanged&) = delete;

 private:
  void keep(const std::vector<Variable>& variables) {
    for (const Variable& variable : variables) values_.emplace_back(variable, variable.value());
  }
  std::vector<std::pair<Variable, Tensor>> values_;
};

}  // namespace lockstep::keras
