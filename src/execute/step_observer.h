// What a step tells of itself: where the time of each device goes, and what it has done.
#pragma once

#include "lockstep/observe/step_clock.h"

namespace lockstep::execute {

// Everybody who takes part in a step refers to the same one. Whether anybody listens is decided before each
// step, while no device is at work; each device is told of by its own thread, but for count().
class StepObserver {
 public:
  // From now on; null: nobody. The clock has a replica for each device.
  void listen(observe::StepClock* clock) { clock_ = clock; }

  observe::ReplicaClock* device(int d) const { return clock_ ? &clock_->replica(d) : nullptr; }
  // Gives the device's time to a category for as long as the result lives.
  observe::TimeScope time(int d, observe::Category category) const { return {device(d), category}; }
  observe::TimeScope time(int d, observe::Category category, observe::ThreadState state) const {
    return {device(d), category, state};
  }
  observe::TimeScopeOfAll time_of_all(observe::Category category) const { return {clock_, category}; }
  // Thread-safe.
  void count(int d, observe::Counter counter, int64_t amount) const {
    if (clock_) clock_->replica(d).count(counter, amount);
  }

 private:
  observe::StepClock* clock_ = nullptr;
};

}  // namespace lockstep::execute
