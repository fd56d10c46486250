#include "execute/whole_step_fusion.h"

#include <array>

#include "base/environment.h"

namespace lockstep::execute {
namespace {

FuseWholeStep& rule_of(DeviceKind kind) {
  static std::array<FuseWholeStep, 8> rules{};
  return rules.at(static_cast<size_t>(kind));
}

}  // namespace

RegisterWholeStepFusion::RegisterWholeStepFusion(DeviceKind kind, FuseWholeStep fuse) {
  rule_of(kind) = fuse;
}

std::unique_ptr<WholeStepKernel> fuse_whole_step(const compile::Plan& plan, Device& device) {
  const FuseWholeStep fuse = rule_of(device.kind());
  if (!fuse || plan.phases > 1 || !plan.devices.empty() ||
      !env::read_bool("LOCKSTEP_WHOLE_STEP_FUSION", true))
    return nullptr;
  return fuse(plan.calls, plan.parameters, device);
}

}  // namespace lockstep::execute
