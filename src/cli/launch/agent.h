// The part of the launcher that runs on each machine of a job, or as each task of srun: it starts the workers
// there, gives their output on, and ends them with all that they have started when it is told to or when the
// launcher is gone.
#pragma once

namespace lockstep::launch {

// Until the launcher says so or its end of standard input closes. Returns the exit status.
int run_agent();

}  // namespace lockstep::launch
