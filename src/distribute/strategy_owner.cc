#include "distribute/strategy_owner.h"

#include <mutex>

#include "distribute/strategy_impl.h"
#include "lockstep/base/error.h"

namespace lockstep::distribute {
namespace {

// Those of all strategies that are alive.
struct Owners {
  std::mutex mutex;
  std::vector<std::weak_ptr<const StrategyOwner>> list;
};
Owners& owners() {
  static auto* all = new Owners;
  return *all;
}

}  // namespace

const std::shared_ptr<const VariableOwner>& Strategy::owner() const { return impl_->owner; }

StrategyOwner::StrategyOwner(const std::shared_ptr<Strategy::Impl>& impl)
    : impl_(impl),
      description_(Strategy(impl).description()),
      several_(impl->devices.size() > 1 || impl->workers) {}

std::optional<Strategy> StrategyOwner::strategy() const {
  auto impl = impl_.lock();
  if (!impl) return {};
  return Strategy(std::move(impl));
}

void add_living_owner(const std::shared_ptr<const StrategyOwner>& owner) {
  const std::lock_guard lock(owners().mutex);
  std::erase_if(owners().list, [](const auto& other) { return other.expired(); });
  owners().list.push_back(owner);
}

std::vector<std::shared_ptr<const StrategyOwner>> living_owners() {
  const std::lock_guard lock(owners().mutex);
  std::vector<std::shared_ptr<const StrategyOwner>> living;
  for (const auto& owner : owners().list)
    if (auto known = owner.lock(); known && known->alive()) living.push_back(std::move(known));
  return living;
}

Strategy Strategy::of(const std::shared_ptr<const VariableOwner>& owner) {
  const auto* known = dynamic_cast<const StrategyOwner*>(owner.get());
  return known ? known->strategy().value_or(Strategy()) : Strategy();
}

Strategy Strategy::current() { return of(VariableOwnerScope::current()); }

Strategy::Scope Strategy::scope(std::source_location where) const { return {*this, where}; }

Strategy::Scope::Scope(const Strategy& strategy, std::source_location where) {
  const Strategy outer = current();
  require(outer.kind() == Kind::none || outer == strategy, ErrorCode::failed_precondition, where,
          "scope: inside the scope of ", outer.description(), " there can be none of another strategy (",
          strategy.description(), "); end the outer one first");
  owner_ = std::make_unique<VariableOwnerScope>(strategy.owner());
}
Strategy::Scope::~Scope() = default;

void Strategy::adopt(const std::vector<Variable>& variables) const {
  for (const Variable& variable : variables) variable.set_owner(impl_->owner);
}

void Strategy::require_own(const std::vector<Variable>& variables, const char* user,
                           std::source_location where) const {
  for (const Variable& variable : variables) {
    if (variable.owner() == impl_->owner || (!variable.owner() && !variable.trainable())) continue;
    const std::source_location made = variable.where();
    const std::string theirs = variable.owner() ? variable.owner()->description() : "no strategy";
    fail(ErrorCode::failed_precondition, where, user, ": variable \"", variable.name(), "\" made at ",
         made.file_name(), ":", made.line(), " belongs to ", theirs, ", not to ", description(),
         "; make it (its layer or model) inside  auto scope = strategy.scope();  or hand it over with "
         "strategy.adopt(model)");
  }
}

}  // namespace lockstep::distribute
