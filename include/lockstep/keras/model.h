// Models: layers that can be trained.
//
//   Sequential model({layers::Dense(128, {.activation = "relu"}), layers::Dense(10)});
//   model.compile({.optimizer = "adam", .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
//                  .metrics = {"accuracy"}});
//   History history = model.fit({x, y}, {.batch_size = 32, .epochs = 5});
//
// A Model is a handle: copies name the same model. Model(inputs, outputs) is the functional API; to write one
// with a call() of its own, derive from ModelBase (not from Model, which is the handle) and make a handle
// with make_model<MyModel>(arguments...).
//
// A model belongs to one thread at a time, and so do the layers, metrics and the optimizer that it shares
// with others; only stop_training() and training_stopped() may be called from any thread at any time. Models
// that share nothing may be called, evaluated and asked for predictions by several threads at once; fit moves
// the default random generator on, so one fit at a time. A callback may evaluate and predict with the model
// that is being fitted, but not fit it.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/call_site.h"
#include "lockstep/keras/callbacks.h"
#include "lockstep/keras/data.h"
#include "lockstep/keras/layer.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/metrics.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep::keras {

// One value for the only output (one loss: for every output), a list in the order of the outputs, or a map by
// output name.
template <class T>
class PerOutput {
 public:
  PerOutput() = default;
  // NOLINTBEGIN(bugprone-forwarding-reference-overload): what is constrained does not take copies
  template <class U>
  requires std::is_convertible_v<U, T> PerOutput(U&& one,
                                                 std::source_location where = std::source_location::current())
      : list_{(CallSite(where), T(std::forward<U>(one)))}, single_(true) {}
  PerOutput(std::initializer_list<T> list) : list_(list) {}
  PerOutput(std::vector<T> list) : list_(std::move(list)) {}
  PerOutput(std::map<std::string, T> named) : named_(std::move(named)) {}
  // NOLINTEND(bugprone-forwarding-reference-overload)
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
  // NOLINTBEGIN(bugprone-forwarding-reference-overload): what is constrained does not take copies
  // .metrics = "accuracy"
  template <class T>
  requires std::convertible_to<T, Metric> MetricsArg(
      T&& metric, std::source_location where = std::source_location::current())
      : lists_{{(CallSite(where), Metric(std::forward<T>(metric)))}} {}
  MetricsArg(std::initializer_list<Metric> metrics) : lists_{metrics} {}
  MetricsArg(std::vector<Metric> metrics) : lists_{std::move(metrics)} {}
  MetricsArg(std::vector<std::vector<Metric>> lists) : lists_(std::move(lists)), by_position_(true) {}
  MetricsArg(std::map<std::string, std::vector<Metric>> named) : named_(std::move(named)) {}
  // NOLINTEND(bugprone-forwarding-reference-overload)
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
  // What is trained for is the sum over the outputs of weight * loss, and what layers add to it. An output
  // without a loss is not trained and needs no labels.
  PerOutput<Loss> loss = {};
  PerOutput<double> loss_weights = {};  // an output that is not named weighs 1
  MetricsArg metrics = {};              // every example counts once, whatever its sample weight
  MetricsArg weighted_metrics = {};     // examples count by their sample weights
  bool run_eagerly = false;             // op by op on one device, for debugging
  // Batches from one on_*_batch_begin to its on_*_batch_end, and per launch where a GPU can make several
  // steps as one launch. No weight depends on it.
  int64_t steps_per_execution = 1;
  // A model of the policy mixed_float16 gets its optimizer wrapped in a LossScaleOptimizer.
  bool auto_scale_loss = true;

  // As Keras' get_compile_config() writes them. Unknown settings are errors that name the nearest known one.
  Json serialize() const;
  static CompileOptions deserialize(const Json& json,
                                    std::source_location where = std::source_location::current());
};

