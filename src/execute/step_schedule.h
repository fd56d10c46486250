// From a plan to what a ScheduleRecorder keeps.
#pragma once

#include <string>

#include "compile/planning/plan.h"
#include "lockstep/execute/step_schedule.h"

namespace lockstep::execute {

// Whether there is a recorder: a step of one replica is then compiled as one of many.
bool schedules_are_recorded();

// The schedule of a replica with this number of examples.
StepSchedule schedule_of(const compile::Plan& plan, const std::string& function, int64_t examples);

// Gives it to the recorder, where there is one.
void record_schedule(const compile::Plan& plan, const std::string& function, int64_t examples);

}  // namespace lockstep::execute
