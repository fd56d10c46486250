#include "compile/planning/kernel_pool.h"

#include <algorithm>

#include "base/parallel.h"
#include "compile/planning/launch_groups.h"
#include "device/device_backend.h"

namespace lockstep::compile {

const PreparedLaunch& KernelSet::launch(std::span<const KernelCall> calls, size_t index) {
  if (launches_.size() < calls.size()) {
    launches_.resize(calls.size());
    prepared_.resize(calls.size(), false);
  }
  if (!prepared_[index]) {
    launches_[index] = prepare(calls, index);
    prepared_[index] = true;
  }
  return launches_[index];
}

PreparedLaunch KernelSet::prepare(std::span<const KernelCall> calls, size_t index) const {
  const KernelCall& call = calls[index];
  const DeviceKind kind = options_.kind_at(call.place);
  if (kind == DeviceKind::null || call.copies) return {};
  const int threads = options_.threads_for(call);
  const TeamScope team(threads);
  Device* const device = options_.device_at(call.place);
  if (device) backend_of(*device).bind_thread();
  if (const GroupCalls rule = group_rule(kind); rule && call.group >= 0) {
    const auto last = std::find_if(calls.begin() + static_cast<std::ptrdiff_t>(index), calls.end(),
                                   [&](const KernelCall& other) { return other.group != call.group; });
    GroupedCalls grouped = rule({&call, static_cast<size_t>(last - calls.begin()) - index});
    if (grouped.kernel) return {std::move(grouped.kernel), grouped.count};
  }
  return {find_kernel(kind, *call.op, call.where).prepare(call.request(device, threads)), 1};
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
