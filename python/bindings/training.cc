// Models, losses, metrics, optimizers, callbacks.
#include <algorithm>
#include <chrono>

#include "keras.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/callbacks.h"
#include "lockstep/keras/data.h"
#include "lockstep/keras/directories.h"
#include "lockstep/keras/drawn_calls.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/metrics.h"
#include "lockstep/keras/onnx.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/keras/preprocessing.h"
#include "lockstep/keras/save_model.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/ops/math.h"
#include "structures.h"

namespace lockstep::python {

using keras::Callback;
using keras::CallbackBase;
using keras::Data;
using keras::History;
using keras::KerasTensor;
using keras::Layer;
using keras::Logs;
using keras::Loss;
using keras::Metric;
using keras::MetricBase;
using keras::Model;
using keras::RunParams;
using keras::Sequential;
using keras::optimizers::LearningRateSchedule;
using keras::optimizers::Optimizer;

namespace {

nb::dict to_python(const Logs& logs) {
  nb::dict dict;
  for (const auto& [name, value] : logs) dict[name.c_str()] = value;
  return dict;
}

// --- callbacks -----------------------------------------------------------------------------------------------------------

const std::map<std::string_view, void (CallbackBase::*)(const Logs&)> kMomentsOfRuns = {
    {"on_train_begin", &CallbackBase::on_train_begin},     {"on_train_end", &CallbackBase::on_train_end},
    {"on_test_begin", &CallbackBase::on_test_begin},       {"on_test_end", &CallbackBase::on_test_end},
    {"on_predict_begin", &CallbackBase::on_predict_begin}, {"on_predict_end", &CallbackBase::on_predict_end},
};
const std::map<std::string_view, void (CallbackBase::*)(int64_t, const Logs&)> kMomentsOfBatches = {
    {"on_train_batch_begin", &CallbackBase::on_train_batch_begin},
    {"on_train_batch_end", &CallbackBase::on_train_batch_end},
    {"on_test_batch_begin", &CallbackBase::on_test_batch_begin},
    {"on_test_batch_end", &CallbackBase::on_test_batch_end},
    {"on_predict_batch_begin", &CallbackBase::on_predict_batch_begin},
    {"on_predict_batch_end", &CallbackBase::on_predict_batch_end},
};

// A callback that is written in Python. Which moments it hears of is what its class defines.
class WrittenCallback final : public CallbackBase {
 public:
  explicit WrittenCallback(Any self)
      : self_(self),
        every_batch_(nb::cast<bool>(self.attr("_hears_of_batches"))),
        batch_logs_(nb::cast<bool>(self.attr("_wants_batch_logs"))) {}

  void on_train_begin(const Logs& logs) override {
    const nb::gil_scoped_acquire acquire;
    nb::dict run;
    run["verbose"] = params().verbose;
    run["epochs"] = params().epochs;
    run["steps"] = params().steps < 0 ? nb::none() : nb::object(nb::int_(params().steps));
    self_.get().attr("set_params")(run);
    tell("on_train_begin", logs);
  }
  void on_train_end(const Logs& logs) override { tell("on_train_end", logs); }
  void on_epoch_begin(int epoch, const Logs& logs) override { tell("on_epoch_begin", epoch, logs); }
  void add_logs(int epoch, Logs& logs) override {
    const nb::gil_scoped_acquire acquire;
    if (!nb::hasattr(self_.get(), "_add_logs")) return;
    for (const auto& [name, value] : nb::cast<nb::dict>(self_.get().attr("_add_logs")(epoch)))
      logs.set(nb::cast<std::string>(name), nb::cast<double>(value));
  }
  void on_epoch_end(int epoch, const Logs& logs) override { tell("on_epoch_end", epoch, logs); }
  void on_train_batch_begin(int64_t batch, const Logs& logs) override {
    if (every_batch_) tell("on_train_batch_begin", batch, logs);
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (every_batch_) tell("on_train_batch_end", batch, logs);
  }
  void on_test_begin(const Logs& logs) override { tell("on_test_begin", logs); }
  void on_test_end(const Logs& logs) override { tell("on_test_end", logs); }
  void on_test_batch_begin(int64_t batch, const Logs& logs) override {
    tell_of_batch("on_test_batch_begin", batch, logs);
  }
  void on_test_batch_end(int64_t batch, const Logs& logs) override {
    tell_of_batch("on_test_batch_end", batch, logs);
  }
  void on_predict_begin(const Logs& logs) override { tell("on_predict_begin", logs); }
  void on_predict_end(const Logs& logs) override { tell("on_predict_end", logs); }
  void on_predict_batch_begin(int64_t batch, const Logs& logs) override {
    tell_of_batch("on_predict_batch_begin", batch, logs);
  }
  void on_predict_batch_end(int64_t batch, const Logs& logs) override {
    tell_of_batch("on_predict_batch_end", batch, logs);
  }
  bool wants_batch_logs() const override { return batch_logs_; }
  bool needs_every_batch() const override { return every_batch_; }

