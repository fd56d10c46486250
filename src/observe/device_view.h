// Runs of devices that compute beside the host (GPUs), as the devices see them.
//
// The clock of such a run is the host's: it waits for a device (compute), or works ahead of it. Where it has
// to wait, the device always had something to do, and what the host did meanwhile took none of the step's
// time.
#pragma once

#include <span>

#include "lockstep/observe/run_summary.h"
#include "observe/step_history.h"

namespace lockstep::observe {

// Whether the host waits for such devices, and not because the program reads what they have computed after
// every step: then each waits for the other.
bool devices_limit(const RunSummary& summary);

// Where devices limit, the time of what the host does beside them (input_wait, copy, host, loop) becomes
// compute; other runs stay as they are.
RunSummary device_view(RunSummary summary);
// The same of intervals of steps, of a run that devices limit.
void show_devices(std::span<Intervals> replicas);

// At least so many values that are read per step are one of every step.
inline constexpr double kReadsPerStep = 0.5;

}  // namespace lockstep::observe