struct FitOptions {
  // Examples per batch of arrays, over all replicas together; the last batch of an epoch may be smaller. A
  // dataset has batches of its own.
  int64_t batch_size = 32;
  int epochs = 1;  // the number of the last one: with initial_epoch there are fewer
  // 0: silent, 1: progress bar (plain lines where there is no terminal), 2: one line per epoch.
  int verbose = 1;
  std::vector<Callback> callbacks = {};  // called in this order, then the progress bar
  // This fraction of the arrays, from their end and before shuffling, is not trained on but validated on.
  // validation_data goes before it.
  double validation_split = 0;
  Data validation_data = {};
  // Arrays only: every epoch has another order, which follows from the default random generator
  // (random::set_seed).
  bool shuffle = true;
  // Factors on the sample weights of examples by their class; others weigh 1. For models of one output.
  std::map<int64_t, double> class_weight = {};
  int initial_epoch = 0;  // epochs before it count as done
  // Batches per epoch. -1: an epoch is one pass over the data. Otherwise an epoch goes on in the data where
  // the one before stopped, and begins anew where the data had ended there. Data without an end needs it.
  int64_t steps_per_epoch = -1;
  int64_t validation_steps = -1;       // batches from the beginning of the validation data; -1: all
  int64_t validation_batch_size = -1;  // -1: batch_size
  int validation_freq = 1;             // epochs from one validation to the next
  // A run of ten steps or more that is not silent (verbose = 0) ends with a report on where its time went
  // (lockstep/observe/run_report.h) on standard output, unless its strategy prints none
  // (StrategyOptions::report).
  bool report = true;
};

struct EvaluateOptions {
  int64_t batch_size = 32;  // as in fit
  int verbose = 1;          // 0: silent
  int64_t steps = -1;       // batches from the beginning of the data; -1: all
  std::vector<Callback> callbacks = {};
};

struct PredictOptions {
  int64_t batch_size = 32;  // as in fit
  int verbose = 1;          // 0: silent
  int64_t steps = -1;       // batches from the beginning of the data; -1: all
  std::vector<Callback> callbacks = {};
};

struct History {
  std::vector<int> epoch;                                            // from 0 on
  std::vector<std::pair<std::string, std::vector<double>>> history;  // one value per epoch that had it
  bool interrupted = false;                                          // stopped by Ctrl-C or SIGTERM
  int signal = 0;                                                    // which of them that was; 0: none
  observe::RunSummary time;                                          // where the training steps' time went

  // The values of "loss", "val_accuracy", ...; throws Error(not_found) naming those that there are.
  const std::vector<double>& operator[](Located<std::string_view> name) const;
  bool contains(const std::string& name) const;
  Json to_json() const;
};

struct SummaryOptions {
  int line_length = 0;                                         // 0: as the terminal has room for
  std::function<void(const std::string& text)> print_fn = {};  // empty: standard output
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
  // The functional API: everything between these. Where inputs or outputs have names, data, losses, metrics
  // and predictions go by these; otherwise by the names of the inputs, and of the layers that make the
  // outputs.
  Model(const KerasTensors& inputs, const KerasTensors& outputs, const ModelOptions& options = {},
        std::source_location where = std::source_location::current());

