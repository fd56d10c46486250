// Optimizers with Keras' formulas and defaults. A handle: copies share slots and iteration count.
#pragma once

#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "lockstep/graph/variable.h"

namespace lockstep::keras::optimizers {

class Optimizer {
 public:
  class Rule;
  explicit Optimizer(std::shared_ptr<Rule> rule) : rule_(std::move(rule)) {}
  // NOLINTBEGIN(google-explicit-constructor): .optimizer = "adam", with its defaults
  Optimizer(const char* name, std::source_location where = std::source_location::current());
  Optimizer(const std::string& name, std::source_location where = std::source_location::current());
  // NOLINTEND(google-explicit-constructor)

  // Updates every variable by its gradient; an undefined gradient leaves its variable alone, all
  // undefined is an error. Slots are made when a variable is first seen. Works eagerly and traced;
  // under replicas the gradients must have been summed over them.
  void apply_gradients(std::span<const Tensor> gradients, const std::vector<Variable>& variables,
                       std::source_location where = std::source_location::current());

  // float32 scalar; assigning it changes the rate of compiled steps too.
  const Variable& learning_rate() const;
  // int64 scalar: updates made so far.
  const Variable& iterations() const;
  // iterations, learning_rate, then every slot in the order of creation.
  std::vector<Variable> variables() const;

 private:
  std::shared_ptr<Rule> rule_;
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
};
// w -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)
Optimizer Adam(const AdamOptions& options = {});

struct SgdOptions {
  double learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
};
// m = momentum * m - learning_rate * g;  w += m  (Nesterov: w += momentum * m - learning_rate * g)
Optimizer SGD(const SgdOptions& options = {});

}  // namespace lockstep::keras::optimizers
