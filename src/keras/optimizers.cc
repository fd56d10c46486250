#include "lockstep/keras/optimizers.h"

#include <algorithm>
#include <map>

#include "graph/emit.h"
#include "graph/variable_impl.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/math.h"
#include "ops/update/update.h"

namespace lockstep::keras::optimizers {

// How one variable is updated; keeps the slots.
class Optimizer::Rule {
 public:
  explicit Rule(double learning_rate)
      : learning_rate_(Tensor::scalar(static_cast<float>(learning_rate)),
                       {.name = "learning_rate", .trainable = false}),
        iterations_(Tensor::scalar(int64_t{0}), {.name = "iterations", .trainable = false}) {}
  virtual ~Rule() = default;

  virtual int slots() const = 0;
  // The factor of the step, once for all variables of a dtype.
  virtual Tensor rate(DType dtype) const { return cast(learning_rate_, dtype); }
  virtual void update(const Variable& variable, const Tensor& gradient, const Tensor& rate,
                      std::span<const Variable> slots, std::source_location where) const = 0;

  std::span<const Variable> slots_of(const Variable& variable) {
    auto& held = slots_[variable.id()];
    while (static_cast<int>(held.size()) < slots()) {
      const Tensor zeros =
          Tensor::full(variable.dtype(), variable.shape(), 0.0, variable.impl()->value.device());
      held.emplace_back(zeros,
                        VariableOptions{.name = variable.name() + "/slot_" + std::to_string(held.size()),
                                        .trainable = false});
      all_slots_.push_back(held.back());
    }
    return held;
  }

  Variable learning_rate_;
  Variable iterations_;
  std::map<uint64_t, std::vector<Variable>> slots_;
  std::vector<Variable> all_slots_;
};

void Optimizer::apply_gradients(std::span<const Tensor> gradients, const std::vector<Variable>& variables,
                                std::source_location where) {
  require(gradients.size() == variables.size(), ErrorCode::invalid_argument, where,
          "apply_gradients: ", gradients.size(), " gradients for ", variables.size(), " variables");
  require(
      std::any_of(gradients.begin(), gradients.end(), [](const Tensor& g) { return g.defined(); }),
      ErrorCode::invalid_argument, where,
      "apply_gradients: no variable has a gradient; is the loss computed from them, inside the tape's life?");
  // Updates are not part of what a tape differentiates.
  const RecorderPause pause;
  std::map<DType, Tensor> rates;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!gradients[i].defined()) continue;
    Tensor& rate = rates[variables[i].dtype()];
    if (!rate.defined()) rate = rule_->rate(variables[i].dtype());
    try {
      rule_->update(variables[i], gradients[i], rate, rule_->slots_of(variables[i]), where);
    } catch (Error& error) {
      error.note("while updating variable \"" + variables[i].name() + "\"");
      throw;
    }
  }
  rule_->iterations_.assign_add(ones_like(rule_->iterations_), where);
}

const Variable& Optimizer::learning_rate() const { return rule_->learning_rate_; }
const Variable& Optimizer::iterations() const { return rule_->iterations_; }

std::vector<Variable> Optimizer::variables() const {
  std::vector<Variable> all = {rule_->iterations_, rule_->learning_rate_};
  all.insert(all.end(), rule_->all_slots_.begin(), rule_->all_slots_.end());
  return all;
}

namespace {

class AdamRule final : public Optimizer::Rule {
 public:
  explicit AdamRule(const AdamOptions& options) : Rule(options.learning_rate), options_(options) {}

  int slots() const override { return 2; }

  // In 16 bits beta_2^t would be 1 for a hundred steps.
  Tensor rate(DType dtype) const override {
    const DType wide = dtype == DType::float64 ? DType::float64 : DType::float32;
    const Tensor t = cast(iterations_, wide) + 1.0;
    const auto power = [&](double beta) { return lockstep::pow(beta, t); };
    return cast(
        cast(learning_rate_, wide) * sqrt(1.0 - power(options_.beta_2)) / (1.0 - power(options_.beta_1)),
        dtype);
  }

  void update(const Variable& w, const Tensor& gradient, const Tensor& rate, std::span<const Variable> slots,
              std::source_location where) const override {
    const TensorList updated = adam_update(
        w.value(where), slots[0].value(where), slots[1].value(where), gradient, rate,
        {.beta_1 = options_.beta_1, .beta_2 = options_.beta_2, .epsilon = options_.epsilon}, where);
    w.assign(updated[0], where);
    slots[0].assign(updated[1], where);
    slots[1].assign(updated[2], where);
  }

 private:
  AdamOptions options_;
};

class SgdRule final : public Optimizer::Rule {
 public:
  explicit SgdRule(const SgdOptions& options) : Rule(options.learning_rate), options_(options) {}

  int slots() const override { return options_.momentum != 0 ? 1 : 0; }

  void update(const Variable& w, const Tensor& gradient, const Tensor& rate, std::span<const Variable> slots,
              std::source_location where) const override {
    if (slots.empty()) {
      w.assign(sgd_update(w.value(where), gradient, rate, where), where);
      return;
    }
    const TensorList updated =
        sgd_momentum_update(w.value(where), slots[0].value(where), gradient, rate,
                            {.momentum = options_.momentum, .nesterov = options_.nesterov}, where);
    w.assign(updated[0], where);
    slots[0].assign(updated[1], where);
  }

 private:
  SgdOptions options_;
};

}  // namespace

Optimizer Adam(const AdamOptions& options) { return Optimizer(std::make_shared<AdamRule>(options)); }
Optimizer SGD(const SgdOptions& options) { return Optimizer(std::make_shared<SgdRule>(options)); }

}  // namespace lockstep::keras::optimizers
