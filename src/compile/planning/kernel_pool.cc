#include "compile/planning/kernel_pool.h"

#include <algorithm>

#include "base/parallel.h"
#include "compile/passes/transfers.h"
#include "compile/planning/launch_groups.h"
#include "device/device_backend.h"

namespace lockstep::compile {

const PreparedLaunch& KernelSet::launch(std::span<const Step> steps, size_t step) {
  if (launches_.size() < steps.size()) {
    launches_.resize(steps.size());
    prepared_.resize(steps.size(), false);
  }
  if (!prepared_[step]) {
    launches_[step] = prepare(steps, step);
    prepared_[step] = true;
  }
  return launches_[step];
}

PreparedLaunch KernelSet::prepare(std::span<const Step> steps, size_t index) const {
  const Step& step = steps[index];
  const DeviceKind kind = step_kind(step.place, options_);
  if (kind == DeviceKind::null || step.op == &kTransfer) return {};
  const int threads = step_threads(step, options_);
  const TeamScope team(threads);
  Device* const device = step_device(step.place, options_);
  if (device) backend_of(*device).bind_thread();
  if (const GroupSteps rule = group_rule(kind); rule && step.group >= 0) {
    const auto last = std::find_if(steps.begin() + static_cast<std::ptrdiff_t>(index), steps.end(),
                                   [&](const Step& s) { return s.group != step.group; });
    GroupedSteps grouped = rule({&step, static_cast<size_t>(last - steps.begin()) - index});
    if (grouped.kernel) return {std::move(grouped.kernel), grouped.count};
  }
  const KernelDef& def = find_kernel(kind, *step.op, step.where);
  return {def.prepare({.op = *step.op,
                       .attributes = step.attrs,
                       .inputs = step.input_layouts,
                       .outputs = step.output_layouts,
                       .device = device,
                       .threads = threads,
                       .where = step.where}),
          1};
}

std::shared_ptr<KernelSet> KernelPool::borrow(const PlanOptions& options) {
  std::unique_ptr<KernelSet> set;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(),
                                    [&](const auto& idle) { return same_kernels(idle->options(), options); });
    if (found != idle_.end()) {
      set = std::move(*found);
      idle_.erase(found);
    }
  }
  if (!set) set = std::make_unique<KernelSet>(options);
  return {set.release(), [pool = shared_from_this()](KernelSet* returned) {
            std::unique_ptr<KernelSet> owned(returned);
            const std::lock_guard lock(pool->mutex_);
            pool->idle_.push_back(std::move(owned));
          }};
}

}  // namespace lockstep::compile
