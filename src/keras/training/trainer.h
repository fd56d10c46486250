// What compile() sets up: the compiled steps of training, evaluation and prediction, and their loops.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keras/training/outputs.h"
#include "keras/training/steps.h"
#include "keras/training/stream.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/keras/model.h"
#include "lockstep/observe/step_clock.h"

namespace lockstep::keras {

class Trainer {
 public:
  explicit Trainer(ModelBase& model);

  void compile(const CompileOptions& options, std::source_location where);
  bool compiled() const { return compiled_; }
  const CompileOptions& options() const { return options_; }

  History fit(Model& handle, const Data& data, const FitOptions& options, std::source_location where);
  Logs evaluate(Model& handle, const Data& data, const EvaluateOptions& options, std::source_location where);
  TensorList predict(Model& handle, const Data& data, const PredictOptions& options,
                     std::source_location where);
  Logs train_on_batch(const Batch& batch, const std::map<int64_t, double>& class_weight,
                      std::source_location where);
  Logs test_on_batch(const Batch& batch, std::source_location where);
  TensorList predict_on_batch(const TensorList& x, std::source_location where);

  std::vector<Metric> metrics() const;
  double last_loss() const;
  // Loss and metrics gathered since the last reset, sorted by name as Keras does.
  Logs results() const { return outputs_->results(); }
  void require_compiled(const char* what, std::source_location where) const;

  // The steps that fit, evaluate and predict run, compiled anew: their programs go with the result, which must not
  // outlive the trainer or a compile().
  Steps make_steps(observe::StepClock* clock = nullptr);

  // Data by name as lists in the order of the model's inputs and outputs.
  Data in_model_order(const Data& data, std::source_location where) const;

  // Slots for all weights, so that a saved optimizer can be put back before the first step.
  void build_optimizer();
  // Whether the run was ended by Ctrl-C.
  bool interrupted() const;

  std::atomic<bool> stop_training{false};

  // Where a run stands, and where a backup wants it to go on.
  struct Progress {
    int epoch = 0;
    int64_t batch = 0;             // batches of the epoch that are done
    int64_t random = 0;            // random::default_generator()
    BatchStream::Position stream;  // of the data
    TensorList metrics = {};       // what they have gathered of an epoch that is not done
  };
  // While fit runs: after `batch` batches of `epoch`, and at the end of an epoch, where the next one begins.
  Progress progress(int epoch, int64_t batch);
  Progress progress_after(int epoch);
  // Set by a callback when training begins.
  std::optional<Progress> resume;
  // Of the fit under way.
  std::vector<Callback> callbacks;

 private:
  Steps& steps();
  distribute::Strategy strategy() const;  // the model's
  void start_clock();
  TensorList run_body(StepKind kind, const Batch& batch);
  void run_step(StepKind kind, const Batch& batch, std::source_location where);
  int64_t steps_at_once(StepKind kind, BatchStream& stream, int64_t most, std::source_location where);
  bool timed_step(StepKind kind, BatchStream& stream, Batch& batch, std::source_location where);
  void run_epoch(StepKind kind, BatchStream& stream, int64_t step, int64_t steps,
                 const std::vector<Callback>& callbacks, std::source_location where);
  Logs evaluate_quietly(const Data& data, int64_t batch_size, int64_t steps,
                        const std::vector<Callback>& callbacks, std::source_location where);
  void build_for(const Model& handle, const Data& data, std::source_location where) const;
  void restore_metrics(const TensorList& values, const Data& data, int64_t batch_size,
                       std::source_location where);
  void reset_metrics() { outputs_->reset(); }

  ModelBase& model_;
  CompileOptions options_;
  bool compiled_ = false;
  std::unique_ptr<Outputs> outputs_;  // from compile() on
  Tensor last_loss_;
  // Of the last fit. Compiled steps keep its address, so that a fit starts it anew in place.
  std::optional<observe::StepClock> clock_;
  bool counts_examples_ = false;  // replicas count their own
  // Made by the first step: prediction needs no compile().
  std::unique_ptr<Steps> steps_;
  std::optional<BatchStream> stream_;  // of the fit under way
};

}  // namespace lockstep::keras
