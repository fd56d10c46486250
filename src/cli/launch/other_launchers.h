// The environment variables by which workers know their place, and those of other launchers that would come
// before them.
#pragma once

#include <optional>
#include <string>

#include "cli/launch/machine.h"
#include "cli/launch/processes.h"

namespace lockstep::launch {

// What a worker is told beside its secret. `share`: none where it may use all of the machine.
Environment worker_variables(int rank, int workers, const std::string& address, int restart,
                             const std::optional<Share>& share);

// Whether a variable describes a run of another launcher, and so is not for workers: they would read it first
// and miss each other. A task of srun keeps what srun has set.
bool decides_before_launch(const std::string& name, bool task_of_srun);

// Throws Error(failed_precondition) where this process is one of several that another launcher has started:
// each of them would start the whole job.
void require_no_launcher_around();

// The variables that are set here and that workers will not see, for a note.
std::string variables_left_out(bool under_slurm);

}  // namespace lockstep::launch
