// Inside of loops that may last long: whether to go on (lockstep/base/interruption.h).
#pragma once

#include <chrono>

namespace lockstep {

// Of one loop, on one thread. A call costs a comparison most of the time: the clock is read so often that the
// iterations in between take about a millisecond.
class InterruptionPoll {
 public:
  // Throws what the check throws.
  void operator()() {
    if (++calls_ >= stride_) look();
  }

 private:
  using Clock = std::chrono::steady_clock;
  void look();

  int calls_ = 0, stride_ = 1;
  Clock::time_point looked_ = Clock::now(), asked_ = looked_;
};

}  // namespace lockstep
