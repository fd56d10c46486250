// Where a run's time and memory go.
#pragma once

#include <vector>

#include "device/ceilings.h"
#include "lockstep/device/device.h"
#include "lockstep/observe/run_summary.h"
#include "lockstep/observe/step_clock.h"

namespace lockstep::keras {

// Begins with the run. The clock is restarted; it has to outlive the observer.
class RunObserver {
 public:
  RunObserver(observe::StepClock& clock, std::vector<Device*> devices);

  observe::StepClock& clock() const { return clock_; }
  const DevicesOfRun& devices() const { return devices_; }
  // When no step is to be made for now: waits for what the devices still do, which is a part of the steps
  // that were made.
  void finish_steps() const;
  // What the devices hold after the first epoch is what the run needs: what is held beyond that later has
  // grown.
  void end_epoch() const;
  observe::RunSummary summary() const;
  std::vector<observe::MemorySummary> memory() const;

 private:
  observe::StepClock& clock_;
  DevicesOfRun devices_;
};

}  // namespace lockstep::keras
