// The profile of one replica's training step, as `lockstep train --schedule` writes it and `lockstep plan`
// reads it.
#pragma once

#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/execute/step_schedule.h"
#include "lockstep/observe/span.h"
#include "lockstep/plan/forecast.h"

namespace lockstep::cli {

// The schedule that belongs to the steps of the trace, with the seconds of each launch where nothing
// disturbed it; `result` is that of the run.
Json step_profile(const std::vector<StepSchedule>& schedules, const observe::Trace& trace,
                  const Json& result);
plan::MeasuredSchedule read_step_profile(const Json& json);

}  // namespace lockstep::cli
