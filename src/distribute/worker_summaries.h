// The statistics of a run from all of its workers. Functions that take Workers may be called by any thread,
// one at a time.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/distribute/strategy.h"
#include "lockstep/observe/run_summary.h"
#include "observe/step_history.h"

namespace lockstep::distribute {

// What all workers of the strategy know of the run that has ended, as one summary; called by all of them,
// each with its own. Where one of them does not come any more, the log says so and this worker's own summary
// is returned: a run that has ended well does not fail for its report.
observe::RunSummary of_all_workers(const Strategy& strategy, observe::RunSummary own);
observe::RunSummary of_all_workers(comm::Workers& workers, observe::RunSummary own,
                                   double timeout_s) noexcept;

// What a worker knows of a run that goes on.
struct WorkerStatistics {
  observe::RunSummary summary = {};
  int64_t width = 1;  // of the intervals, in steps
  std::vector<observe::Intervals> replicas = {};
};
struct AllWorkersStatistics {
  observe::RunSummary summary;            // of all workers, joined
  std::vector<WorkerStatistics> workers;  // by rank
  double age_s = 0;                       // of the oldest
};
// Sends them to the chief, which reads them with latest_statistics(). Returns at once; a later call replaces
// an earlier one that the chief has not read.
void send_statistics(comm::Workers& workers, WorkerStatistics own);
// At the chief: its own with what the other workers sent last; nullopt where one has sent nothing yet.
std::optional<AllWorkersStatistics> latest_statistics(comm::Workers& workers, WorkerStatistics own);
// A collective, called by all workers: what each knows now.
AllWorkersStatistics gather_statistics(comm::Workers& workers, const WorkerStatistics& own);

}  // namespace lockstep::distribute
