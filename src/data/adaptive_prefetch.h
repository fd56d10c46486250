// Whether the next batch is prefetched, gathered on another core while a step runs, or gathered when it is
// asked for.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::data {

// Which is faster depends on the machine: the cache lines of a batch that another core has written have to
// come from there, and the cores of a virtual machine may be so far apart that this takes longer than
// gathering the batch does. So both are timed in turn, and the faster one is kept until the next trial. Used
// by one thread at a time.
class AdaptivePrefetch {
 public:
  // To be called with the time whenever a batch is asked for: whether the batch after it is to be prefetched.
  bool prefetches_next(int64_t now_ns);

  // A trial has stages of so many batches, two with prefetch and two without.
  static constexpr int kStageBatches = 10;
  static constexpr int kStages = 4;
  // Batches until the next trial: trials are 2% of all batches.
  static constexpr int kKeptBatches = 2000;

 private:
  void end_stage();
  // The first stage, and every other one, prefetches.
  bool stage_prefetches() const { return stage_ % 2 == 0; }

  int stage_ = 0;    // kStages: no trial is under way
  int batches_ = 0;  // asked for in this stage
  int64_t last_ns_ = 0;
  // From one batch to the next, step included. The first batch of a stage was begun by the stage before.
  std::array<int64_t, kStageBatches - 1> taken_{};
  std::array<int64_t, 2> best_{};  // of the trial under way: without prefetch, and with; 0: not known yet
  bool kept_ = true;
};

}  // namespace lockstep::data
