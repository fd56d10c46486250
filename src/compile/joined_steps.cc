#include "compile/joined_steps.h"

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

std::unique_ptr<JoinedSteps> join_steps(std::span<const Step> steps, Device& device) {
  const JoinSteps join = rule_of(device.kind());
  if (!join || steps.size() < 2 || !env::read_bool("LOCKSTEP_JOIN_STEPS", true)) return nullptr;
  return join(steps, device);
}

}  // namespace lockstep::compile
