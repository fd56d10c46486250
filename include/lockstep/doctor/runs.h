// The doctor on runs: from the record that one has left (lockstep/observe/run_record.h), while it goes on or
// afterwards.
//
//   const observe::RunRecord record = observe::read_record("runs/7");
//   std::cout << doctor::examine_run(record, "runs/7").to_text();
//
// docs/doctor.md lists the checks; docs/doctor.schema.json describes the JSON.
#pragma once

#include <string>

#include "lockstep/doctor/doctor.h"
#include "lockstep/observe/run_record.h"

namespace lockstep::doctor {

// How it went or goes, the run's own verdicts, and what its curves and intervals show beyond them. `name`:
// what to call it. `now_ms`: milliseconds since 1970; 0: the system's clock.
Report examine_run(const observe::RunRecord& record, const std::string& name, int64_t now_ms = 0);

// What became slower from `before` to `after`, by how much, in which category and kernel, and what differs
// between the two. It is a problem where steps take at least 5% longer for an example.
Report compare_runs(const observe::RunRecord& before, const std::string& before_name,
                    const observe::RunRecord& after, const std::string& after_name);

}  // namespace lockstep::doctor
