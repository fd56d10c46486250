// What compile() sets up: the compiled steps of training, evaluation and prediction, and their loops.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keras/training/running_mean.h"
#include "keras/training/source.h"
#include "lockstep/compile/function.h"
#include "lockstep/keras/model.h"
#include "lockstep/observe/step_clock.h"

namespace lockstep::keras {

class Trainer {
 public:
  explicit Trainer(ModelBase& model) : model_(model) {}

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
  Logs results() const;
  void reset_metrics();
  void require_compiled(const char* what, std::source_location where) const;

  // Slots for all weights, so that a saved optimizer can be put back before the first step.
  void build_optimizer();
  // Whether the run was ended by Ctrl-C.
  bool interrupted() const;

  std::atomic<bool> stop_training{false};

  // Where a backup wants the run to go on; set by callbacks when training begins.
  struct Resume {
    int epoch = 0;
    int64_t batch = 0;         // batches of the epoch that are done
    int64_t epoch_random = 0;  // random::default_generator() when the epoch began
    int64_t random = 0;        // and after the batches that are done
  };
  std::optional<Resume> resume;
  // random::default_generator() when the epoch under way began.
  int64_t epoch_random = 0;

 private:
  // One of the model's outputs.
  struct Output {
    std::string name;
    Loss loss;
    double weight = 1;
    std::vector<Metric> metrics;
    std::vector<Metric> weighted_metrics;
    std::optional<RunningMean> loss_mean;  // where several outputs have a loss
  };
  enum class Kind { train, test, predict };
  // How many arrays of each sort a step is given, and which outputs have weights.
  struct Layout {
    size_t x = 0;
    size_t y = 0;
    std::vector<bool> weights;
    auto operator<=>(const Layout&) const = default;
  };
  struct Step {
    std::unique_ptr<FunctionCore> function;
    TensorList inputs;
  };

  void resolve_outputs(size_t count, size_t labels);
  Tensor total_loss(const TensorList& y, const TensorList& predictions, const TensorList& weights);
  void update_metrics(const TensorList& y, const TensorList& predictions, const TensorList& weights);
  TensorList run_body(Kind kind, const Layout& layout, std::span<const Tensor> inputs);
  TensorList run_step(Kind kind, const Batch& batch, std::source_location where);
  Data in_model_order(const Data& data, std::source_location where) const;
  bool timed_step(Kind kind, BatchReader& reader, Batch& batch, std::source_location where);
  void run_epoch(Kind kind, BatchReader& reader, int64_t step, int64_t steps,
                 const std::vector<Callback>& callbacks, std::source_location where);
  Logs evaluate_quietly(Model& handle, const Data& data, const EpochOptions& epoch, int64_t steps,
                        const std::vector<Callback>& callbacks, std::source_location where);

  ModelBase& model_;
  CompileOptions options_;
  bool compiled_ = false;
  bool resolved_ = false;
  std::vector<Output> outputs_;
  RunningMean loss_mean_;
  Tensor last_loss_;
  // Of the last fit. Compiled steps keep its address, so that a fit starts it anew in place.
  std::optional<observe::StepClock> clock_{std::in_place};
  std::map<std::pair<Kind, Layout>, Step> steps_;
};

}  // namespace lockstep::keras
