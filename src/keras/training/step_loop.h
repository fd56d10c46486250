// The steps of one pass over a stream of batches. A loop belongs to the thread that calls fit, evaluate or
// predict, which makes the steps and calls the callbacks; other threads may only ask the trainer to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <vector>

#include "keras/training/agreement.h"
#include "keras/training/callback_list.h"
#include "keras/training/step_functions.h"
#include "keras/training/stream.h"
#include "lockstep/observe/step_clock.h"
#include "observe/timed_step.h"

namespace lockstep::keras {

class Trainer;

class StepLoop {
 public:
  // Hears of every launch, with its last batch.
  using Watch = std::function<void(const Batch& batch)>;

  // `clock` times the steps; null: nobody does. The trainer, the clock and the callbacks have to outlive the
  // loop.
  StepLoop(Trainer& trainer, StepKind kind, observe::StepClock* clock, const CallbackList& callbacks,
           std::source_location where, Watch watch = {});

  // From step number `step` of the pass on until `steps` are made (-1: until the data ends), a training is
  // asked to stop, or Ctrl-C. Data that gives no batch at all is an error. The callbacks hear of
  // steps_per_execution batches at a time, of more where none of them minds and a GPU makes many steps per
  // launch. Data that ends before `steps` is logged. `step` counts on with every step that is made, also
  // where the next one throws. Of an elastic training it returns early where workers wait to join.
  void run(BatchStream& stream, int64_t& step, int64_t steps);
  // Whether they do, as all workers see it.
  bool newcomers() const { return newcomers_; }

  // What the prediction steps gave, by batch and output.
  const std::vector<TensorList>& predictions() const { return predictions_; }

 private:
  bool run_one(BatchStream& stream);
  int64_t run_as_one_launch(BatchStream& stream, int64_t most);
  void begin_step();
  void end_step(int64_t steps, int64_t examples);
  void compute();
  // Learns what this worker and the others of the run want, with `ask` in any case; true where the pass ends.
  bool stops(bool ask);

  Trainer& trainer_;
  StepKind kind_;
  observe::StepClock* clock_;
  bool counts_examples_;  // under a strategy the replicas count their own
  const CallbackList& callbacks_;
  std::source_location where_;
  const Watch watch_;
  Agreement agreement_;
  Batch batch_;
  std::optional<observe::TimedStep> step_;  // that has begun
  bool begun_ = false;                      // a step of this loop has
  bool newcomers_ = false;
  std::vector<TensorList> predictions_;
};

}  // namespace lockstep::keras