 private:
  void tell(const char* moment, const Logs& logs) const {
    const nb::gil_scoped_acquire acquire;
    self_.get().attr(moment)(to_python(logs));
  }
  void tell(const char* moment, int64_t number, const Logs& logs) const {
    const nb::gil_scoped_acquire acquire;
    self_.get().attr(moment)(number, to_python(logs));
  }
  void tell_of_batch(const char* moment, int64_t batch, const Logs& logs) const {
    if (every_batch_) tell(moment, batch, logs);
  }

  Kept self_;
  bool every_batch_, batch_logs_;
};

// Python learns of Ctrl-C between two steps: not at every one, for who asks needs the GIL, and waits for it as long as another thread
// computes in Python.
class Interruptible final : public CallbackBase {
 public:
  void on_train_batch_end(int64_t, const Logs&) override { check(); }
  void on_test_batch_end(int64_t, const Logs&) override { check(); }
  void on_predict_batch_end(int64_t, const Logs&) override { check(); }
  void on_epoch_end(int, const Logs&) override { check(); }
  bool needs_every_batch() const override { return false; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBetween{100};

  void check() {
    const Clock::time_point now = Clock::now();
    if (now - checked_ < kBetween) return;
    check_signals();
    checked_ = Clock::now();
  }

  Clock::time_point checked_ = Clock::now();
};

std::vector<Callback> callbacks(Any sequence) {
  std::vector<Callback> list;
  for (const nb::handle item : nb::borrow<nb::sequence>(sequence)) list.push_back(nb::cast<Callback>(item));
  list.push_back(keras::make_callback<Interruptible>());
  return list;
}

template <class T>
T setting(const nb::dict& settings, const char* name, T otherwise) {
  const nb::object value = settings.attr("get")(name);
  return value.is_none() ? otherwise : nb::cast<T>(value);
}

Callback engine_callback(const std::string& name, const nb::dict& s) {
  namespace cb = keras::callbacks;
  const std::source_location where = here();
  const auto text = [&](const char* key, const char* otherwise = "") {
    return setting<std::string>(s, key, otherwise);
  };
  const auto whole = [&](const char* key, int otherwise = 0) { return setting<int>(s, key, otherwise); };
  const auto real = [&](const char* key, double otherwise = 0) { return setting<double>(s, key, otherwise); };
  const auto yes = [&](const char* key, bool otherwise = false) { return setting<bool>(s, key, otherwise); };
  const auto perhaps = [&](const char* key) -> std::optional<double> {
    const nb::object value = s.attr("get")(key);
    return value.is_none() ? std::nullopt : std::optional(nb::cast<double>(value));
  };
  if (name == "ModelCheckpoint")
    return cb::ModelCheckpoint(text("filepath"),
                               {.monitor = text("monitor", "val_loss"),
                                .verbose = whole("verbose"),
                                .save_best_only = yes("save_best_only"),
                                .save_weights_only = yes("save_weights_only"),
                                .mode = text("mode", "auto"),
                                .save_freq = whole("save_freq"),
                                .initial_value_threshold = perhaps("initial_value_threshold")},
                               where);
  if (name == "EarlyStopping")
    return cb::EarlyStopping({.monitor = text("monitor", "val_loss"),
                              .min_delta = real("min_delta"),
                              .patience = whole("patience"),
                              .verbose = whole("verbose"),
                              .mode = text("mode", "auto"),
                              .baseline = perhaps("baseline"),
                              .restore_best_weights = yes("restore_best_weights"),
                              .start_from_epoch = whole("start_from_epoch")},
                             where);
  if (name == "ReduceLROnPlateau")
    return cb::ReduceLROnPlateau({.monitor = text("monitor", "val_loss"),
                                  .factor = real("factor", 0.1),
                                  .patience = whole("patience", 10),
                                  .verbose = whole("verbose"),
                                  .mode = text("mode", "auto"),
                                  .min_delta = real("min_delta", 1e-4),
                                  .cooldown = whole("cooldown"),
                                  .min_lr = real("min_lr")},
                                 where);
  if (name == "CSVLogger")
    return cb::CSVLogger(text("filename"), {.separator = text("separator", ","), .append = yes("append")},
                         where);
  if (name == "TerminateOnNaN") return cb::TerminateOnNaN({.raise_error = yes("raise_error")});
  if (name == "BackupAndRestore")
    return cb::BackupAndRestore(
        text("backup_dir"),
        {.save_freq = whole("save_freq"), .delete_checkpoint = yes("delete_checkpoint", true)}, where);
  if (name == "TensorBoard")
    return cb::TensorBoard(text("log_dir", "logs"),
                           {.histogram_freq = whole("histogram_freq"),
                            .write_graph = yes("write_graph", true),
                            .write_steps_per_second = yes("write_steps_per_second"),
                            .update_freq = whole("update_freq")},
                           where);
  if (name == "LearningRateScheduler")
    return cb::LearningRateScheduler(
        [kept = Kept(s["schedule"])](int epoch, double rate) {
          const nb::gil_scoped_acquire acquire;
          return nb::cast<double>(nb::borrow<nb::callable>(kept.get())(epoch, rate));
        },
        whole("verbose"), where);
  throw nb::value_error(name.c_str());
}

// --- data ----------------------------------------------------------------------------------------------------------------

// Tensors of one kind as the package hands them over: a list, or a dictionary by name.
Data model_data(Any x, Any y, Any weights) {
  const std::source_location where = here();
  if (nb::isinstance<data::Dataset>(x)) return {nb::cast<const data::Dataset&>(x), where};
  if (nb::isinstance<nb::dict>(x) || nb::isinstance<nb::dict>(y)) {
    const auto named = [](Any given) {
      Data::Named all;
      if (nb::isinstance<nb::dict>(given))
        for (const auto& [name, value] : nb::borrow<nb::dict>(given))
          all[nb::cast<std::string>(name)] = tensor(value);
      return all;
    };
    return {named(x), named(y), named(weights), where};
  }
  return {tensors(x), tensors(y), tensors(weights), where};
}

Data data_of(Any triple) {
  if (triple.is_none()) return {};
  return model_data(triple[0], triple[1], triple[2]);
}

std::map<int64_t, double> class_weights(Any given) {
  return given.is_none() ? std::map<int64_t, double>() : nb::cast<std::map<int64_t, double>>(given);
}

keras::Batch batch_of(Any triple) {
  return {.x = tensors(triple[0]), .y = tensors(triple[1]), .sample_weight = tensors(triple[2])};
}

nb::tuple to_python(const keras::Batch& batch) {
  return nb::make_tuple(python::to_python(batch.x), python::to_python(batch.y),
                        python::to_python(batch.sample_weight));
}

template <class T>
keras::PerOutput<T> per_output(Any given, const std::function<T(nb::handle)>& one) {
  if (given.is_none()) return {};
  if (nb::isinstance<nb::dict>(given)) {
    std::map<std::string, T> named;
    for (const auto& [name, value] : nb::borrow<nb::dict>(given))
      named[nb::cast<std::string>(name)] = one(value);
    return {std::move(named)};
  }
  if (nb::isinstance<nb::list>(given)) {
    std::vector<T> list;
    for (const nb::handle value : nb::borrow<nb::list>(given)) list.push_back(one(value));
    return {std::move(list)};
  }
  return {one(given), here()};
}

std::vector<Metric> metric_list(Any sequence) {
  std::vector<Metric> list;
  for (const nb::handle item : nb::borrow<nb::sequence>(sequence)) list.push_back(nb::cast<Metric>(item));
  return list;
}

// A list of metrics, a list of such lists, or a dictionary of them.
keras::MetricsArg metrics_arg(Any given) {
  if (nb::isinstance<nb::dict>(given)) {
    std::map<std::string, std::vector<Metric>> named;
    for (const auto& [name, value] : nb::borrow<nb::dict>(given))
      named[nb::cast<std::string>(name)] = metric_list(value);
    return {std::move(named)};
  }
  const nb::sequence all = nb::borrow<nb::sequence>(given);
  if (nb::len(all) > 0 && nb::isinstance<nb::list>(all[0])) {
    std::vector<std::vector<Metric>> lists;
    for (const nb::handle item : all) lists.push_back(metric_list(item));
    return {std::move(lists)};
  }
  return {metric_list(given)};
}

// --- metrics -------------------------------------------------------------------------------------------------------------

// A metric that is written in Python. Its variables are those that it makes itself.
class WrittenMetric final : public MetricBase {
 public:
  WrittenMetric(Any self, std::string name) : MetricBase(std::move(name)), self_(self) {}
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    const nb::gil_scoped_acquire acquire;
    self_.get().attr("_update_for_engine")(python::to_python(y_true), python::to_python(y_pred),
                                           python::to_python(sample_weight));
  }
  Tensor result() const override {
    const nb::gil_scoped_acquire acquire;
    return tensor(self_.get().attr("result")());
  }
  void reset() override {
    const nb::gil_scoped_acquire acquire;
    self_.get().attr("reset_state")();
  }
  std::string class_name() const override { return saved_form(self_).class_name; }
  Json config() const override { return saved_form(self_).config; }
  Variable new_variable(const std::string& name, const Tensor& initial) {
    return add_variable(name, initial);
  }

