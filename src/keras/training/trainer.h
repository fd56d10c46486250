// What compile() sets up: the steps of training, evaluation and prediction, as one program per kind and
// shapes.
//
// fit is a FitRun, evaluate and predict are short enough to be functions; all of them take their batches from
// a BatchStream and make steps of them with a StepLoop.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keras/training/outputs.h"
#include "keras/training/run_control.h"
#include "keras/training/step_functions.h"
#include "keras/training/stream.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/keras/model.h"
#include "lockstep/observe/step_clock.h"

namespace lockstep::keras {

class CallbackList;
class FitRun;

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
  const Outputs& outputs() const { return *outputs_; }
  ModelBase& model() { return model_; }
  void require_compiled(const char* what, std::source_location where) const;

  // The steps that fit, evaluate and predict run, compiled anew: their programs go with the result, which
  // must not outlive the trainer or a compile(). `clock` as in StepFunctions.
  StepFunctions make_step_functions(observe::StepClock* clock = nullptr);
  distribute::Strategy strategy() const;  // the model's

  // --- for fit, evaluate and predict ---

  // Data by name as lists in the order of the model's inputs and outputs.
  Data in_model_order(const Data& data, std::source_location where) const;
  // Arrays where the steps want them: on the current GPU where there is room and no strategy spreads the
  // batches; of several workers, this one's part of them. `keeps_order`: results come in the order of the
  // data.
  Data placed(const Data& data, std::source_location where, bool keeps_order = false) const;
  // Gives all workers of a run the chief's values of all that a step uses, as far as it is made.
  void share_values() const;
  // Throws Error(failed_precondition) where `user` would use other devices than the model's strategy says, or
  // one device although there is a strategy.
  void check_strategy(const char* user, std::source_location where) const;
  // Makes the weights from the data's shapes.
  void build_for(const Model& handle, const Data& data, std::source_location where) const;
  // Times the training steps of the run under way, or of the last one. The compiled steps keep its address:
  // it stays the same while a run is under way, and until the model gets another strategy.
  observe::StepClock& clock() { return compiled_steps().clock; }
  // The fit under way; null: there is none.
  const FitRun* run() const { return run_; }
  void reset_metrics() { outputs_->reset(); }
  // Puts back what Progress::metrics holds.
  void restore_metrics(const TensorList& values) { outputs_->restore(values); }
  // One training or evaluation step.
  void run_step(StepKind kind, const Batch& batch, std::source_location where);
  // The steps of all runs, as one launch. False: nothing was done.
  bool run_steps(StepKind kind, const BatchReader::Runs& runs, std::source_location where);
  // Whether steps run op by op, as compile() or run_functions_eagerly() said.
  bool runs_eagerly() const;
  // The results of a batch that holds x alone.
  TensorList predict_step(const Batch& batch, std::source_location where);
  // Loss and metrics over `steps` batches of data that is in order and in place.
  Logs evaluate_prepared(const Data& data, int64_t batch_size, int64_t steps, const CallbackList& callbacks,
                         std::source_location where);
  // Of a run's verbosity and of a global batch, what is this worker's.
  int verbose_here(int verbose) const;
  Batch part_here(const Batch& batch) const;
  // What the optimizer does when training has ended.
  void finalize(std::source_location where) const;

  // Of a run of several workers: what each of them has a part of (accumulated gradients) becomes the chief's.
  void gather_parts() const;
  // After every worker has put back what the chief had then: the others have none of it.
  void leave_parts_to_chief() const;
  // Slots for all weights, so that a saved optimizer can be put back before the first step.
  void build_optimizer();
  // Whether the run was ended by Ctrl-C, and by which signal: as all workers of it see it.
  bool interrupted() const { return signal() != 0; }
  int signal() const;
  // What the workers of the run have agreed on.
  void set_signal(int signal) { agreed_signal_ = signal; }

  std::atomic<bool> stop_training{false};

  using Progress = RunProgress;
  // While fit runs: after `batch` batches of `epoch`, and at the end of an epoch, where the next one begins.
  Progress progress(int epoch, int64_t batch);
  Progress progress_after(int epoch);
  // Of the fit under way.
  RunControl& control() { return control_; }
  const RunControl& control() const { return control_; }
  // All that a training step changes but for metrics: weights, the optimizer's variables, the random
  // generator.
  std::vector<Variable> variables() const;
  // Makes these and the metrics', with a step of evaluation.
  void make_variables(const Data& data, int64_t batch_size, std::source_location where);
  // The compiled steps are for workers that have formed anew since.
  void forget_steps() {
    if (compiled_steps_) compiled_steps_->functions.forget();
  }

 private:
  friend class FitRun;

  // The compiled steps, for the model's strategy as it was then, and the clock whose address they keep.
  struct CompiledSteps {
    explicit CompiledSteps(Trainer& trainer);
    std::shared_ptr<const VariableOwner> owner;
    observe::StepClock clock;
    StepFunctions functions;
  };
  // Made when it is first needed: prediction needs no compile().
  CompiledSteps& compiled_steps();
  TensorList run_body(StepKind kind, const Batch& batch);
  // Calls f again where workers of an elastic run are lost meanwhile. Inside of a fit that is the fit's.
  template <class F>
  auto outliving(F f) -> decltype(f());
  Logs evaluate_once(Model& handle, const Data& data, const EvaluateOptions& options,
                     std::source_location where);
  TensorList predict_once(Model& handle, const Data& data, const PredictOptions& options,
                          std::source_location where);

  ModelBase& model_;
  CompileOptions options_;
  std::source_location compiled_at_;
  bool compiled_ = false;
  std::unique_ptr<Outputs> outputs_;  // from compile() on
  Tensor last_loss_;
  std::unique_ptr<CompiledSteps> compiled_steps_;
  FitRun* run_ = nullptr;  // the fit under way
  RunControl control_;     // of that one
  int agreed_signal_ = 0;  // of a run of several workers
};

}  // namespace lockstep::keras