  // Says how to train; needed before fit and evaluate, not before predict. Nothing is traced yet: each kind
  // of step is traced and compiled with its first batch, once per shape of batches. A second compile()
  // forgets the compiled steps, the metrics' values and the optimizer of the first; the weights stay. It is
  // also how a change of `trainable` takes effect. Under a strategy: inside its scope. What does not
  // fit the model's outputs shows with the first batch.
  //
  // Throws Error(invalid_argument) where steps_per_execution is less than 1 or the optimizer was
  // default-constructed, Error(failed_precondition) where the Model was. Names that are not known are
  // Error(not_found), thrown where the options are made.
  void compile(const CompileOptions& options,
               std::source_location where = std::source_location::current()) const;
  // Trains for options.epochs passes over the data and returns the logs of every epoch and where the time
  // went. Weights that do not exist yet are made from the data's shapes before on_train_begin. The loss and
  // metrics of an epoch are means over its examples while the weights changed; those of validation (val_*)
  // are of the weights at the epoch's end.
  //
  // Arrays in host memory that take little of the current GPU's free memory are copied there once; otherwise
  // every batch is. Ctrl-C and SIGTERM end the run after the step that is under way, History::interrupted
  // says so; a second one ends the process. A signal that the program handles itself is left to it. An
  // exception out of the data, a callback or a step ends fit; the model keeps the steps that were made.
  //
  // Throws Error(failed_precondition) before compile(), for weights of another strategy than the model's,
  // where a strategy with several devices exists but nothing was made in its scope, or the optimizer alone
  // was; Error(invalid_argument) for options and data that do not fit the model, Error(shape_mismatch) for
  // arrays that do not fit each other.
  History fit(const Data& data, const FitOptions& options = {},
              std::source_location where = std::source_location::current()) const;
  History fit(const Tensor& x, const Tensor& y, const FitOptions& options = {},
              std::source_location where = std::source_location::current()) const;
  // Loss and metrics over the data, in its order, with layers as they are outside of training (no dropout,
  // moving statistics of batch normalisation). Data is read and refused as in fit. After Ctrl-C: of the
  // batches until then.
  Logs evaluate(const Data& data, const EvaluateOptions& options = {},
                std::source_location where = std::source_location::current()) const;
  Logs evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options = {},
                std::source_location where = std::source_location::current()) const;
  // The results for all examples, in their order, joined along the first dimension; what the data holds
  // besides x is not looked at. Data is read and refused as in fit; the model need not be compiled. Models of
  // several outputs: predict_all(). After Ctrl-C: of the batches until then.
  Tensor predict(const Data& data, const PredictOptions& options = {},
                 std::source_location where = std::source_location::current()) const;
  TensorList predict_all(const Data& data, const PredictOptions& options = {},
                         std::source_location where = std::source_location::current()) const;
  // The same by the names of the outputs.
  std::map<std::string, Tensor> predict_named(
      const Data& data, const PredictOptions& options = {},
      std::source_location where = std::source_location::current()) const;
  // One step on one batch; gives loss and metrics of this batch alone. No callbacks and no report.
  Logs train_on_batch(const Tensor& x, const Tensor& y, const Tensor& sample_weight = {},
                      const std::map<int64_t, double>& class_weight = {},
                      std::source_location where = std::source_location::current()) const;
  Logs test_on_batch(const Tensor& x, const Tensor& y, const Tensor& sample_weight = {},
                     std::source_location where = std::source_location::current()) const;
  Logs train_on_batch(const Batch& batch, const std::map<int64_t, double>& class_weight = {},
                      std::source_location where = std::source_location::current()) const;
  Logs test_on_batch(const Batch& batch, std::source_location where = std::source_location::current()) const;
  TensorList predict_on_batch(const TensorList& x,
                              std::source_location where = std::source_location::current()) const;

  bool compiled(std::source_location where = std::source_location::current()) const;
  // What the model was compiled with; throws Error(failed_precondition) before that.
  const optimizers::Optimizer& optimizer(std::source_location where = std::source_location::current()) const;
  std::vector<Metric> metrics(std::source_location where = std::source_location::current()) const;
  // The loss of the last training step alone, read from the device; the logs of a batch are means over the
  // epoch. Throws Error(failed_precondition) before the first step.
  double last_loss(std::source_location where = std::source_location::current()) const;
  // Asks fit to stop after the step that is under way; the epoch's validation and on_epoch_end still happen.
  // The next fit begins without it, and stop_training(false) takes it back. From any thread.
  void stop_training(bool stop = true, std::source_location where = std::source_location::current()) const;
  bool training_stopped(std::source_location where = std::source_location::current()) const;

  Layer get_layer(const std::string& name,
                  std::source_location where = std::source_location::current()) const;
  Layer get_layer(size_t index, std::source_location where = std::source_location::current()) const;
  // Prints the model's layers as Keras does.
  void summary(const SummaryOptions& options = {},
               std::source_location where = std::source_location::current()) const;

  // The whole model as Keras 3 saves it, in a file that ends in .keras: what it is made of, its weights and,
  // where it is compiled, with what and the optimizer's state. Keras loads it, and so does
  // models::load_model(). The file appears complete or not at all.
  void save(const std::string& path, std::source_location where = std::source_location::current()) const;
  // The weights: of a path that ends in .weights.h5 as Keras 3 saves them, with the optimizer's state where
  // the model is compiled; of any other, by path name in a safetensors file. The file appears complete or not
  // at all.
  void save_weights(const std::string& path,
                    std::source_location where = std::source_location::current()) const;
  // The weights, and nothing else, of a file that save_weights(), save(), Keras 3 (.weights.h5, .keras) or
  // Keras 2 (.h5) wrote, or of any safetensors file; what the file is, its first bytes say. By structure, as
  // Keras does: the weights of the file's first layer go to the model's first layer, whatever the layers are
  // called. A safetensors file that others wrote, or of another structure, goes by path name. Every weight
  // must be there with its shape; the error lists what is missing, extra or misshapen, and the model is as it
  // was.
  void load_weights(const std::string& path,
                    std::source_location where = std::source_location::current()) const;

  // Keras 3's own JSON: reads what Keras wrote, writes what Keras reads.
  std::string to_json(int indent = -1, std::source_location where = std::source_location::current()) const;
  static Model from_json(const std::string& json,
                         std::source_location where = std::source_location::current());

  ModelBase& model_base(std::source_location where = std::source_location::current()) const;
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

