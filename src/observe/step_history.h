// The steps of a run as a bounded number of intervals, however many steps there are.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/observe/run_record.h"
#include "lockstep/observe/step_clock.h"

namespace lockstep::observe {

using Intervals = std::vector<RunRecord::Interval>;  // by first_step

// The same in intervals of `width` steps, of which each holds whole ones of `intervals`: both are powers of
// two.
Intervals widened(const Intervals& intervals, int64_t width);
// The least width, from `width` on, at which there are at most `most` intervals up to `last_step`.
int64_t width_for(int64_t last_step, int64_t most, int64_t width = 1);

// The steps of all replicas of one process, as intervals. For one thread at a time.
class StepHistory {
 public:
  static constexpr int64_t kMost = 256;  // intervals per replica

  // `step`: the number, over the run, of the clock's first step. `began_ns`: monotonic_ns() when the run
  // began.
  StepHistory(const StepClock& clock, int64_t step, int64_t began_ns);

  // Takes the records that the clock has made since the last call. It remembers some hundred; of those that
  // are lost, the steps are missing in their interval.
  void look(StepClock& clock);

  int64_t width() const { return width_; }
  const std::vector<Intervals>& replicas() const { return replicas_; }

 private:
  void add(size_t replica, const StepRecord& record);

  int64_t step_, began_ns_;
  int64_t width_ = 1;
  std::vector<Intervals> replicas_;
  std::vector<StepRecord> last_;  // that were taken, by replica
};

// Puts all in intervals of one width, the least that leaves at most `most`, and returns it.
int64_t align(std::vector<Intervals>& replicas, int64_t width, int64_t most);

// Intervals of all workers, aligned. Of each, what a replica spends in collectives beyond the replica that
// spends least counts as waiting_for_others: a collective ends for all when the last has come.
void attribute_waiting(std::vector<Intervals>& replicas);

}  // namespace lockstep::observe
