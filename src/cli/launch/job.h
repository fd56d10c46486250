// One attempt at a job: its agents, from their start until the last has gone.
#pragma once

#include <memory>
#include <string>

#include "cli/launch/launch.h"
#include "cli/launch/output.h"
#include "cli/launch/plan.h"
#include "cli/launch/signals.h"

namespace lockstep::launch {

struct Verdict {
  int code = 0;                  // for the launcher to end with
  std::string explanation = {};  // of what went wrong; empty: nothing
  bool may_restart = false;      // it may go better another time
};

class Job {
 public:
  // All of them outlive it. `restart`: how often the job was started before.
  Job(const Plan& plan, const LaunchOptions& options, Output& output, Signals& signals, int restart);
  ~Job();

  // Returns when no process of the job is left.
  Verdict run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::launch
