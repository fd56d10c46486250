#include "keras/saving/optimizer_state.h"

#include <algorithm>
#include <map>

#include "keras/optimizers/core.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {
namespace {

constexpr DType kCounter = DType::int32;

// Slots that Keras keeps behind the others, for all variables together; those of one variable are beside each
// other else.
std::vector<std::string> slots_apart(const std::string& class_name) {
  if (class_name == "RMSprop") return {"momentum", "average_gradient"};
  return {"velocity_hat"};
}

StoredState kept(const std::string& name, const Variable& variable) {
  const DType dtype = variable.dtype() == DType::int64 ? kCounter : variable.dtype();
  return {.variable = variable, .spec = {dtype, variable.shape()}, .name = name};
}
StoredState unused(const TensorSpec& spec) { return {.variable = {}, .spec = spec, .name = "unused"}; }

// The state of the optimizer around a rule.
std::vector<StoredState> state_of_rule(const std::string& class_name, const Json& config,
                                       const std::vector<std::pair<std::string, Variable>>& named,
                                       const std::vector<Variable>& variables) {
  using Slots = std::vector<std::pair<std::string, Variable>>;
  std::map<size_t, Slots> slots;  // by the number of the variable
  std::vector<StoredState> first, last;
  for (const auto& [key, variable] : named) {
    if (key.starts_with("variables/")) {
      const size_t slash = key.find('/', 10);
      slots[std::stoul(key.substr(10, slash - 10))].emplace_back(key.substr(slash + 1), variable);
    } else if (key == "accumulated_gradients") {
      first[0].per_update = config.at("gradient_accumulation_steps").as_int();
      first[0].extra = variable;
    } else {
      const bool behind = key != "iteration" && key != "learning_rate";
      (behind ? last : first).push_back(kept(key, variable));
    }
  }
  std::vector<StoredState> all = std::move(first);
  const auto take = [&](size_t number, const std::string& name) {
    for (const auto& [slot, variable] : slots[number])
      if (slot == name) all.push_back(kept(variable.name(), variable));
  };
  std::vector<std::string> apart = slots_apart(class_name);
  for (const char* name : {"average", "gradient_accumulator"}) {
    for (size_t i = 0; i < slots.size(); ++i) take(i, name);
    apart.emplace_back(name);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    // Keras' Adafactor makes all three kinds of slot for every variable.
    const bool factored = class_name == "Adafactor", matrix = factored && variables.at(i).shape().rank() >= 2;
    if (factored && !matrix) all.insert(all.end(), 2, unused({kCounter, {}}));
    for (const auto& [slot, variable] : slots[i])
      if (std::find(apart.begin(), apart.end(), slot) == apart.end())
        all.push_back(kept(variable.name(), variable));
    if (matrix) all.push_back(unused(variables[i].spec()));
  }
  for (const std::string& name : slots_apart(class_name))
    for (size_t i = 0; i < slots.size(); ++i) take(i, name);
  all.insert(all.end(), last.begin(), last.end());
  return all;
}

}  // namespace

Tensor StoredState::value() const {
  if (!variable.defined()) return Tensor::full(spec.dtype, spec.shape, 0);
  Tensor now = variable.value();
  if (extra.defined()) now = now * per_update + extra.value();
  return now.dtype() == spec.dtype ? now : cast(now, spec.dtype);
}

void StoredState::read(const Tensor& stored, PendingWeights& into) const {
  if (!variable.defined()) return;
  if (!extra.defined()) return into.add(variable, stored);
  const Tensor batches = cast(stored, variable.dtype());
  into.add(variable, floordiv(batches, per_update));
  into.add(extra, floormod(batches, per_update));
}

std::vector<StoredState> stored_state(const optimizers::Optimizer& optimizer,
                                      const std::vector<Variable>& variables) {
  const optimizers::Optimizer::Core& core = *optimizer.core();
  std::vector<std::pair<std::string, Variable>> named = core.named_variables();
  const Json config = core.config();
  const Json* inner = config.find("inner_optimizer");
  if (!inner) return state_of_rule(core.class_name(), config, named, variables);
  // An optimizer in an optimizer: the outer one's own counter and rate, which nobody reads, its two, then the
  // inner one's.
  std::vector<StoredState> all = {unused({kCounter, {}}), unused({DType::float32, {}})};
  for (const char* name : {"step_counter", "dynamic_scale"}) {
    const auto found =
        std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
    all.push_back(kept(found->first, found->second));
    named.erase(found);
  }
  const std::vector<StoredState> rest =
      state_of_rule(inner->at("class_name").as_string(), inner->at("config"), named, variables);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace lockstep::keras
