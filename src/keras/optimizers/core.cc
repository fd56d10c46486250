#include "keras/optimizers/core.h"

#include <algorithm>

#include "graph/emit.h"
#include "graph/variable_impl.h"
#include "keras/optimizers/settings.h"
#include "keras/registry.h"
#include "lockstep/base/error.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/collective/conditional.h"
#include "ops/update/update.h"

namespace lockstep::keras::optimizers {
namespace {

// `changed` where the guard holds.
Tensor guarded(const Tensor& guard, const Tensor& changed, const Tensor& old) {
  return guard.defined() ? where(guard, changed, old) : changed;
}

Tensor both(const Tensor& guard, const Tensor& condition) {
  return guard.defined() ? logical_and(guard, condition) : condition;
}

Tensor squared_norm(const Tensor& x) { return reduce_sum(square(cast(x, update_scalar_dtype(x.dtype())))); }

void check(const OptimizerOptions& o, std::source_location where) {
  const auto shown = [](const std::optional<double>& value) {
    return value ? std::to_string(*value) : std::string("none");
  };
  require(o.clipnorm.has_value() + o.clipvalue.has_value() + o.global_clipnorm.has_value() <= 1,
          ErrorCode::invalid_argument, where,
          "optimizer: at most one of clipnorm, clipvalue and global_clipnorm can be set, received clipnorm=",
          shown(o.clipnorm), ", clipvalue=", shown(o.clipvalue),
          ", global_clipnorm=", shown(o.global_clipnorm));
}

// The number next to `value` that a variable of this dtype can hold.
double rounded(double value, DType dtype) {
  return dtype == DType::float64 ? value : static_cast<double>(static_cast<float>(value));
}

Variable rate_variable(double rate, DType dtype) {
  return Variable(Tensor::full(dtype, {}, rate), {.name = "learning_rate", .trainable = false});
}

// Whether a run goes on without the replicas of workers that it has lost.
bool replicas_may_be_lost(const Variable& variable) {
  return distribute::Strategy::of(variable.owner()).options().elastic.min_workers > 0;
}

Variable counter(const std::string& name) {
  return Variable(Tensor::scalar(int64_t{0}), {.name = name, .trainable = false});
}

}  // namespace

RuleCore::RuleCore(std::shared_ptr<const Optimizer::Rule> rule, OptimizerOptions options,
                   std::source_location where)
    : rule_(std::move(rule)), options_(std::move(options)) {
  check(options_, where);
  if (options_.name.empty()) options_.name = to_snake_case(rule_->class_name());
  iterations_ = counter("iteration");
  if (!options_.learning_rate.is_schedule())
    learning_rate_ = rate_variable(options_.learning_rate.number(), DType::float32);
  if (options_.gradient_accumulation_steps) accumulated_ = counter("accumulated_gradients");
  for (const Slot& slot : rule_->shared())
    shared_.emplace_back(Tensor::scalar(slot.initial),
                         VariableOptions{.name = slot.name, .trainable = false});
  for (const Variable& variable : variables()) names_[variable.name()] = 1;
}

// --- state -------------------------------------------------------------------------------------------------

Variable RuleCore::add_slot(const Variable& variable, const Slot& slot, bool per_replica) {
  const std::string base = variable.name() + "/" + slot.name;
  std::string name = base;
  while (!names_.try_emplace(name, 1).second) name = base + "_" + std::to_string(names_[base]++);
  const DeviceScope beside(variable.impl()->value.device());
  Tensor initial = slot.starts_as_variable
                       ? variable.value()
                       : Tensor::full(variable.dtype(), slot.shape.value_or(variable.shape()), slot.initial,
                                      variable.impl()->value.device());
  slot_keys_.push_back("variables/" + std::to_string(states_[variable.id()].number) + "/" + slot.name);
  return all_slots_.emplace_back(
      std::move(initial), VariableOptions{.name = name, .trainable = false, .per_replica = per_replica});
}

void RuleCore::build(const std::vector<Variable>& variables) {
  const TracePause outside;
  std::vector<const Variable*> added;
  for (const Variable& variable : variables)
    if (const auto [state, fresh] = states_.try_emplace(variable.id()); fresh) {
      state->second.number = states_.size() - 1;
      added.push_back(&variable);
    }
  // float32 would round the rate by more than float64 weights may be off.
  const bool wide = std::any_of(added.begin(), added.end(),
                                [](const Variable* variable) { return variable->dtype() == DType::float64; });
  if (wide && learning_rate_.defined() && learning_rate_.dtype() == DType::float32) {
    const double now = cast(learning_rate_.value(), DType::float64).item<double>();
    const double asked = options_.learning_rate.number();
    learning_rate_ = rate_variable(now == rounded(asked, DType::float32) ? asked : now, DType::float64);
  }
  if (options_.use_ema)
    for (const Variable* variable : added) {
      Variable& average = states_[variable->id()].average = add_slot(*variable, {.name = "average"});
      average.assign(variable->value());
    }
  if (options_.gradient_accumulation_steps)
    for (const Variable* variable : added)
      states_[variable->id()].accumulator =
          add_slot(*variable, {.name = "gradient_accumulator"}, !replicas_may_be_lost(*variable));
  for (const Variable* variable : added)
    for (const Slot& slot : rule_->slots(*variable))
      states_[variable->id()].slots.push_back(add_slot(*variable, slot));
  if (!added.empty())
    for (const auto& [key, call] : std::map(when_grown_)) call();
}

void RuleCore::when_grown(const void* key, std::function<void()> call) {
  when_grown_.emplace(key, std::move(call));
}

std::vector<std::pair<std::string, Variable>> RuleCore::named_variables() const {
  std::vector<std::pair<std::string, Variable>> named;
  size_t slot = 0;
  for (const Variable& variable : variables()) {
    const bool is_slot = slot < all_slots_.size() && variable.id() == all_slots_[slot].id();
    named.emplace_back(is_slot ? slot_keys_[slot++] : variable.name(), variable);
  }
  return named;
}

std::vector<Variable> RuleCore::variables() const {
  std::vector<Variable> all = {iterations_};
  if (learning_rate_.defined()) all.push_back(learning_rate_);
  if (accumulated_.defined()) all.push_back(accumulated_);
  all.insert(all.end(), all_slots_.begin(), all_slots_.end());
  all.insert(all.end(), shared_.begin(), shared_.end());
  return all;
}

Json RuleCore::config() const {
  OptimizerOptions options = options_;
  // What was asked for reads better than the float32 next to it.
  if (learning_rate_.defined()) {
    const TracePause outside;
    const Tensor now = learning_rate_.value();
    const double number = cast(now, DType::float64).item<double>();
    if (number != rounded(options.learning_rate.number(), now.dtype())) options.learning_rate = number;
  }
  FieldWriter writer;
  visit_common(options, writer);
  Json config = writer.take();
  const Json own = rule_->config();
  for (const auto& [name, value] : own.members()) config.set(name, value);
  return config;
}

// --- the step ----------------------------------------------------------------------------------------------

Tensor RuleCore::step() const {
  const Tensor updates = iterations_.value();
  return accumulated_.defined() ? updates * *options_.gradient_accumulation_steps + accumulated_ : updates;
}

Tensor RuleCore::current_rate() const {
  const LearningRate& rate = options_.learning_rate;
  return cast(rate.is_schedule() ? rate.schedule()(step()) : learning_rate_.value(), DType::float64);
}

Tensor RuleCore::scale_loss(const Tensor& loss, std::source_location) const {
  return options_.loss_scale_factor ? loss * *options_.loss_scale_factor : loss;
}

// Until the update every replica sums its own gradients, and nothing is communicated. Where replicas may be
// lost all keep the sum over all of them, with every batch, so that nobody holds what others lack.
void RuleCore::accumulate(TensorList& gradients, const std::vector<Variable>& variables, const Tensor& guard,
                          const Tensor& updates, std::source_location where) {
  const auto accumulator_of = [&](size_t i) -> const Variable& {
    return states_.at(variables[i].id()).accumulator;
  };
  const bool in_parts = accumulator_of(0).per_replica();
  if (!in_parts) gradients = all_reduce_sum(gradients, where);
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const Variable& accumulator = accumulator_of(i);
    const Tensor old = accumulator.value();
    const Tensor sum = old + gradients[i];
    accumulator.assign(guarded(guard, lockstep::where(updates, 0.0, sum), old));
    gradients[i] =
        (in_parts ? all_reduce_sum_where(updates, sum, where) : sum) / *options_.gradient_accumulation_steps;
  }
  const Tensor old = accumulated_.value();
  accumulated_.assign(guarded(guard, lockstep::where(updates, 0, old + 1), old));
}

