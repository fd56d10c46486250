// How far the host runs ahead of a device that queues its work.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "device/stream.h"

namespace lockstep::execute {

struct RunAheadOptions {
  // How many runs may be queued or under way before the host waits for the oldest of them: 1 or 2.
  uint64_t depth = 2;
  // How many runs count as one: more than 1 where a run is one short kernel.
  int64_t runs_per_mark = 1;
};

// The host queues the next run on a device's stream while the device works on the last one, and no more than
// that: so the time that the device takes shows, as time in which the host's thread waits for it. The host
// never runs ahead of a device whose launches have happened when they return.
class RunAhead {
 public:
  RunAhead(Stream& stream, RunAheadOptions options);

  uint64_t depth() const { return options_.depth; }
  // Whether the next run has to wait for an earlier one, and the wait. Throws deferred device errors of its
  // kernels.
  bool must_wait() const { return unmarked_ == 0 && marked_ >= options_.depth; }
  void wait() const;
  // To be called when `runs` more of them have been queued.
  void queued(int64_t runs);

 private:
  Stream& stream_;
  const RunAheadOptions options_;
  std::array<std::unique_ptr<Event>, 2> marks_;  // the ends of the last runs, in turn
  uint64_t marked_ = 0;                          // marks so far
  int64_t unmarked_ = 0;                         // runs behind the last
};

}  // namespace lockstep::execute