 private:
  Kept self_;
};

// By Keras' name; None is none.
keras::Reduction reduction(Any given) {
  const std::string name = given.is_none() ? "none" : nb::cast<std::string>(given);
  const std::pair<const char*, keras::Reduction> all[] = {
      {"none", keras::Reduction::none},
      {"sum", keras::Reduction::sum},
      {"sum_over_batch_size", keras::Reduction::sum_over_batch_size},
      {"mean", keras::Reduction::sum_over_batch_size},
      {"mean_with_sample_weight", keras::Reduction::mean_with_sample_weight}};
  for (const auto& [known, kind] : all)
    if (name == known) return kind;
  fail(ErrorCode::invalid_argument, here(), "there is no reduction \"", name,
       "\"; there are none, sum, sum_over_batch_size and mean_with_sample_weight");
}

// A loss that is written in Python: an object whose class is Loss.
class WrittenLoss final : public Loss::Rule {
 public:
  WrittenLoss(Any self, std::string name, keras::Reduction reduction)
      : Rule(std::move(name), reduction), self_(self) {}
  Tensor losses(const Tensor& y_true, const Tensor& y_pred) const override {
    const nb::gil_scoped_acquire acquire;
    return tensor(self_.get().attr("_losses_for_engine")(y_true, y_pred));
  }
  std::string class_name() const override { return saved_form(self_).class_name; }
  Json config() const override { return saved_form(self_).config; }

