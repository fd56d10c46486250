// Tests of runs of several processes: the test program starts itself as each of the workers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "workers/namespaces.h"

namespace lockstep::testing {

// What a worker does; throws where something is wrong. By name: what is started finds it there.
using Scenario = void (*)();
class RegisterScenario {
 public:
  RegisterScenario(const char* name, Scenario scenario);
};

// Where the program was started as a worker: runs it and returns its exit status; else -1.
int run_as_worker(int argc, char** argv);

// Of a scenario: a line of what the test compares.
void report(const std::string& line);
// Of a scenario: how far it has come, for the test to see while it runs.
void note_progress(int64_t step);

enum class Launcher { alone, lockstep, mpirun };

struct Run {
  const char* scenario = "";
  int workers = 1;
  int devices = 1;  // logical CPUs of one thread, for each worker
  Launcher launcher = Launcher::lockstep;
  // More of the environment, as NAME=VALUE; one that begins with "2:" is for worker 2 alone.
  std::vector<std::string> environment = {};
  int killed_last = -1;  // a worker that does not end by itself: killed when all others have
  // A machine for each worker, with the first one's address to meet at; null: all on this one.
  const Namespaces* network = nullptr;
  // Called again and again while they run, with what each has reported so far.
  std::function<void(const std::vector<std::string>& reports)> meanwhile = {};
};

struct WorkerResult {
  int status = -1;     // 0: all was well; negative: the signal that ended it
  std::string report;  // what report() was given
  std::string output;  // all that it printed
  double seconds = 0;  // until it ended
};
// By worker. Under mpirun every status is mpirun's, and so is the output.
std::vector<WorkerResult> run(const Run& run);

// Workers that a test disturbs while they run, as Launcher::lockstep starts them.
class Crew {
 public:
  // Starts all.
  explicit Crew(Run run);
  // Ends what is left.
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return run_.workers; }
  bool running(int worker);
  pid_t pid(int worker) const { return processes_[static_cast<size_t>(worker)].pid; }
  void signal(int worker, int number);
  // Waits for it as well.
  void kill(int worker);
  // Of one that has ended; `environment` is for this start alone.
  void start(int worker, const std::vector<std::string>& environment = {});
  // What the worker has reported so far, in all its starts.
  std::string report(int worker) const;
  // What it has noted last since it was started; -1: nothing.
  int64_t progress(int worker) const;
  double seconds_since_start(int worker) const;
  const std::string& address() const { return address_; }
  // A folder of this crew's, which is removed with it.
  std::string folder() const;
  // When all have ended; the statuses are those of their last starts, the output that of all.
  std::vector<WorkerResult> wait();

 private:
  struct Place {
    pid_t pid = 0;
    int status = -1;
    int starts = 0;
    std::chrono::steady_clock::time_point started;
  };
  Run run_;
  std::string folder_, address_;
  std::vector<Place> processes_;
};

// Why such runs cannot be made on this machine; empty: they can.
std::string missing(Launcher launcher);

}  // namespace lockstep::testing
