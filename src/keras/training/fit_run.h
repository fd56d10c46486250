// One call of fit.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>

#include "keras/training/callback_list.h"
#include "keras/training/history_recorder.h"
#include "keras/training/interrupt.h"
#include "keras/training/loss_watch.h"
#include "keras/training/run_observer.h"
#include "keras/training/stream.h"
#include "keras/training/trainer.h"

namespace lockstep::keras {

// What fit trains on, ready to be read.
struct TrainingData {
  Data train;
  Data validation;    // undefined: there is none
  int64_t steps = 0;  // of an epoch; Data::Source::kUnknown
  int64_t validation_steps = 0;
};

class FitRun {
 public:
  // Checks all that can be checked before the first step, and makes the model's weights. `model` is what
  // callbacks see; it, the trainer and the options have to outlive the run.
  FitRun(Trainer& trainer, Model& model, const Data& data, const FitOptions& options,
         std::source_location where);

  // Once.
  History run();

  // Where the data stands: after the steps made so far, and once the epoch under way has ended.
  BatchStream::Position position() { return stream_.position(); }
  BatchStream::Position position_after_epoch() { return stream_.position_after_epoch(); }

 private:
  // The trainer knows its run while this lives. Throws Error(failed_precondition) where it has one already.
  class Registration {
   public:
    Registration(Trainer& trainer, FitRun& run, std::source_location where);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    Trainer& trainer_;
  };

  History run_epochs();
  // Of a run that a backup made go on: where that stood.
  int first_epoch();
  Logs run_epoch(int epoch);
  // The number of steps of the epoch that are done already.
  int64_t begin_data();
  void add_validation(Logs& logs);
  History finish();

  Trainer& trainer_;
  const FitOptions& options_;
  std::source_location where_;
  Registration registration_;
  distribute::Strategy strategy_;
  TrainingData data_;
  std::shared_ptr<HistoryRecorder> recorder_;
  CallbackList callbacks_;
  Interrupt interrupt_;
  RunObserver observer_;
  BatchStream stream_;
  LossWatch loss_watch_;
};

}  // namespace lockstep::keras