void RuleCore::clip(TensorList& gradients) const {
  const auto each = [&](auto&& clipped) {
    for (Tensor& gradient : gradients)
      if (gradient.defined()) gradient = clipped(gradient);
  };
  if (options_.clipvalue) {
    each([&](const Tensor& g) { return clip_by_value(g, -*options_.clipvalue, *options_.clipvalue); });
  } else if (options_.clipnorm) {
    each([&](const Tensor& g) {
      return g * cast(*options_.clipnorm / maximum(sqrt(squared_norm(g)), *options_.clipnorm), g.dtype());
    });
  } else if (options_.global_clipnorm) {
    Tensor sum;
    each([&](const Tensor& g) {
      const Tensor squares = cast(squared_norm(g), DType::float64);
      sum = sum.defined() ? sum + squares : squares;
      return g;
    });
    // A norm that is not finite makes every gradient NaN: scaling by 0 would hide it.
    const Tensor norm = sqrt(sum);
    const Tensor factor =
        *options_.global_clipnorm / maximum(norm, *options_.global_clipnorm) + (norm - norm);
    each([&](const Tensor& g) { return g * cast(factor, g.dtype()); });
  }
}

// In Keras' order: the rule's step where gradients have been accumulated; then, with every batch, the
// average, the overwriting by it, and the constraint.
void RuleCore::update(const Variable& variable, const Tensor& gradient, const StepScalars& scalars,
                      const Guards& guards, std::source_location where) {
  const State& state = states_.at(variable.id());
  const Tensor old = variable.value(where);
  const BesideScope home(old);
  Tensor changed = old;
  if (gradient.defined()) {
    const std::optional<double> decay = rule_->weight_decay(variable, options_.weight_decay);
    if (decay && !(excluded_ && excluded_(variable)))
      changed =
          descend(changed, changed, cast(scalars.rate * *decay, update_scalar_dtype(changed.dtype())), where);
    TensorList slots;
    for (const Variable& slot : state.slots) slots.push_back(slot.value(where));
    const TensorList updated = rule_->update(changed, slots, gradient, scalars.rule, where);
    for (size_t i = 0; i < slots.size(); ++i)
      state.slots[i].assign(guarded(guards.step, updated[i + 1], slots[i]), where);
    changed = guarded(guards.updates, updated[0], old);
  }
  if (options_.use_ema) {
    const Tensor average = state.average.value(where);
    const Tensor moved = descend(average, average - changed, scalars.renewal, where);
    state.average.assign(guarded(guards.batch, moved, average), where);
    if (guards.overwrite.defined()) changed = lockstep::where(guards.overwrite, moved, changed);
  }
  if (gradient.defined() && variable.constraint()) changed = variable.constraint()(changed);
  if (gradient.defined() || guards.overwrite.defined())
    variable.assign(guarded(guards.batch, changed, old), where);
}

