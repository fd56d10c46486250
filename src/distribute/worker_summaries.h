// The figures of a run from all of its workers.
#pragma once

#include "lockstep/distribute/strategy.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep::distribute {

// What all workers of the strategy know of the run that has ended, as one summary; called by all of them, each with its own.
// Where one of them does not come any more, the log says so and this worker's own summary is returned: a run that has ended
// well does not fail for its report.
observe::RunSummary of_all_workers(const Strategy& strategy, observe::RunSummary own);
observe::RunSummary of_all_workers(comm::Workers& workers, observe::RunSummary own,
                                   double timeout_s) noexcept;

}  // namespace lockstep::distribute
