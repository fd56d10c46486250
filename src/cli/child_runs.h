// Trainings of this tool as processes of their own, one after the other: what `lockstep scale` and `lockstep
// plan` measure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/launch/signals.h"
#include "cli/temporary_folder.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {

struct ChildRun {
  std::string run = {};  // a run file or a network, as `lockstep train` takes it
  int64_t devices = 1;
  int64_t workers = 1;
  int64_t threads = 1;     // of each device
  int64_t batch_size = 0;  // of all replicas; 0: the run's
  int64_t steps = 50;
  bool profiles = false;  // also the step's profile (step_profile.h)
};

struct ChildResult {
  Json result;   // what `lockstep train --json` gives
  Json profile;  // null: not asked for
};

// Asked to end by a signal; all processes are gone.
struct Interrupted {
  int signal = 0;
};

// While it lives, signals to this process are its own: it passes them on and leaves nothing behind.
class ChildRuns {
 public:
  // `quiet`: no line about what is being done.
  ChildRuns(int total, bool quiet);
  ~ChildRuns();
  ChildRuns(const ChildRuns&) = delete;
  ChildRuns& operator=(const ChildRuns&) = delete;

  // Throws Error with what the training said where it failed, Interrupted where a signal came.
  ChildResult train(const ChildRun& run);

 private:
  void say(const std::string& text);

  launch::Signals signals_;
  TemporaryFolder folder_;
  int total_, begun_ = 0;
  bool quiet_;
};

// The examples per step that the run asks for, over all devices.
int64_t batch_size_of(const std::string& run);
// Cores that this process may use.
int64_t usable_cores();
// Physical GPUs that can be seen.
int64_t usable_gpus();

// What a run's result says of its timed steps: their number, their median in seconds, and what a step takes
// where nothing disturbs it.
int64_t steps_of(const Json& result);
double median_step_s(const Json& result);
double undisturbed_step_s(const Json& result);
// The part of the steps' time in which threads of the run had work and no core; of several workers, those of
// the first.
double waited_for_cores(const Json& result);

}  // namespace lockstep::cli