 private:
  Kept self_;
};

void bind_losses(nb::module_& m) {
  nb::class_<Loss>(m, "Loss")
      .def_static("deserialize", [](Any config) { return Loss::deserialize(json(config), here()); })
      .def_static("from_function",
                  [](Any f, std::string name, Any how) {
                    return keras::losses::from_function(
                        [kept = Kept(f)](const Tensor& y_true, const Tensor& y_pred) {
                          const nb::gil_scoped_acquire acquire;
                          return tensor(nb::borrow<nb::callable>(kept.get())(y_true, y_pred));
                        },
                        {.name = std::move(name), .reduction = reduction(how)});
                  })
      .def_static("written",
                  [](Any self, std::string name, Any how) {
                    return Loss(std::static_pointer_cast<const Loss::Rule>(
                        std::make_shared<WrittenLoss>(self, std::move(name), reduction(how))));
                  })
      .def("__call__",
           [](const Loss& loss, Any y_true, Any y_pred, Any weight) {
             return loss(tensor(y_true), tensor(y_pred), tensor(weight), here());
           })
      .def("losses",
           [](const Loss& loss, Any y_true, Any y_pred) {
             const CallSite site(here());
             return loss.rule().losses(tensor(y_true), tensor(y_pred));
           })
      .def_prop_ro("name", &Loss::name)
      .def("serialize", [](const Loss& loss) { return python::to_python(loss.serialize()); });

  nb::class_<Metric>(m, "Metric")
      .def_static("deserialize", [](Any config) { return Metric::deserialize(json(config), here()); })
      .def_static("from_function",
                  [](Any f, std::string name) {
                    return keras::metrics::MeanMetricWrapper(
                        [kept = Kept(f)](const Tensor& y_true, const Tensor& y_pred) {
                          const nb::gil_scoped_acquire acquire;
                          return tensor(nb::borrow<nb::callable>(kept.get())(y_true, y_pred));
                        },
                        {.name = std::move(name)}, here());
                  })
      .def_static("written",
                  [](Any self, std::string name) {
                    return Metric(std::static_pointer_cast<MetricBase>(
                        std::make_shared<WrittenMetric>(self, std::move(name))));
                  })
      .def("new_variable",
           [](const Metric& metric, const std::string& name, Any initial) {
             return dynamic_cast<WrittenMetric&>(*metric.base()).new_variable(name, tensor(initial));
           })
      .def("update_state",
           [](const Metric& metric, Any y_true, Any y_pred, Any weight) {
             metric.update_state(tensor(y_true), tensor(y_pred), tensor(weight), here());
           })
      .def("update_values",
           [](const Metric& metric, Any values, Any weight) {
             if (weight.is_none())
               metric.update_state(tensor(values), here());
             else
               metric.update_state(tensor(values), tensor(weight), {}, here());
           })
      .def_prop_ro("is_written",
                   [](const Metric& metric) {
                     return dynamic_cast<const WrittenMetric*>(metric.base().get()) != nullptr;
                   })
      .def_prop_ro("class_name", [](const Metric& metric) { return metric.base()->class_name(); })
      .def_prop_ro("takes_values", [](const Metric& metric) { return metric.base()->takes_values(); })
      .def("result", [](const Metric& metric) { return metric.result(here()); })
      .def("reset_state", [](const Metric& metric) { metric.reset_state(here()); })
      // The variables of one that needs no data to know their sizes.
      .def("build",
           [](const Metric& metric) {
             const Tensor none = full({1, 1}, 0, DType::float32, when_asked());
             metric.base()->ensure_built(metric.base()->takes_values() ? Tensor() : none, none);
           })
      .def("variables", [](const Metric& metric) { return metric.variables(); })
      .def("keras_state", [](const Metric& metric) { return metric.base()->keras_state(); })
      .def_prop_ro("name", [](const Metric& metric) { return metric.name(); })
      .def("serialize", [](const Metric& metric) { return python::to_python(metric.serialize()); });

  nb::class_<LearningRateSchedule>(m, "Schedule")
      .def_static("deserialize",
                  [](Any config) { return LearningRateSchedule::deserialize(json(config), here()); })
      .def("__call__", [](const LearningRateSchedule& schedule,
                          Any step) { return schedule(tensor(step, DType::int64), here()); })
      .def("serialize",
           [](const LearningRateSchedule& schedule) { return python::to_python(schedule.serialize()); });
  nb::class_<Optimizer>(m, "Optimizer")
      .def_static("deserialize", [](Any config) { return Optimizer::deserialize(json(config), here()); })
      .def("build",
           [](const Optimizer& o, const std::vector<Variable>& variables) { o.build(variables, here()); })
      .def("apply_gradients",
           [](const Optimizer& o, Any gradients, const std::vector<Variable>& variables) {
             const TensorList given = tensors(gradients);
             const std::source_location where = here();
             released([&] { o.apply_gradients(given, variables, where); });
           })
      .def("scale_loss", [](const Optimizer& o, Any loss) { return o.scale_loss(arg(loss)); })
      .def("finalize_variable_values",
           [](const Optimizer& o, const std::vector<Variable>& variables) {
             o.finalize_variable_values(variables, here());
           })
      .def("exclude_from_weight_decay",
           [](const Optimizer& o, std::vector<std::string> words, std::vector<int64_t> ids) {
             o.exclude_from_weight_decay(
                 [words = std::move(words), ids = std::move(ids)](const Variable& variable) {
                   return std::ranges::find(ids, static_cast<int64_t>(variable.id())) != ids.end() ||
                          std::ranges::any_of(words, [&](const std::string& word) {
                            return variable.name().find(word) != std::string::npos;
                          });
                 },
                 here());
           })
      .def_prop_ro("scheduled", [](const Optimizer& o) { return o.schedule().defined(); })
      .def("learning_rate", [](const Optimizer& o) { return o.learning_rate(here()); })
      .def("set_learning_rate", [](const Optimizer& o, double rate) { o.set_learning_rate(rate, here()); })
      .def("current_learning_rate", [](const Optimizer& o) { return o.current_learning_rate(here()); })
      .def("iterations", [](const Optimizer& o) { return o.iterations(); })
      .def("variables", [](const Optimizer& o) { return o.variables(); })
      .def_prop_ro("name", [](const Optimizer& o) { return o.name(); })
      .def_prop_ro("key", [](const Optimizer& o) { return reinterpret_cast<uintptr_t>(o.core().get()); })
      .def("serialize", [](const Optimizer& o) { return python::to_python(o.serialize(here())); });
}

void bind_models(nb::module_& m) {
  nb::class_<Callback>(m, "Callback")
      .def_static(
          "written",
          [](Any self) {
            return Callback(std::static_pointer_cast<CallbackBase>(std::make_shared<WrittenCallback>(self)));
          })
      .def_static("of_engine", &engine_callback)
      .def("bind",
           [](const Callback& c, Any model, int epochs, int64_t steps, int verbose) {
             c.base()->bind(nb::cast<Model*>(model),
                            RunParams{.epochs = epochs, .steps = steps, .verbose = verbose});
           })
      // What it keeps from epoch to epoch, by name: a tensor, or a list of them.
      .def("state",
           [](const Callback& c) {
             keras::CallbackState written;
             c.base()->visit_state(written);
             nb::dict state;
             for (const auto& [name, value] : written.take()) state[name.c_str()] = nb::cast(value);
             return state;
           })
      .def("set_state",
           [](const Callback& c, const nb::dict& state) {
             keras::CallbackState::Tensors values;
             for (const auto& [name, value] : state)
               values.emplace_back(nb::cast<std::string>(name), nb::cast<Tensor>(value));
             keras::CallbackState saved(std::move(values));
             c.base()->visit_state(saved);
           })
      // For training loops that are written in Python.
      .def("tell", [](const Callback& c, const std::string& moment, int64_t number, nb::dict values) {
        Logs logs;
        for (const auto& [name, value] : values)
          logs.set(nb::cast<std::string>(name), nb::cast<double>(value));
        CallbackBase& base = *c.base();
        const int epoch = static_cast<int>(number);
        if (moment == "on_epoch_begin") {
          base.on_epoch_begin(epoch, logs);
        } else if (moment == "on_epoch_end") {
          base.add_logs(epoch, logs);
          base.on_epoch_end(epoch, logs);
        } else if (const auto run = kMomentsOfRuns.find(moment); run != kMomentsOfRuns.end()) {
          (base.*run->second)(logs);
        } else {
          (base.*kMomentsOfBatches.at(moment))(number, logs);
        }
        return to_python(logs);
      });

  nb::class_<Model, Layer>(m, "Model")
      .def_static("functional",
                  [](Any inputs, Any outputs, const std::string& name, bool trainable) {
                    const auto ends = [](Any given) -> keras::KerasTensors {
                      if (nb::isinstance<nb::dict>(given)) {
                        keras::KerasTensors::Named named;
                        for (const auto& [key, value] : nb::borrow<nb::dict>(given))
                          named[nb::cast<std::string>(key)] = nb::cast<KerasTensor>(value);
                        return {named};
                      }
                      keras::KerasTensorList list;
                      for (const nb::handle value : nb::borrow<nb::sequence>(given))
                        list.push_back(nb::cast<KerasTensor>(value));
                      return {std::move(list)};
                    };
                    return Model(ends(inputs), ends(outputs), {.name = name, .trainable = trainable}, here());
                  })
      .def_static("from_json", [](const std::string& text) { return Model::from_json(text, here()); })
      .def("to_json", [](const Model& model, int indent) { return model.to_json(indent, here()); })
      // The engine's own, which classes of Python may replace.
      .def("compile_config",
           [](const Model& model) {
             return python::to_python(model.model_base(here()).ModelBase::compile_config());
           })
      .def("compile_from_config",
           [](const Model& model, Any config) {
             model.model_base(here()).ModelBase::compile_from_config(json(config), here());
           })
      .def("compile",
           [](const Model& model, const Optimizer& optimizer, Any loss, Any loss_weights, Any metrics,
              Any weighted_metrics, bool run_eagerly, int64_t steps_per_execution, bool auto_scale_loss) {
             keras::CompileOptions options{.optimizer = optimizer};
             options.loss =
                 per_output<Loss>(loss, [](Any one) { return one.is_none() ? Loss() : nb::cast<Loss>(one); });
             options.loss_weights =
                 per_output<double>(loss_weights, [](Any one) { return nb::cast<double>(one); });
             options.metrics = metrics_arg(metrics);
             options.weighted_metrics = metrics_arg(weighted_metrics);
             options.run_eagerly = run_eagerly;
             options.steps_per_execution = steps_per_execution;
             options.auto_scale_loss = auto_scale_loss;
             model.compile(options, here());
           })
      // What fit does with arrays before it trains: (x, y, sample_weight), each a list, as two of them, and with weights by class.
      .def_static("split_off",
                  [](Any batch, double fraction) {
                    const auto [train, validation] = keras::split_off(batch_of(batch), fraction, here());
                    return nb::make_tuple(to_python(train), to_python(validation));
                  })
      .def_static(
          "with_class_weight",
          [](Any batch, Any weights) {
            return to_python(keras::with_class_weight(batch_of(batch), class_weights(weights), here()));
          })
      .def("fit",
           [](const Model& model, Any data, nb::dict s) {
             keras::FitOptions options{
                 .batch_size = setting<int64_t>(s, "batch_size", 32),
                 .epochs = setting<int>(s, "epochs", 1),
                 .verbose = setting<int>(s, "verbose", 1),
                 .callbacks = callbacks(s["callbacks"]),
                 .validation_split = setting<double>(s, "validation_split", 0),
                 .validation_data = data_of(s["validation_data"]),
                 .shuffle = setting<bool>(s, "shuffle", true),
                 .class_weight = class_weights(s["class_weight"]),
                 .initial_epoch = setting<int>(s, "initial_epoch", 0),
                 .steps_per_epoch = setting<int64_t>(s, "steps_per_epoch", -1),
                 .validation_steps = setting<int64_t>(s, "validation_steps", -1),
                 .validation_batch_size = setting<int64_t>(s, "validation_batch_size", -1),
                 .validation_freq = setting<int>(s, "validation_freq", 1)};
             const Data given = data_of(data);
             const std::source_location where = here();
             const History history = released([&] { return model.fit(given, options, where); });
             check_signals();
             nb::dict values;
             for (const auto& [name, each] : history.history) values[name.c_str()] = nb::cast(each);
             return nb::make_tuple(history.epoch, values);
           })
      .def("evaluate",
           [](const Model& model, Any data, int64_t batch_size, int verbose, int64_t steps, Any told) {
             const Data given = data_of(data);
             const keras::EvaluateOptions options{batch_size, verbose, steps, callbacks(told)};
             const std::source_location where = here();
             const Logs logs = released([&] { return model.evaluate(given, options, where); });
             check_signals();
             return to_python(logs);
           })
      .def("predict",
           [](const Model& model, Any data, int64_t batch_size, int verbose, int64_t steps, Any told) {
             const Data given = data_of(data);
             const keras::PredictOptions options{batch_size, verbose, steps, callbacks(told)};
             const std::source_location where = here();
             const TensorList results = released([&] { return model.predict_all(given, options, where); });
             check_signals();
             return python::to_python(results);
           })
      .def("train_on_batch",
           [](const Model& model, Any batch, Any class_weight) {
             const keras::Batch given = batch_of(batch);
             const auto weights = class_weights(class_weight);
             const std::source_location where = here();
             return to_python(released([&] { return model.train_on_batch(given, weights, where); }));
           })
      .def("test_on_batch",
           [](const Model& model, Any batch) {
             const keras::Batch given = batch_of(batch);
             const std::source_location where = here();
             return to_python(released([&] { return model.test_on_batch(given, where); }));
           })
      .def("predict_on_batch",
           [](const Model& model, Any x) {
             const TensorList given = tensors(x);
             const std::source_location where = here();
             return python::to_python(released([&] { return model.predict_on_batch(given, where); }));
           })
      .def_prop_ro("compiled", [](const Model& model) { return model.compiled(); })
      .def("optimizer", [](const Model& model) { return model.optimizer(here()); })
      .def("metrics", [](const Model& model) { return model.metrics(here()); })
      .def("stop_training", [](const Model& model, bool stop) { model.stop_training(stop); })
      .def("training_stopped", [](const Model& model) { return model.training_stopped(); })
      .def("get_layer",
           [](const Model& model, Any which) -> Layer {
             if (nb::isinstance<nb::str>(which)) return model.get_layer(nb::cast<std::string>(which), here());
             return model.get_layer(nb::cast<size_t>(which), here());
           })
      .def("summary",
           [](const Model& model, int line_length, bool expand_nested, bool show_trainable) {
             std::string text;
             model.summary({.line_length = line_length,
                            .print_fn = [&](const std::string& line) { text += line; },
                            .expand_nested = expand_nested,
                            .show_trainable = show_trainable},
                           here());
             return text;
           })
      .def("save",
           [](const Model& model, const std::string& path, bool include_optimizer) {
             const std::source_location where = here();
             released([&] { keras::models::save_model(model, path, {include_optimizer}, where); });
           })
      .def_static("load",
                  [](const std::string& path, bool compile) {
                    const std::source_location where = here();
                    return released([&] { return keras::models::load_model(path, {compile}, where); });
                  })
      .def("clone", [](const Model& model) { return keras::models::clone_model(model, here()); })
      .def("export_onnx",
           [](const Model& model, const std::string& path) {
             const std::source_location where = here();
             released([&] { keras::models::export_onnx(model, path, where); });
           })
      .def_static("application",
                  [](const std::string& name, Any options) {
                    return keras::applications::make(name, json(options), here());
                  })
      .def_static("from_hugging_face",
                  [](const std::string& folder) {
                    const std::source_location where = here();
                    return released([&] { return keras::applications::from_hugging_face(folder, where); });
                  })
      .def("save_weights",
           [](const Model& model, const std::string& path) {
             const std::source_location where = here();
             released([&] { model.save_weights(path, where); });
           })
      .def("load_weights",
           [](const Model& model, const std::string& path) {
             const std::source_location where = here();
             released([&] { model.load_weights(path, where); });
           })
      .def("inputs", [](const Model& model) { return model.model_base().inputs(); })
      .def("outputs", [](const Model& model) { return model.model_base().outputs(); })
      // A layer inside of a model that is one itself.
      .def_static("of_layer",
                  [](const Layer& layer) {
                    auto base = std::dynamic_pointer_cast<keras::ModelBase>(layer.base());
                    require(base != nullptr, ErrorCode::invalid_argument, here(), "layer \"", layer.name(),
                            "\" is no model");
                    return Model(std::move(base));
                  })
      .def("output_keys", [](const Model& model) { return keras::output_keys(model, here()); })
      // (layer, inputs, outputs) of every call of a functional model.
      .def("layer_calls",
           [](const Model& model) {
             nb::list calls;
             for (const keras::DrawnCall& call : keras::drawn_calls(model, here()))
               calls.append(nb::make_tuple(call.layer, call.inputs, call.outputs));
             return calls;
           })
      .def("input_names", [](const Model& model) { return model.model_base().input_names(); })
      .def("output_names",
           [](const Model& model, size_t count) { return model.model_base().output_names(count); });
  nb::class_<Sequential, Model>(m, "Sequential")
      .def("__init__",
           [](Sequential* self, const std::string& name, bool trainable) {
             new (self) Sequential({.name = name, .trainable = trainable}, here());
           })
      // A model that is one, such as one that was read from a file.
      .def_static("of",
                  [](const Model& model) {
                    Sequential made({.name = model.name()}, here());
                    static_cast<Model&>(made) = model;
                    return made;
                  })
      .def("add", [](const Sequential& model, const Layer& layer) { model.add(layer, here()); })
      .def("add_input", [](const Sequential& model, const KerasTensor& input) { model.add(input, here()); })
      .def("pop", [](const Sequential& model) { model.pop(here()); });
}

}  // namespace

void bind_training(nb::module_& m) {
  bind_losses(m);
  bind_models(m);
  m.def("application_names", &keras::applications::names);
  m.def("application_options", [](const std::string& name) {
    return python::to_python(keras::applications::default_options(name, here()));
  });
  m.def("to_categorical", [](Any labels, int64_t classes) {
    return keras::utils::to_categorical(tensor(labels), classes, here());
  });
  m.def("normalize",
        [](Any x, int axis, int order) { return keras::utils::normalize(tensor(x), axis, order, here()); });
  // (labels or None, names of the classes, paths) of the images of a folder.
  m.def("image_files_from_directory", [](const std::string& directory, nb::dict s) {
    keras::utils::DirectoryOptions options{
        .label_mode = setting<std::string>(s, "label_mode", "int"),
        .class_names = nb::cast<std::vector<std::string>>(s["class_names"]),
        .shuffle = setting<bool>(s, "shuffle", true),
        .validation_split = setting<double>(s, "validation_split", 0),
        .subset = setting<std::string>(s, "subset", "")};
    if (!s["seed"].is_none()) options.seed = nb::cast<uint64_t>(s["seed"]);
    const auto files = keras::utils::image_files_from_directory(directory, options, here());
    return nb::make_tuple(files.y.defined() ? nb::cast(files.y) : nb::none(), files.class_names,
                          files.file_paths);
  });
  m.def("decode_image_files", [](const std::vector<std::string>& paths, std::vector<int64_t> size,
                                 int channels, const std::string& interpolation, bool crop_to_aspect_ratio) {
    const data::DecodeOptions options{
        .image_size = std::move(size),
        .channels = channels,
        .resize = {.interpolation = {interpolation, here()}, .crop_to_aspect_ratio = crop_to_aspect_ratio}};
    const std::source_location where = here();
    return released([&] { return data::decode_image_files(paths, options, where); });
  });
  m.def("pad_sequences", [](const std::vector<std::vector<int32_t>>& sequences, int64_t maxlen,
                            std::string padding, std::string truncating, int32_t value) {
    return keras::utils::pad_sequences(sequences, {maxlen, std::move(padding), std::move(truncating), value},
                                       here());
  });
}

}  // namespace lockstep::python
