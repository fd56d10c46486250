// The figures of a run from all of its workers.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/distribute/strategy.h"
#include "lockstep/observe/run_summary.h"
#include "observe/step_history.h"

namespace lockstep::distribute {

// What all workers of the strategy know of the run that has ended, as one summary; called by all of them, each with its own.
// Where one of them does not come any more, the log says so and this worker's own summary is returned: a run that has ended
// well does not fail for its report.
observe::RunSummary of_all_workers(const Strategy& strategy, observe::RunSummary own);
observe::RunSummary of_all_workers(comm::Workers& workers, observe::RunSummary own,
                                   double timeout_s) noexcept;

// What a worker knows of a run that goes on.
struct WorkerFigures {
  observe::RunSummary summary = {};
  int64_t width = 1;  // of the intervals, in steps
  std::vector<observe::Intervals> replicas = {};
};
struct FiguresOfAll {
  observe::RunSummary summary;
  std::vector<WorkerFigures> workers;  // by rank
  double age_s = 0;                    // of the oldest
};
// Tells them to the chief, who looks at them when it likes. Returns at once; only the last word counts.
void tell_chief(comm::Workers& workers, WorkerFigures own);
// At the chief: its own with what the others have told it last. None where one has said nothing yet.
std::optional<FiguresOfAll> heard_from_all(comm::Workers& workers, WorkerFigures own);
// Called by all workers: what they know now.
FiguresOfAll gather_figures(comm::Workers& workers, const WorkerFigures& own);

}  // namespace lockstep::distribute
