// Processes that train together, against what joins them and against one process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace lockstep::bench {

enum class WorkerEngine : uint8_t { gloo, mpi };

// An all-reduce of so many bytes between so many processes: the engine's own call, and Lockstep's.
std::vector<Candidate> worker_all_reduce_candidates(WorkerEngine engine, int workers, int64_t bytes);

// A training step of LeNet: one worker with two devices of a thread each, and two workers with a device and a
// core each.
inline constexpr int64_t kWorkersBatch = 256;
std::vector<Candidate> worker_lenet_candidates();

// From a kill of one of four workers of an elastic run to the end of the next step that the others make. It
// is started again, and has joined them when the next is killed.
std::vector<Candidate> worker_recovery_candidates();

// Where the program was started as a process of such a run: its exit status.
std::optional<int> run_as_bench_worker(int argc, char** argv);

}  // namespace lockstep::bench
