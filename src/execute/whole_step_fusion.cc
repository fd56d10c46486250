#include "execute/whole_step_fusion.h"

#include <array>

#include "base/environment.h"

namespace lockstep::compile {
namespace {

JoinSteps& rule_of(DeviceKind kind) {
  static std::array<JoinSteps, 8> rules{};
  return rules.at(static_cast<size_t>(kind));
}

}  // namespace

RegisterJoinSteps::RegisterJoinSteps(DeviceKind kind, JoinSteps join) { rule_of(kind) = join; }

std::unique_ptr<JoinedSteps> join_steps(const Plan& plan, Device& device) {
  const JoinSteps join = rule_of(device.kind());
  if (!join || plan.phases > 1 || !plan.devices.empty() || !env::read_bool("LOCKSTEP_JOIN_STEPS", true))
    return nullptr;
  return join(plan.steps, plan.parameters, device);
}

}  // namespace lockstep::compile
