#include "execute/graph_replay.h"

#include <algorithm>

namespace lockstep::compile {

void RepeatedLaunches::run(const BoundProgram& program, int phase, Device& device,
                           const Crossings& crossings) {
  if (const auto [begin, end] = program.launches_of(phase);
      begin == end && crossings.waits.empty() && crossings.announcements.empty())
    return;
  // A trace shows every launch with the time that it takes on the device.
  if (!program.recordable() || observe::tracing()) return program.run(phase, crossings);
  const std::span<void* const> pointers = program.bound_pointers();
  const auto found = std::find_if(recordings_.begin(), recordings_.end(), [&](const Recording& r) {
    return r.phase == phase &&
           std::equal(pointers.begin(), pointers.end(), r.pointers.begin(), r.pointers.end());
  });
  if (found == recordings_.end()) {
    if (recordings_.size() == kMost)
      recordings_.erase(std::min_element(recordings_.begin(), recordings_.end(),
                                         [](const auto& a, const auto& b) { return a.used < b.used; }));
    const bool joined = joined_ && joined_->launch(program.pointers(), device.stream());
    recordings_.push_back({phase, {pointers.begin(), pointers.end()}, joined, nullptr, ++runs_});
    if (!joined) program.run(phase, crossings);
    return;
  }
  found->used = ++runs_;
  if (!found->graph) {
    // A graph of one launch is still queued faster than the launch.
    const RecordedLaunch whole{.launch = [&](void* on) { joined_->launch(program.pointers(), on); },
                               .after = {}};
    found->graph = device.record(found->joined ? std::vector<RecordedLaunch>{whole}
                                               : program.recorded(phase, crossings, lanes_));
  }
  if (!found->graph) return program.run(phase, crossings);
  found->graph->launch();
}

}  // namespace lockstep::compile