namespace models {
using keras::Model;
using keras::Sequential;

struct LoadModelOptions {
  bool compile = true;  // false: the model is not compiled, and its optimizer's state stays in the file
};
// A model that save() wrote, or Keras 3: a .keras file, or the folder that it unpacks to. A compiled one goes
// on training where it stood. Classes of your own are made known by register_layer() before. Throws Error(io)
// for a damaged file, Error(unsupported) for what there is no counterpart of.
Model load_model(const std::string& path, const LoadModelOptions& options = {},
                 std::source_location where = std::source_location::current());
// A model of the same layers with weights of its own, made anew; it is not compiled.
Model clone_model(const Model& model, std::source_location where = std::source_location::current());
inline Model model_from_json(const std::string& json,
                             std::source_location where = std::source_location::current()) {
  return Model::from_json(json, where);
}
}  // namespace models

class Trainer;

class ModelBase : public LayerBase {
 public:
  explicit ModelBase(std::string class_name = "Model", LayerBaseOptions options = {},
                     std::source_location where = std::source_location::current());
  ~ModelBase() override;

  // Names and, where known, shapes of inputs and outputs; models with a call() of their own know them after
  // their first call.
  virtual KerasTensorList inputs() const { return {}; }
  virtual KerasTensorList outputs() const { return {}; }
  // What data by name calls inputs() and outputs.
  virtual std::vector<std::string> input_names() const;
  virtual std::vector<std::string> output_names(size_t count) const;

  // "compile_config" of Keras' files. Default: what it was compiled with, and compile() of that.
  virtual Json compile_config() const;
  virtual void compile_from_config(const Json& config, std::source_location where);

  std::string module() const override { return "keras"; }
  Trainer& trainer() { return *trainer_; }
  const Trainer& trainer() const { return *trainer_; }

 private:
  std::unique_ptr<Trainer> trainer_;
};

template <class M, class... Args>
Model make_model(Args&&... args) {
  return Model(std::make_shared<M>(std::forward<Args>(args)...));
}

}  // namespace lockstep::keras
