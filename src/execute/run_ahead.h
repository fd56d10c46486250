// How far the host runs ahead of a device that queues its work.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "device/stream.h"

namespace lockstep::execute {

struct RunAheadOptions {
  // Runs that may be queued or under way: one more is waited for. 1 or 2.
  uint64_t depth = 2;
  // Where a run is one short kernel: so many of them count as one.
  int64_t runs_per_mark = 1;
};

// The host gives the stream of a device the next run while that works on the last one, and no more: so the
// time which the device takes is seen, as time that the host's thread waits for it. Devices whose launches
// have happened when they return are never ahead of anybody.
class RunAhead {
 public:
  RunAhead(Stream& stream, RunAheadOptions options);

  uint64_t depth() const { return options_.depth; }
  // Whether the next run has to wait for an earlier one, and the wait. Throws deferred device errors of its
  // kernels.
  bool must_wait() const { return unmarked_ == 0 && marked_ >= options_.depth; }
  void wait() const;
  // So many runs have been queued.
  void queued(int64_t runs);

 private:
  Stream& stream_;
  const RunAheadOptions options_;
  std::array<std::unique_ptr<Event>, 2> marks_;  // the ends of the last runs, in turn
  uint64_t marked_ = 0;                          // marks so far
  int64_t unmarked_ = 0;                         // runs behind the last
};

}  // namespace lockstep::execute
