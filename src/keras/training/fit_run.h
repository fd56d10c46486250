// One call of fit.
//
// It goes from place to place (Standing), and may be put to any of them: by a backup when it begins and, in an elastic run,
// by another worker. There, where workers are lost, all who are left form anew, and settle: they agree on the farthest place
// that one of them has reached, and whoever is not there gets the state from one who is.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>

#include "keras/training/callback_list.h"
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

  // --- elastic runs ---

  // Where other workers can join: in this fit, and behind it.
  void come_to_fit();
  void leave_fit(const History& history);
  // Of a fit that the run was past when this worker came to join it.
  History passed(const std::string& past) const;
  History run_outliving();

  // Whether what was thrown is the loss of other workers, and the run can go on without them.
  bool may_recover() const;
  // Where the run cannot go on: tells the others or, where it is they who are lost, saves what it has.
  [[noreturn]] void end_with(const std::exception& error);
  void recover(const std::string& reason);
  // Of a worker that is not in the run: waits until it is let in.
  void join();
  // All workers that have formed anew come here. `has_state`: this one's is of the run.
  void settle(bool has_state);
  RunState state();
  void take(const std::string& state, bool has_state);
  void take_chiefs_place();
  // Others may have to take it.
  void share_chiefs_callbacks();
  // No worker leaves the run while another lacks what it has.
  void close();

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

  const int number_;  // of the fits of this process
  Standing at_;
  TensorList metrics_;       // what they had gathered when all steps of the epoch were made
  bool told_begin_ = false;  // the callbacks have heard on_train_begin
  bool closing_ = false;     // all steps are made
  std::string
      chiefs_callbacks_;  // the states of those that are the chief's alone, as of the last epoch's end
};

}  // namespace lockstep::keras
