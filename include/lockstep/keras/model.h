// Models: layers that can be trained.
//
//   Sequential model({layers::Dense(128, {.activation = "relu"}), layers::Dense(10)});
//   model.compile({.optimizer = "adam", .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
//                  .metrics = {"accuracy"}});
//   History history = model.fit({x, y}, {.batch_size = 32, .epochs = 5});
//
// A Model is a handle: copies name the same model. Model(inputs, outputs) is the functional API; to write one
// with a call() of its own, derive from ModelBase and make a handle with make_model<MyModel>(arguments...).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/keras/callbacks.h"
#include "lockstep/keras/data.h"
#include "lockstep/keras/layer.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/metrics.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep::keras {

// One value for the only output, a list in the order of the outputs, or a map by output name.
template <class T>
class PerOutput {
 public:
  PerOutput() = default;
  // NOLINTBEGIN(google-explicit-constructor)
  template <class U>
  requires std::is_convertible_v<U, T> PerOutput(U&& one) : list_{T(std::forward<U>(one))}, single_(true) {}
  PerOutput(std::initializer_list<T> list) : list_(list) {}
  PerOutput(std::vector<T> list) : list_(std::move(list)) {}
  PerOutput(std::map<std::string, T> named) : named_(std::move(named)) {}
  // NOLINTEND(google-explicit-constructor)
  bool empty() const { return list_.empty() && named_.empty(); }
  bool single() const { return single_; }
  const std::vector<T>& list() const { return list_; }
  const std::map<std::string, T>& named() const { return named_; }

 private:
  std::vector<T> list_;
  std::map<std::string, T> named_;
  bool single_ = false;
};

// Metrics of one output: .metrics = {"accuracy", metrics::AUC()}. Of several: a map from output names.
class MetricsArg {
 public:
  MetricsArg() = default;
  // NOLINTBEGIN(google-explicit-constructor)
  MetricsArg(std::initializer_list<Metric> metrics) : lists_{metrics} {}
  MetricsArg(std::vector<Metric> metrics) : lists_{std::move(metrics)} {}
  MetricsArg(std::vector<std::vector<Metric>> lists) : lists_(std::move(lists)), by_position_(true) {}
  MetricsArg(std::map<std::string, std::vector<Metric>> named) : named_(std::move(named)) {}
  // NOLINTEND(google-explicit-constructor)
  // Lists in the order of the outputs; one list that is not by position is for the only output.
  const std::vector<std::vector<Metric>>& lists() const { return lists_; }
  bool by_position() const { return by_position_; }
  const std::map<std::string, std::vector<Metric>>& named() const { return named_; }

 private:
  std::vector<std::vector<Metric>> lists_;
  std::map<std::string, std::vector<Metric>> named_;
  bool by_position_ = false;
};

struct CompileOptions {
  optimizers::Optimizer optimizer = "rmsprop";
  PerOutput<Loss> loss = {};
  PerOutput<double> loss_weights = {};
  MetricsArg metrics = {};           // without sample weights
  MetricsArg weighted_metrics = {};  // with them
  bool run_eagerly = false;          // op by op, for debugging
  int64_t steps_per_execution = 1;   // batches that one run of the compiled step goes through
  bool auto_scale_loss = true;       // mixed_float16: the optimizer scales the loss

  // As Keras' get_compile_config() writes them. Unknown settings are errors that name the nearest known one.
  Json serialize() const;
  static CompileOptions deserialize(const Json& json,
                                    std::source_location where = std::source_location::current());
};

struct FitOptions {
  int64_t batch_size = 32;
  int epochs = 1;
  int verbose = 1;  // 0: silent, 1: progress bar (plain lines where there is no terminal), 2: a line an epoch
  std::vector<Callback> callbacks = {};
  double validation_split = 0;  // this fraction, from the end of the arrays before shuffling
  Data validation_data = {};
  bool shuffle = true;
  std::map<int64_t, double> class_weight = {};
  int initial_epoch = 0;
  int64_t steps_per_epoch = -1;  // -1: until the data ends
  int64_t validation_steps = -1;
  int64_t validation_batch_size = -1;  // -1: batch_size
  int validation_freq = 1;
};

struct EvaluateOptions {
  int64_t batch_size = 32;
  int verbose = 1;
  int64_t steps = -1;
  std::vector<Callback> callbacks = {};
};

struct PredictOptions {
  int64_t batch_size = 32;
  int verbose = 1;
  int64_t steps = -1;
  std::vector<Callback> callbacks = {};
};

struct History {
  std::vector<int> epoch;
  std::vector<std::pair<std::string, std::vector<double>>> history;  // a value an epoch
  bool interrupted = false;                                          // stopped by Ctrl-C
  observe::RunSummary time;                                          // where the training steps' time went

  // The values of "loss", "val_accuracy", ...; throws Error(not_found) naming those that there are.
  const std::vector<double>& operator[](const std::string& name) const;
  bool contains(const std::string& name) const;
  Json to_json() const;
};

