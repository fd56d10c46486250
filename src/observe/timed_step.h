// A step of a clock, for a scope.
#pragma once

#include <utility>

#include "lockstep/observe/step_clock.h"

namespace lockstep::observe {

enum class StepBegins : uint8_t { now, with_the_last };

// A step that `clock`, which may be null, times while this lives. A step that was not made() is abandoned.
// For one thread.
class TimedStep {
 public:
  explicit TimedStep(StepClock* clock, StepBegins begins = StepBegins::with_the_last) : clock_(clock) {
    if (clock_ == nullptr) return;
    if (begins == StepBegins::now)
      clock_->begin_step();
    else
      clock_->begin_next_step();
  }
  ~TimedStep() {
    if (clock_ != nullptr) clock_->abandon_step();
  }
  TimedStep(const TimedStep&) = delete;
  TimedStep& operator=(const TimedStep&) = delete;

  // So many, as one launch.
  void made(int64_t steps = 1) {
    if (clock_ != nullptr) std::exchange(clock_, nullptr)->end_step(steps);
  }

 private:
  StepClock* clock_;
};

}  // namespace lockstep::observe
