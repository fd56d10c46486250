#include "execute/graph_replay.h"

#include <algorithm>
#include <utility>

#include "device/device_backend.h"

namespace lockstep::execute {

void GraphReplay::run_calls(const BoundPlan& plan, int phase, Stream& stream, const PhaseSync& sync) {
  if (prepare_) std::exchange(prepare_, nullptr)();
  plan.run(phase, stream, sync);
}

void GraphReplay::run(const BoundPlan& plan, int phase, Stream& stream, const PhaseSync& sync) {
  if (const auto [begin, end] = plan.launches_of(phase); begin == end && sync.empty()) return;
  // A trace shows every launch with the time that it takes on the device.
  if (!plan.capturable() || observe::tracing()) return run_calls(plan, phase, stream, sync);
  const std::span<void* const> pointers = plan.bound_pointers();
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const PhaseGraph& g) {
    return g.phase == phase &&
           std::equal(pointers.begin(), pointers.end(), g.pointers.begin(), g.pointers.end());
  });
  if (found == graphs_.end()) {
    if (graphs_.size() == kMost)
      graphs_.erase(std::min_element(graphs_.begin(), graphs_.end(),
                                     [](const auto& a, const auto& b) { return a.used < b.used; }));
    stream.device().bind_thread();
    const bool fused = whole_step_ && whole_step_->launch(plan.pointers(), stream);
    graphs_.push_back({phase, {pointers.begin(), pointers.end()}, fused, nullptr, ++runs_});
    if (!fused) run_calls(plan, phase, stream, sync);
    return;
  }
  found->used = ++runs_;
  if (!found->graph) {
    // A graph of one launch is still queued faster than the launch.
    const CapturedLaunch whole{.launch = [&](Stream& on) { whole_step_->launch(plan.pointers(), on); },
                               .after = {}};
    found->graph = stream.device().capture_graph(
        found->fused ? std::vector<CapturedLaunch>{whole} : plan.captured_launches(phase, sync, branches_));
  }
  if (!found->graph) return run_calls(plan, phase, stream, sync);
  found->graph->replay(stream);
}

bool GraphReplay::run(const BoundPlan& plan, const FunctionCore::RowRuns& runs, Stream& stream) {
  stream.device().bind_thread();
  return whole_step_ && whole_step_->launch(plan.pointers(), runs, stream);
}

}  // namespace lockstep::execute
