// One call of fit.
//
// It goes from place to place (Standing), and may be put to any of them: by a backup when it begins and, in
// an elastic run, by another worker (ElasticFit).
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>

#include "keras/training/callback_list.h"
#include "keras/training/elastic_fit.h"
#include "keras/training/history_recorder.h"
#include "keras/training/interrupt.h"
#include "keras/training/loss_watch.h"
#include "keras/training/run_observer.h"
#include "keras/training/run_state.h"
#include "keras/training/stream.h"
#include "keras/training/trainer.h"
#include "observe/cause_watch.h"

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

  // Where time and memory went so far, on this worker.
  observe::RunSummary summary() const;
  std::vector<observe::MemorySummary> memory() const { return observer_.memory(); }
  std::optional<data::Explanation> explain_input() const { return stream_.explain(); }

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
  // Once, as a worker that joins a run or as one that begins it.
  void tell_begin(bool joins);
  void begin();
  void run_epoch();
  void run_steps();
  // The number of steps of the epoch that are done already.
  int64_t begin_data();
  void add_validation(Logs& logs);
  bool goes_on() const;
  // Adds to a summary of the steps how they were made, and what their input says of itself.
  void complete(observe::RunSummary& time) const;
  History finish();

  // From where the run stands to its end, whatever workers are lost meanwhile.
  History run_outliving();

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
  observe::CauseWatch cause_watch_;

  Standing at_;
  TensorList metrics_;       // what they had gathered when all steps of the epoch were made
  bool told_begin_ = false;  // the callbacks have heard on_train_begin
  ElasticFit elastic_;
};

}  // namespace lockstep::keras
