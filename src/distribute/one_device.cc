#include "distribute/one_device.h"

#include <algorithm>

#include "autodiff/training_watch.h"
#include "distribute/strategy_owner.h"
#include "graph/emit.h"
#include "graph/variable_impl.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::distribute {
namespace {

constexpr const char* kMakeInScope =
    "inside  auto scope = strategy.scope();  or hand it over with strategy.adopt(model)";

using Living = std::vector<std::shared_ptr<const StrategyOwner>>;

void require_used(const Living& living, const char* user, std::source_location where) {
  for (const auto& owner : living)
    require(!owner->several() || owner->used(), ErrorCode::failed_precondition, where, user,
            ": would use one device, while ", owner->description(),
            " is there and nothing that can be trained was made in its scope; make and compile the model ",
            kMakeInScope);
}

const StrategyOwner* several_of(const std::shared_ptr<const VariableOwner>& owner) {
  const auto* known = dynamic_cast<const StrategyOwner*>(owner.get());
  return known && known->several() ? known : nullptr;
}

std::string line_of(std::source_location where) {
  return detail::concat(where.file_name(), ":", where.line());
}

// A loop takes gradients again and again; a single one may be for looking at.
void gradient_of_strategy(const StrategyOwner& owner, std::source_location where) {
  constexpr int kLoop = 2;
  const int weight = Trace::current() ? kLoop : 1;  // what is compiled runs again and again
  const int before = owner.gradients_outside.fetch_add(weight);
  if (before >= kLoop || before + weight < kLoop) return;
  log(LogAt(LogLevel::warning, where), "training runs on one device: ", line_of(CallSite::of(where)),
      " takes gradients of variables of ", owner.description(), " outside of strategy.run(); ",
      owner.alive() ? "strategy.run(step, batch) runs a step on all of its devices"
                    : "keep a copy of the strategy, which is gone, and call strategy.run(step, batch)");
}

void gradient_beside_strategy(const StrategyOwner& owner, const Variable& variable,
                              std::source_location where) {
  if (owner.told_of_others.exchange(true)) return;
  log(LogAt(LogLevel::warning, where), "variable \"", variable.name(), "\", made at ",
      line_of(variable.where()), ", is trained on one device: it belongs to no strategy, while ",
      owner.description(), " is there; make it ", kMakeInScope,
      "; where one device is meant, the scope of a OneDeviceStrategy says so");
}

// Without any strategy: the devices that a program leaves alone, unless it places its variables itself.
void gradient_without_strategy(std::span<const GradientSource> sources, std::source_location where) {
  static std::atomic<bool> told{false};
  if (told || scoped_device()) return;
  const Device& used = current_device();
  std::string others;
  for (const Device* device : logical_devices())
    if (device != &used && device->kind() == used.kind())
      others += (others.empty() ? "" : ", ") + device->name();
  if (others.empty()) return;
  for (const GradientSource& source : sources)
    if (source.variable().defined() && &source.variable().impl()->value.device() != &used) return;
  if (told.exchange(true)) return;
  log(LogAt(LogLevel::warning, where), "training runs on ", used.name(), ", and ", others,
      " stay idle: what is made in the scope of a tf::distribute::MirroredStrategy trains on all of them");
}

void watch(std::span<const GradientSource> sources, std::source_location where) {
  const Variable* variable = nullptr;  // of nobody
  for (const GradientSource& source : sources) {
    if (!source.variable().defined() || !source.variable().trainable()) continue;
    const std::shared_ptr<const VariableOwner>& owner = source.variable().owner();
    if (const StrategyOwner* several = several_of(owner)) return gradient_of_strategy(*several, where);
    if (!owner && !variable) variable = &source.variable();
  }
  if (!variable) return;
  const Living living = living_owners();
  require_used(living, "gradient", where);
  for (const auto& owner : living)
    if (owner->several()) return gradient_beside_strategy(*owner, *variable, where);
  gradient_without_strategy(sources, where);
}

const RegisterTrainingWatch registered(watch);

}  // namespace

void require_none_forgotten(const char* user, std::source_location where) {
  require_used(living_owners(), user, where);
}

void require_same_scope(const char* user, const std::shared_ptr<const VariableOwner>& optimizer,
                        const std::string& trained, std::source_location where) {
  const StrategyOwner* several = several_of(optimizer);
  require(!several || !several->alive(), ErrorCode::failed_precondition, where, user, ": ", trained,
          " would train on one device: its optimizer was made in the scope of ",
          several ? several->description() : "", ", it was not; make it, too, ", kMakeInScope);
}

void require_replicas(const std::vector<Variable>& variables,
                      const std::shared_ptr<const VariableOwner>& optimizer, std::source_location where) {
  if (ReplicaTrace::current()) return;
  for (const Variable& variable : variables)
    if (const StrategyOwner* several = several_of(variable.owner()))
      fail(ErrorCode::failed_precondition, where,
           "apply_gradients: would train on one device, for it is called outside of strategy.run(), while "
           "variable \"",
           variable.name(), "\" belongs to ", several->description(),
           "; call the step on all devices, each with its slice:  "
           "for (const auto& batch : strategy.distribute_dataset(dataset)) strategy.run(step, batch);");
  if (!variables.empty())
    require_same_scope("apply_gradients", optimizer,
                       detail::concat("variable \"", variables[0].name(), "\", made at ",
                                      line_of(variables[0].where()), ","),
                       where);
}

}  // namespace lockstep::distribute
