// Whether the next batch is gathered while the step before it runs, on another core, or when it is asked for.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::data {

// Which is faster depends on the machine: the lines of a batch that another core has written have to come
// from there, and the cores of a virtual machine may be so far apart that this takes longer than gathering
// them does. So both are tried out in turn, and what was faster is kept until they are tried again. Used by
// one thread at a time.
class AheadChoice {
 public:
  // To be called whenever a batch is asked for, with the time: whether the one behind it is to be gathered
  // ahead.
  bool ahead(int64_t now_ns);

  // A stage of a trial has so many batches, and every trial two stages of each kind.
  static constexpr int kStageBatches = 10;
  static constexpr int kStages = 4;
  // Until the next trial, which then has 2% of all batches.
  static constexpr int kKeptBatches = 2000;

 private:
  void end_stage();
  // The first stage, and every other one, is ahead.
  bool stage_is_ahead() const { return stage_ % 2 == 0; }

  int stage_ = 0;    // kStages: what was found is kept
  int batches_ = 0;  // that this stage was asked for
  int64_t last_ns_ = 0;
  // From one batch to the next, step included. The first of a stage was begun by the stage before.
  std::array<int64_t, kStageBatches - 1> taken_{};
  std::array<int64_t, 2> best_{};  // of the trial under way: when asked for, and ahead; 0: not known yet
  bool kept_ = true;
};

}  // namespace lockstep::data
