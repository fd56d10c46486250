// A loop that a program writes by hand, as reports tell of it: steps that it calls one after another.
#pragma once

#include <functional>
#include <string>

#include "lockstep/observe/run_report.h"
#include "lockstep/observe/step_clock.h"
#include "observe/cause_watch.h"
#include "observe/timed_step.h"

namespace lockstep::observe {

// One thread at a time makes its steps; summary() is for all threads. observe::report() knows it, also when
// it has gone.
class Loop {
 public:
  // Adds to a summary what the clock does not know.
  using Complete = std::function<void(RunSummary&)>;

  Loop(std::string title, int replicas, Complete complete);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  StepClock& clock() { return clock_; }

  // For steps that may be as short as timing them: begin() gives the clock, with the step begun, or null
  // where this step is not timed, and after the clock end() has to follow, or abandon_step(). A step that is
  // not timed counts with the next that is, as one like the last.
  StepClock* begin();
  void end();
  // After a step.
  void look() { watch_.look(clock_, complete_); }

  RunSummary summary() const;
  const std::string& title() const { return title_; }

 private:
  const std::string title_;
  StepClock clock_;
  const Complete complete_;
  CauseWatch watch_;
  int64_t untimed_ = 0;  // steps since the last that was timed
  bool short_ = false;   // that one was
  int64_t timed_ = 0;
  int64_t ended_ns_ = 0;
  Times last_;  // of it, without what was before it
};

// What observe::report() may tell of, of a run that is over.
void remember(const RunReport& report);

}  // namespace lockstep::observe
