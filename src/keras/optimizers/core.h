// What an Optimizer handle names: the steps around a rule's update, or another optimizer inside.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/keras/optimizers.h"

namespace lockstep::keras::optimizers {

class Optimizer::Core {
 public:
  virtual ~Core() = default;

  virtual void build(const std::vector<Variable>& variables) = 0;
  // `guard`: a boolean scalar that leaves all state as it is where it is false; undefined: always true.
  virtual void apply(std::span<const Tensor> gradients, const std::vector<Variable>& variables,
                     const Tensor& guard, std::source_location where) = 0;
  virtual Tensor scale_loss(const Tensor& loss, std::source_location where) const = 0;
  virtual bool scales_loss() const = 0;
  // Whether apply() takes the gradients of one replica; else their sum over all.
  virtual bool accumulates() const = 0;
  virtual void finalize(const std::vector<Variable>& variables, std::source_location where) = 0;
  virtual void exclude_from_weight_decay(std::function<bool(const Variable&)> excluded) = 0;

  virtual const LearningRate& rate() const = 0;
  virtual const Variable& learning_rate() const = 0;  // undefined where the rate is a schedule
  virtual const Variable& iterations() const = 0;
  virtual Tensor current_rate() const = 0;  // float64 scalar, of the next step
  virtual std::vector<Variable> variables() const = 0;
  // The same variables as files name them, which does not depend on what they are called.
  virtual std::vector<std::pair<std::string, Variable>> named_variables() const = 0;
  virtual bool has_slots() const = 0;
  // Calls it whenever slots have been made. A second one of the same key is not taken.
  virtual void when_grown(const void* key, std::function<void()> call) = 0;

  virtual const std::string& name() const = 0;
  virtual std::string class_name() const = 0;
  virtual Json config() const = 0;
};

// The optimizer around a rule.
class RuleCore final : public Optimizer::Core {
 public:
  RuleCore(std::shared_ptr<const Optimizer::Rule> rule, OptimizerOptions options, std::source_location where);

  void build(const std::vector<Variable>& variables) override;
  void apply(std::span<const Tensor> gradients, const std::vector<Variable>& variables, const Tensor& guard,
             std::source_location where) override;
  Tensor scale_loss(const Tensor& loss, std::source_location where) const override;
  bool scales_loss() const override { return options_.loss_scale_factor.has_value(); }
  bool accumulates() const override { return options_.gradient_accumulation_steps.has_value(); }
  void finalize(const std::vector<Variable>& variables, std::source_location where) override;
  void exclude_from_weight_decay(std::function<bool(const Variable&)> excluded) override {
    excluded_ = std::move(excluded);
  }

  const LearningRate& rate() const override { return options_.learning_rate; }
  const Variable& learning_rate() const override { return learning_rate_; }
  const Variable& iterations() const override { return iterations_; }
  Tensor current_rate() const override;
  std::vector<Variable> variables() const override;
  std::vector<std::pair<std::string, Variable>> named_variables() const override;
  bool has_slots() const override { return !all_slots_.empty(); }
  void when_grown(const void* key, std::function<void()> call) override;

  const std::string& name() const override { return options_.name; }
  std::string class_name() const override { return rule_->class_name(); }
  Json config() const override;

 private:
  struct State {
    size_t number = 0;     // of the variable, in the order in which they were first seen
    Variable average;      // where use_ema
    Variable accumulator;  // where gradients are accumulated
    std::vector<Variable> slots;
  };

  // What updates of variables of one dtype have in common.
  struct StepScalars {
    TensorList rule;
    Tensor rate;
    Tensor renewal;  // of the moving averages: what the new value counts
  };

  // Boolean scalars that say what a batch changes.
  struct Guards {
    Tensor batch;      // anything at all; undefined: always
    Tensor updates;    // the rule's step: the last of those that accumulate; undefined: every batch
    Tensor step;       // both of them
    Tensor overwrite;  // the variables become their averages; undefined: never
  };

  Variable add_slot(const Variable& variable, const Slot& slot, bool per_replica = false);
  Tensor step() const;
  void accumulate(TensorList& gradients, const std::vector<Variable>& variables, const Tensor& guard,
                  const Tensor& updates, std::source_location where);
  void clip(TensorList& gradients) const;
  void update(const Variable& variable, const Tensor& gradient, const StepScalars& scalars,
              const Guards& guards, std::source_location where);

  std::shared_ptr<const Optimizer::Rule> rule_;
  OptimizerOptions options_;
  std::function<bool(const Variable&)> excluded_;
  Variable iterations_;
  Variable learning_rate_;
  Variable accumulated_;                                     // gradients in the accumulators
  std::vector<Variable> shared_;                             // the rule's
  std::map<uint64_t, State> states_;                         // by variable id
  std::vector<Variable> all_slots_;                          // in the order of creation
  std::vector<std::string> slot_keys_;                       // of all_slots_: "variables/3/momentum"
  std::map<const void*, std::function<void()>> when_grown_;  // by key
  std::map<std::string, int> names_;  // of all variables, and the number of the next that is to have it
};

}  // namespace lockstep::keras::optimizers
