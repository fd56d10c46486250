#include "execute/graph_replay.h"

#include <algorithm>

namespace lockstep::compile {

void RepeatedLaunches::run(const BoundProgram& program, int phase, Device& device,
                           const Crossings& crossings) {
  if (const auto [begin, end] = program.launches_of(phase);
      begin == end && crossings.waits.empty() && crossings.announcements.empty())
    return;
  // A trace shows every launch with the time that it takes on the device.
  if (!program.capturable() || observe::tracing()) return program.run(phase, crossings);
  DeviceBackend& backend = backend_of(device);
  const std::span<void* const> pointers = program.bound_pointers();
  const auto found = std::find_if(recordings_.begin(), recordings_.end(), [&](const Recording& r) {
    return r.phase == phase &&
           std::equal(pointers.begin(), pointers.end(), r.pointers.begin(), r.pointers.end());
  });
  if (found == recordings_.end()) {
    if (recordings_.size() == kMost)
      recordings_.erase(std::min_element(recordings_.begin(), recordings_.end(),
                                         [](const auto& a, const auto& b) { return a.used < b.used; }));
    backend.bind_thread();
    const bool joined = joined_ && joined_->launch(program.pointers(), backend.compute_stream());
    recordings_.push_back({phase, {pointers.begin(), pointers.end()}, joined, nullptr, ++runs_});
    if (!joined) program.run(phase, crossings);
    return;
  }
  found->used = ++runs_;
  if (!found->graph) {
    // A graph of one launch is still queued faster than the launch.
    const CapturedLaunch whole{.launch = [&](Stream& on) { joined_->launch(program.pointers(), on); },
                               .after = {}};
    found->graph = backend.capture(found->joined ? std::vector<CapturedLaunch>{whole}
                                                 : program.captured(phase, crossings, lanes_));
  }
  if (!found->graph) return program.run(phase, crossings);
  found->graph->replay(backend.compute_stream());
}

}  // namespace lockstep::compile
