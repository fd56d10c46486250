// Saving a training run's state: what the step waits for, how fast the disk is used, what training notices
// meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/bench.h"

namespace lockstep::bench {

// Bytes of the state that is saved: 1 GiB, or as many MiB as LOCKSTEP_BENCH_CHECKPOINT_MIB says. Files go to
// the folder LOCKSTEP_BENCH_FOLDER, by default the one for temporary files: on a disk, or the figures say
// nothing of one.
int64_t checkpoint_bytes();

// A copy of the state to memory that was touched before; the call of an asynchronous save.
std::vector<Candidate> checkpoint_delay();
// dd with conv=fsync; a save until it is on the disk.
std::vector<Candidate> checkpoint_write();
// A training step (MLP, batch 128) alone; the same while a checkpoint is being written.
std::vector<Candidate> checkpoint_steps(int threads);

}  // namespace lockstep::bench