void RuleCore::apply(std::span<const Tensor> given, const std::vector<Variable>& variables,
                     const Tensor& guard, std::source_location where) {
  build(variables);
  TensorList gradients(given.begin(), given.end());
  if (options_.loss_scale_factor)
    for (Tensor& gradient : gradients)
      if (gradient.defined()) gradient = gradient / *options_.loss_scale_factor;

  const Tensor rate = current_rate();
  const Tensor iterations = iterations_.value();
  const Tensor update_number = iterations + 1;
  Guards guards{.batch = guard, .updates = {}, .step = guard, .overwrite = {}};
  if (accumulated_.defined()) {
    guards.updates = equal(accumulated_ + 1, *options_.gradient_accumulation_steps);
    accumulate(gradients, variables, guard, guards.updates, where);
    guards.step = both(guard, guards.updates);
  }
  clip(gradients);

  TensorList shared;
  for (const Variable& variable : shared_) shared.push_back(variable.value());
  const Optimizer::Rule::Scalars scalars = rule_->scalars(rate, cast(update_number, DType::float64), shared);
  for (size_t i = 0; i < shared.size(); ++i)
    shared_[i].assign(guarded(guards.step, scalars.shared[i], shared[i]), where);

  Tensor renewal;
  if (options_.use_ema) {
    // The first value is taken as it is.
    renewal = lockstep::where(equal(iterations, 0), ones_like(rate), 1 - options_.ema_momentum);
    if (options_.ema_overwrite_frequency)
      guards.overwrite = equal(floormod(update_number, *options_.ema_overwrite_frequency), 0);
  }
  std::map<DType, StepScalars> by_dtype;
  for (size_t i = 0; i < variables.size(); ++i) {
    const auto [found, added] = by_dtype.try_emplace(update_scalar_dtype(variables[i].dtype()));
    if (added) {
      for (const Tensor& value : scalars.values) found->second.rule.push_back(cast(value, found->first));
      found->second.rate = rate;
      if (options_.use_ema) found->second.renewal = cast(renewal, found->first);
    }
    try {
      update(variables[i], gradients[i], found->second, guards, where);
    } catch (Error& error) {
      error.note("while updating variable \"" + variables[i].name() + "\"");
      throw;
    }
  }
  iterations_.assign(guarded(guards.step, update_number, iterations), where);
}

void RuleCore::finalize(const std::vector<Variable>& variables, std::source_location where) {
  if (!options_.use_ema) return;
  for (const Variable& variable : variables) {
    const auto state = states_.find(variable.id());
    require(state != states_.end(), ErrorCode::failed_precondition, where,
            "finalize_variable_values: the optimizer keeps no average of variable \"", variable.name(),
            "\"; it was not among those of build() or apply_gradients()");
    variable.assign(state->second.average.value(where), where);
  }
}

}  // namespace lockstep::keras::optimizers
