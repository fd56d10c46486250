// A strategy as variables, layers and optimizers know it. Does not keep it alive: variables outlive
// strategies.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/distribute/strategy.h"

namespace lockstep::distribute {

class StrategyOwner final : public VariableOwner {
 public:
  explicit StrategyOwner(const std::shared_ptr<Strategy::Impl>& impl);

  std::string description() const override { return description_; }
  bool alive() const { return !impl_.expired(); }
  // Nullopt: it is gone.
  std::optional<Strategy> strategy() const;
  // Whether a step of it runs on several devices, or in several processes.
  bool several() const { return several_; }

  // What one_device.cc has seen and said of it.
  mutable std::atomic<int> gradients_outside{0};  // of its variables, taken outside of replicas
  mutable std::atomic<bool> told_of_others{false};

 private:
  std::weak_ptr<Strategy::Impl> impl_;
  std::string description_;
  bool several_;
};

// Whoever makes a strategy says so.
void add_living_owner(const std::shared_ptr<const StrategyOwner>& owner);
// Those of all strategies that are alive.
std::vector<std::shared_ptr<const StrategyOwner>> living_owners();

}  // namespace lockstep::distribute
