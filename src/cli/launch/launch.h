// Starting the workers of a job on one machine, on several over ssh, or in a Slurm allocation, and staying
// with them until the last has ended: docs/decisions/0041-agents-start-workers.md says how.
#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

struct LaunchOptions {
  std::vector<std::string> program = {};
  int workers = 0;         // 0: as many as `hosts` has room for, or the allocation tasks
  std::string hosts = {};  // "a:2,b:2"; empty: this machine, or the allocation's
  bool slurm = true;       // false: this machine also inside an allocation
  // HOST or HOST:PORT at which rank 0 is met; empty: the first host's name, a free port.
  std::string address = {};
  std::string folder = {};                    // that workers work in, on every machine
  std::vector<std::string> environment = {};  // NAME or NAME=VALUE, for workers
  bool divide = true;                         // a machine's CPUs and GPUs among its workers
  std::string log_folder = {};                // a file per rank; empty: none
  std::string shown = "all";                  // whose output is shown: "all", "none" or ranks: "0,3"
  bool tags_first = true;                     // false: the lines of rank 0 come as they are
  int restarts = 0;       // of the whole job when a worker fails, or of workers where `elastic`
  double backoff_s = 1;   // before the first restart; then twice as long each time, at most a minute
  bool elastic = false;   // the worker that failed is started again alone: the program lets it join anew
  double grace_s = 30;    // that workers have to end by themselves when they are asked to
  bool dry_run = false;   // say what would be started, and start nothing
  std::string tool = {};  // this program's file, on every machine
};

// Before the restart that follows so many others.
double backoff_s(const LaunchOptions& options, int restarts);

// Returns the exit status: 0 where all workers ended well; the status of the worker that failed first, 128
// and the signal's number where one killed it; 128 and the number of the signal that stopped the job; 127 or
// 126 where the program does not exist or cannot be executed. Throws Error where nothing was started because
// of a mistake.
int launch(const LaunchOptions& options);

}  // namespace lockstep::launch