struct SummaryOptions {
  int line_length = 0;  // 0: as the terminal has room for
  bool expand_nested = false;
  bool show_trainable = false;
};

struct ModelOptions {
  std::string name = {};
  bool trainable = true;
};

class ModelBase;

class Model : public Layer {
 public:
  Model() = default;
  explicit Model(std::shared_ptr<ModelBase> base);
  // The functional API: everything between these.
  Model(const KerasTensorList& inputs, const KerasTensorList& outputs, const ModelOptions& options = {},
        std::source_location where = std::source_location::current());
  Model(const KerasTensor& input, const KerasTensor& output, const ModelOptions& options = {},
        std::source_location where = std::source_location::current())
      : Model(KerasTensorList{input}, KerasTensorList{output}, options, where) {}

  void compile(const CompileOptions& options,
               std::source_location where = std::source_location::current()) const;
  History fit(const Data& data, const FitOptions& options = {},
              std::source_location where = std::source_location::current()) const;
  History fit(const Tensor& x, const Tensor& y, const FitOptions& options = {},
              std::source_location where = std::source_location::current()) const;
  // Loss and metrics.
  Logs evaluate(const Data& data, const EvaluateOptions& options = {},
                std::source_location where = std::source_location::current()) const;
  Logs evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options = {},
                std::source_location where = std::source_location::current()) const;
  // The results for all examples, joined. Models of several outputs: predict_all().
  Tensor predict(const Data& data, const PredictOptions& options = {},
                 std::source_location where = std::source_location::current()) const;
  TensorList predict_all(const Data& data, const PredictOptions& options = {},
                         std::source_location where = std::source_location::current()) const;
  // One step on one batch; gives loss and metrics of this batch alone.
  Logs train_on_batch(const Batch& batch, const std::map<int64_t, double>& class_weight = {},
                      std::source_location where = std::source_location::current()) const;
  Logs test_on_batch(const Batch& batch, std::source_location where = std::source_location::current()) const;
  TensorList predict_on_batch(const TensorList& x,
                              std::source_location where = std::source_location::current()) const;

  bool compiled() const;
  // What the model was compiled with; throws Error(failed_precondition) before that.
  const optimizers::Optimizer& optimizer() const;
  std::vector<Metric> metrics() const;
  // The loss of the last training step alone, read from the device; the logs of a batch are means over the epoch.
  // Throws Error(failed_precondition) before the first step.
  double last_loss() const;
  // Asks fit to stop after the step that is under way.
  void stop_training() const;
  bool training_stopped() const;

  Layer get_layer(const std::string& name,
                  std::source_location where = std::source_location::current()) const;
  Layer get_layer(size_t index, std::source_location where = std::source_location::current()) const;
  // As Keras prints it.
  std::string summary(const SummaryOptions& options = {},
                      std::source_location where = std::source_location::current()) const;

  // Weights by path name, in a safetensors file. Written to a temporary name first, then renamed.
  void save_weights(const std::string& path,
                    std::source_location where = std::source_location::current()) const;
  // By structure, as Keras does: the weights of the file's first layer go to the model's first layer, whatever the
  // layers are called. Where the structures differ, or others wrote the file, by path name: every weight must be there
  // with its shape; the error lists what is missing, extra or misshapen.
  void load_weights(const std::string& path,
                    std::source_location where = std::source_location::current()) const;

  // Keras 3's own JSON: reads what Keras wrote, writes what Keras reads.
  std::string to_json(int indent = -1) const;
  static Model from_json(const std::string& json,
                         std::source_location where = std::source_location::current());

  ModelBase& model_base() const;
};

class Sequential : public Model {
 public:
  explicit Sequential(const ModelOptions& options = {},
                      std::source_location where = std::source_location::current());
  explicit Sequential(const std::vector<Layer>& layers, const ModelOptions& options = {},
                      std::source_location where = std::source_location::current());
  // An input fixes the shapes, so that the weights exist at once.
  void add(const Layer& layer, std::source_location where = std::source_location::current()) const;
  void add(const KerasTensor& input, std::source_location where = std::source_location::current()) const;
  void pop(std::source_location where = std::source_location::current()) const;
};

class Trainer;

class ModelBase : public LayerBase {
 public:
  explicit ModelBase(std::string class_name = "Model", LayerBaseOptions options = {});
  ~ModelBase() override;

  // Names and, where known, shapes of inputs and outputs; models with a call() of their own know them after
  // their first call.
  virtual KerasTensorList inputs() const { return {}; }
  virtual KerasTensorList outputs() const { return {}; }
  virtual std::vector<std::string> output_names(size_t count) const;

  std::string module() const override { return "keras"; }
  Trainer& trainer() { return *trainer_; }

 private:
  std::unique_ptr<Trainer> trainer_;
};

template <class M, class... Args>
Model make_model(Args&&... args) {
  return Model(std::make_shared<M>(std::forward<Args>(args)...));
}

}  // namespace lockstep::keras
