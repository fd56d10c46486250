#include "keras/training/trainer.h"

#include <algorithm>

#include "graph/emit.h"
#include "keras/training/history_recorder.h"
#include "keras/training/interrupt.h"
#include "keras/training/reshaped_data.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras {
namespace {

template <class T>
const T* find_named(const std::map<std::string, T>& named, const std::string& name) {
  const auto found = named.find(name);
  return found == named.end() ? nullptr : &found->second;
}

template <class T>
void check_names(const std::map<std::string, T>& named, const std::vector<std::string>& outputs,
                 const char* argument) {
  for (const auto& [name, value] : named) {
    if (std::find(outputs.begin(), outputs.end(), name) != outputs.end()) continue;
    std::string known;
    for (const std::string& output : outputs) known += (known.empty() ? "\"" : ", \"") + output + "\"";
    fail(ErrorCode::invalid_argument, std::source_location::current(), "compile: ", argument,
         " names output \"", name, "\"; the model's outputs are ", known);
  }
}

// Tensors that came by name, in the order of `wanted`.
TensorList ordered(const TensorList& tensors, const std::vector<std::string>& names,
                   const std::vector<std::string>& wanted, const char* what, std::source_location where) {
  TensorList list;
  for (const std::string& name : wanted) {
    const auto found = std::find(names.begin(), names.end(), name);
    require(found != names.end(), ErrorCode::invalid_argument, where, "the data has no ", what, " named \"",
            name, "\"");
    const size_t at = static_cast<size_t>(found - names.begin());
    list.push_back(at < tensors.size() ? tensors[at] : Tensor());
  }
  return list;
}

}  // namespace

// --- compile ---------------------------------------------------------------------------------------------------

void Trainer::compile(const CompileOptions& options, std::source_location where) {
  require(options.steps_per_execution >= 1, ErrorCode::invalid_argument, where,
          "compile: steps_per_execution must be at least 1, received ", options.steps_per_execution);
  options_ = options;
  if (options.auto_scale_loss && model_.policy().name() == "mixed_float16")
    options_.optimizer = optimizers::LossScaleOptimizer(options.optimizer);
  compiled_ = true;
  resolved_ = false;
  outputs_.clear();
  steps_.clear();
  loss_mean_.reset();
}

void Trainer::require_compiled(const char* what, std::source_location where) const {
  require(compiled_, ErrorCode::failed_precondition, where, what, ": model \"", model_.name(),
          "\" has no loss and optimizer yet; call compile() first");
}

// Which loss and metrics belong to which output shows when the model is first run.
void Trainer::resolve_outputs(size_t count, size_t labels) {
  if (resolved_) return;
  const std::source_location here = std::source_location::current();
  const std::vector<std::string> names = model_.output_names(count);
  outputs_.resize(count);
  for (size_t i = 0; i < count; ++i) outputs_[i].name = names[i];

  const auto& loss = options_.loss;
  check_names(loss.named(), names, "loss");
  check_names(options_.loss_weights.named(), names, "loss_weights");
  require(loss.single() || loss.list().empty() || loss.list().size() == count, ErrorCode::invalid_argument,
          here, "compile: ", loss.list().size(), " losses for a model of ", count, " outputs");
  require(options_.loss_weights.list().empty() || options_.loss_weights.list().size() == count,
          ErrorCode::invalid_argument, here, "compile: ", options_.loss_weights.list().size(),
          " loss_weights for a model of ", count, " outputs");
  for (size_t i = 0; i < count; ++i) {
    Output& output = outputs_[i];
    if (loss.single()) output.loss = loss.list()[0];
    if (!loss.single() && !loss.list().empty()) output.loss = loss.list()[i];
    if (const Loss* named = find_named(loss.named(), output.name)) output.loss = *named;
    if (!options_.loss_weights.list().empty()) output.weight = options_.loss_weights.list()[i];
    if (const double* named = find_named(options_.loss_weights.named(), output.name)) output.weight = *named;
  }
  const auto with_loss = [](const Output& output) { return output.loss.defined(); };
  if (std::count_if(outputs_.begin(), outputs_.end(), with_loss) > 1)
    for (Output& output : outputs_)
      if (output.loss.defined()) {
        const TracePause outside;
        output.loss_mean.emplace();
      }

  const auto spread = [&](const MetricsArg& arg, std::vector<Metric> Output::*into, const char* what) {
    check_names(arg.named(), names, what);
    require(arg.lists().empty() || !arg.by_position() || arg.lists().size() == count,
            ErrorCode::invalid_argument, here, "compile: ", arg.lists().size(), " lists of ", what,
            " for a model of ", count, " outputs");
    if (!arg.by_position() && !arg.lists().empty()) {
      require(count == 1 || arg.lists()[0].empty() || arg.lists()[0].size() == count,
              ErrorCode::invalid_argument, here, "compile: a model of ", count, " outputs takes ", what,
              " as a map from output names, or one for each output");
      // As in Keras: one list for several outputs gives each output its own.
      for (size_t i = 0; i < arg.lists()[0].size(); ++i)
        (outputs_[count == 1 ? 0 : i].*into).push_back(arg.lists()[0][i]);
    } else {
      for (size_t i = 0; i < arg.lists().size(); ++i) outputs_[i].*into = arg.lists()[i];
    }
    for (Output& output : outputs_)
      if (const auto* named = find_named(arg.named(), output.name)) output.*into = *named;
  };
  spread(options_.metrics, &Output::metrics, "metrics");
  spread(options_.weighted_metrics, &Output::weighted_metrics, "weighted_metrics");
  require(labels == 0 || labels == count ||
              labels == static_cast<size_t>(std::count_if(outputs_.begin(), outputs_.end(), with_loss)),
          ErrorCode::invalid_argument, here, "the data has ", labels, " labels, the model ", count,
          " outputs");
  resolved_ = true;
}

std::vector<Metric> Trainer::metrics() const {
  std::vector<Metric> all;
  for (const Output& output : outputs_) {
    all.insert(all.end(), output.metrics.begin(), output.metrics.end());
    all.insert(all.end(), output.weighted_metrics.begin(), output.weighted_metrics.end());
  }
  return all;
}

Logs Trainer::results() const {
  std::vector<Logs::Entry> entries = {{"loss", loss_mean_.result()}};
  std::map<std::string, int> uses;
  const auto add = [&](const std::string& name, const Metric& metric) {
    const int earlier = uses[name]++;
    if (metric.variables().empty()) return;
    const Tensor value = metric.result();
    if (value.size() != 1) return;
    entries.emplace_back(earlier == 0 ? name : name + "_" + std::to_string(earlier),
                         cast(reshape(value, {}), DType::float64).item<double>());
  };
  const auto prefix = [&](const Output& output) { return outputs_.size() > 1 ? output.name + "_" : ""; };
  for (const Output& output : outputs_) {
    if (output.loss_mean) entries.emplace_back(output.name + "_loss", output.loss_mean->result());
    for (const Metric& metric : output.metrics) add(prefix(output) + metric.name(), metric);
  }
  // A weighted metric only says so where its plain twin is there too.
  for (const Output& output : outputs_)
    for (const Metric& metric : output.weighted_metrics) {
      const bool twin = uses.contains(prefix(output) + metric.name());
      add(prefix(output) + (twin ? "weighted_" : "") + metric.name(), metric);
    }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Logs::Entry& a, const Logs::Entry& b) { return a.first < b.first; });
  Logs logs;
  for (const auto& [name, value] : entries) logs.set(name, value);
  return logs;
}

double Trainer::last_loss() const {
  require(last_loss_.defined(), ErrorCode::failed_precondition, std::source_location::current(), "model \"",
          model_.name(), "\" has made no training step yet");
  return cast(last_loss_, DType::float64).item<double>();
}

void Trainer::build_optimizer() { options_.optimizer.build(model_.trainable_weights()); }

bool Trainer::interrupted() const { return Interrupt::requested(); }

void Trainer::reset_metrics() {
  loss_mean_.reset();
  for (const Output& output : outputs_)
    if (output.loss_mean) output.loss_mean->reset();
  for (const Metric& metric : metrics()) metric.reset_state();
}

// --- one step ----------------------------------------------------------------------------------------------------

Tensor Trainer::total_loss(const TensorList& y, const TensorList& predictions, const TensorList& weights) {
  Tensor total;
  const auto add = [&](const Tensor& part) { total = total.defined() ? total + part : part; };
  size_t label = 0;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    const bool has_label = y.size() == outputs_.size() ? y[i].defined() : output.loss.defined();
    if (output.loss.defined() && has_label && !y.empty()) {
      const Tensor& target = y.size() == outputs_.size() ? y[i] : y[label];
      const Tensor weight = i < weights.size() ? weights[i] : Tensor();
      const Tensor loss = output.loss(target, predictions[i], weight);
      if (output.loss_mean) output.loss_mean->add(all_reduce_sum(loss), global_batch_size(predictions[i]));
      add(output.weight == 1 ? loss : loss * output.weight);
    }
    if (output.loss.defined()) ++label;
  }
  for (const Tensor& loss : model_.losses()) add(cast(loss, total.defined() ? total.dtype() : loss.dtype()));
  require(total.defined(), ErrorCode::failed_precondition, std::source_location::current(), "model \"",
          model_.name(), "\": there is nothing to minimise: compile() got no loss and no layer added one");
  return total;
}

void Trainer::update_metrics(const TensorList& y, const TensorList& predictions, const TensorList& weights) {
  if (y.empty()) return;
  size_t label = 0;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    const Tensor& target = y.size() == outputs_.size() ? y[i] : y[std::min(label, y.size() - 1)];
    if (output.loss.defined()) ++label;
    if (!target.defined()) continue;
    const Tensor weight = i < weights.size() ? weights[i] : Tensor();
    for (const Metric& metric : output.metrics) metric.update_state(target, predictions[i]);
    for (const Metric& metric : output.weighted_metrics) metric.update_state(target, predictions[i], weight);
  }
}

TensorList Trainer::run_body(Kind kind, const Layout& layout, std::span<const Tensor> inputs) {
  const TensorList x(inputs.begin(), inputs.begin() + static_cast<ptrdiff_t>(layout.x));
  const TensorList y(inputs.begin() + static_cast<ptrdiff_t>(layout.x),
                     inputs.begin() + static_cast<ptrdiff_t>(layout.x + layout.y));
  TensorList weights;
  size_t next = layout.x + layout.y;
  for (const bool given : layout.weights) weights.push_back(given ? inputs[next++] : Tensor());

  const std::source_location here = std::source_location::current();
  model_.forget_losses();
  if (kind == Kind::predict) {
    return model_.run(x, {.training = false}, here);
  }
  Tensor loss;
  TensorList predictions;
  if (kind == Kind::train) {
    GradientTape tape;
    predictions = model_.run(x, {.training = true}, here);
    resolve_outputs(predictions.size(), y.size());
    loss = total_loss(y, predictions, weights);
    const std::vector<Variable> variables = model_.trainable_weights();
    require(!variables.empty(), ErrorCode::failed_precondition, here, "model \"", model_.name(),
            "\" has no trainable weights");
    const TensorList gradients = tape.gradient(options_.optimizer.scale_loss(loss), variables);
    options_.optimizer.apply_gradients(all_reduce_sum(gradients), variables);
  } else {
    predictions = model_.run(x, {.training = false}, here);
    resolve_outputs(predictions.size(), y.size());
    loss = total_loss(y, predictions, weights);
  }
  loss = all_reduce_sum(loss);
  loss_mean_.add(loss, global_batch_size(predictions[0]));
  update_metrics(y, predictions, weights);
  model_.forget_losses();
  return {loss};
}

TensorList Trainer::run_step(Kind kind, const Batch& batch, std::source_location where) {
  Layout layout{batch.x.size(), batch.y.size(), {}};
  for (const Tensor& weight : batch.sample_weight) layout.weights.push_back(weight.defined());
  Step& step = steps_[{kind, layout}];
  if (!step.function) {
    static constexpr const char* kNames[] = {"training step", "evaluation step", "prediction step"};
    step.function = std::make_unique<FunctionCore>(
        [this, kind, layout](std::span<const Tensor> inputs) { return run_body(kind, layout, inputs); },
        FunctionOptions{.name = model_.name() + ": " + kNames[static_cast<int>(kind)],
                        .clock = kind == Kind::train ? &*clock_ : nullptr},
        where);
  }
  step.inputs.clear();
  each_array(batch, [&](const Tensor& tensor) { step.inputs.push_back(tensor); });
  if (kind == Kind::train) last_loss_ = {};
  TensorList results =
      options_.run_eagerly ? run_body(kind, layout, step.inputs) : step.function->call(step.inputs, where);
  step.inputs.clear();  // whoever made the batch may use its memory again
  if (kind == Kind::train) last_loss_ = results[0];
  return results;
}

// --- data --------------------------------------------------------------------------------------------------------

Data Trainer::in_model_order(const Data& data, std::source_location where) const {
  require(data.defined(), ErrorCode::invalid_argument, where, "no data was given");
  const auto& source = *data.source();
  if (source.x_names().empty() && source.y_names().empty()) return data;
  std::vector<std::string> inputs;
  for (const KerasTensor& input : model_.inputs()) inputs.push_back(input.name());
  require(!inputs.empty(), ErrorCode::invalid_argument, where,
          "data by name needs a model with named inputs (Sequential with an input, or the functional API)");
  const std::vector<std::string> outputs = model_.output_names(model_.outputs().size());
  const Batch& arrays = *source.arrays();
  Batch sorted;
  sorted.x = ordered(arrays.x, source.x_names(), inputs, "input", where);
  if (!arrays.y.empty()) sorted.y = ordered(arrays.y, source.y_names(), outputs, "output", where);
  if (!arrays.sample_weight.empty())
    sorted.sample_weight = ordered(arrays.sample_weight, source.y_names(), outputs, "weight", where);
  return Data(array_source(std::move(sorted), {}, {}, where));
}

// --- loops -------------------------------------------------------------------------------------------------------

namespace {

// Calls every callback; empty ones are refused before the run.
template <class... Parameters, class... Arguments>
void tell(const std::vector<Callback>& callbacks, void (CallbackBase::*moment)(Parameters...),
          const Arguments&... arguments) {
  for (const Callback& callback : callbacks) (callback.base().get()->*moment)(arguments...);
}

bool any_wants_batch_logs(const std::vector<Callback>& callbacks) {
  return std::any_of(callbacks.begin(), callbacks.end(),
                     [](const Callback& callback) { return callback.base()->wants_batch_logs(); });
}

void attach(const std::vector<Callback>& callbacks, Model& model, const RunParams& params,
            std::source_location where) {
  for (const Callback& callback : callbacks) {
    require(callback.base() != nullptr, ErrorCode::invalid_argument, where, "a callback is empty");
    callback.base()->bind(&model, params);
  }
}

}  // namespace

// False where the data has ended.
bool Trainer::timed_step(Kind kind, BatchReader& reader, Batch& batch, std::source_location where) {
  const bool timed = kind == Kind::train;
  if (timed) clock_->begin_step();
  {
    const observe::TimeScope waiting(timed ? &clock_->replica(0) : nullptr, observe::Category::input_wait);
    if (!reader.next(batch)) {
      if (timed) clock_->abandon_step();
      return false;
    }
  }
  require(!batch.x.empty(), ErrorCode::invalid_argument, where, "the data gave an empty batch");
  run_step(kind, batch, where);
  if (timed) {
    clock_->replica(0).count(observe::Counter::examples, examples_in(batch));
    clock_->end_step();
  }
  return true;
}

void Trainer::run_epoch(Kind kind, BatchReader& reader, int64_t step, int64_t steps,
                        const std::vector<Callback>& callbacks, std::source_location where) {
  const bool logs_wanted = any_wants_batch_logs(callbacks);
  const auto begin =
      kind == Kind::train ? &CallbackBase::on_train_batch_begin : &CallbackBase::on_test_batch_begin;
  const auto end = kind == Kind::train ? &CallbackBase::on_train_batch_end : &CallbackBase::on_test_batch_end;
  const Logs none;
  Batch batch;
  while (step != steps) {
    // Callbacks hear of the last batch of an execution, as in Keras.
    tell(callbacks, begin, step, none);
    int64_t done = 0;
    while (done < options_.steps_per_execution && step + done != steps &&
           timed_step(kind, reader, batch, where))
      ++done;
    if (done == 0) {
      if (steps > 0 && step < steps && kind == Kind::train)
        log(LogLevel::warning, "the data ended after ", step, " of ", steps,
            " steps; it must give steps_per_epoch * epochs batches");
      return;
    }
    step += done;
    tell(callbacks, end, step - 1, logs_wanted ? results() : none);
    if (stop_training || Interrupt::requested()) return;
  }
}

Logs Trainer::evaluate_quietly(Model&, const Data& data, const EpochOptions& epoch, int64_t steps,
                               const std::vector<Callback>& callbacks, std::source_location where) {
  reset_metrics();
  tell(callbacks, &CallbackBase::on_test_begin, Logs());
  const auto reader = data.source()->read(epoch);
  run_epoch(Kind::test, *reader, 0, steps, callbacks, where);
  const Logs logs = results();
  tell(callbacks, &CallbackBase::on_test_end, logs);
  return logs;
}

History Trainer::fit(Model& handle, const Data& given, const FitOptions& options,
                     std::source_location where) {
  require_compiled("fit", where);
  require(options.batch_size > 0, ErrorCode::invalid_argument, where,
          "fit: batch_size must be positive, received ", options.batch_size);
  require(options.epochs >= 0 && options.initial_epoch >= 0, ErrorCode::invalid_argument, where,
          "fit: epochs and initial_epoch must not be negative, received ", options.epochs, " and ",
          options.initial_epoch);
  require(options.validation_split >= 0 && options.validation_split < 1, ErrorCode::invalid_argument, where,
          "fit: validation_split must be in [0, 1), received ", options.validation_split);
  Data data = in_model_order(given, where);
  Data validation =
      options.validation_data.defined() ? in_model_order(options.validation_data, where) : Data();
  if (options.validation_split > 0 && !validation.defined())
    std::tie(data, validation) = split_off(data, options.validation_split, where);
  if (!options.class_weight.empty()) data = with_class_weight(data, options.class_weight, where);

  const int64_t whole = data.source()->batches(options.batch_size);
  const int64_t steps = options.steps_per_epoch > 0 ? options.steps_per_epoch : whole;
  std::vector<Callback> callbacks = options.callbacks;
  const auto recorder = std::make_shared<HistoryRecorder>();
  callbacks.insert(callbacks.begin(), Callback(recorder));
  const RunParams params{options.epochs, steps, options.verbose};
  if (options.verbose > 0) callbacks.push_back(callbacks::ProgbarLogger());
  attach(callbacks, handle, params, where);

  const Interrupt interrupt;
  clock_.emplace();
  stop_training = false;
  resume.reset();
  Logs logs;
  tell(callbacks, &CallbackBase::on_train_begin, logs);
  std::unique_ptr<BatchReader> reader;
  const Variable& random = random::default_generator().state();
  const int first_epoch = resume ? std::max(options.initial_epoch, resume->epoch) : options.initial_epoch;
  for (int epoch = first_epoch; epoch < options.epochs && !stop_training; ++epoch) {
    reset_metrics();
    if (resume) random.assign(Tensor::scalar(resume->epoch_random));
    epoch_random = random.value().item<int64_t>();
    tell(callbacks, &CallbackBase::on_epoch_begin, epoch, Logs());
    // With steps_per_epoch the next epoch goes on where this one stopped.
    const bool goes_on = options.steps_per_epoch > 0 && whole != options.steps_per_epoch;
    if (!reader || !goes_on) reader = data.source()->read({options.batch_size, options.shuffle});
    int64_t done = 0;
    if (resume) {
      Batch skipped;
      while (done < resume->batch && reader->next(skipped)) ++done;
      random.assign(Tensor::scalar(resume->random));
      resume.reset();
    }
    run_epoch(Kind::train, *reader, done, steps, callbacks, where);
    logs = results();
    const bool validates = validation.defined() && !Interrupt::requested() &&
                           (epoch + 1 - options.initial_epoch) % std::max(1, options.validation_freq) == 0;
    if (validates) {
      const int64_t size =
          options.validation_batch_size > 0 ? options.validation_batch_size : options.batch_size;
      const Logs measured =
          evaluate_quietly(handle, validation, {size, false}, options.validation_steps, callbacks, where);
      for (const auto& [name, value] : measured) logs.set("val_" + name, value);
    }
    tell(callbacks, &CallbackBase::on_epoch_end, epoch, logs);
    if (Interrupt::requested()) break;
  }
  options_.optimizer.finalize_variable_values(model_.trainable_weights(), where);
  tell(callbacks, &CallbackBase::on_train_end, logs);
  History history = std::move(recorder->history);
  history.time = clock_->summary();
  history.interrupted = Interrupt::requested();
  if (history.interrupted)
    log(LogLevel::warning, "fit: interrupted; the model keeps what it has learnt so far");
  return history;
}

Logs Trainer::evaluate(Model& handle, const Data& given, const EvaluateOptions& options,
                       std::source_location where) {
  require_compiled("evaluate", where);
  const Data data = in_model_order(given, where);
  std::vector<Callback> callbacks = options.callbacks;
  const int64_t steps = options.steps > 0 ? options.steps : data.source()->batches(options.batch_size);
  if (options.verbose > 0) callbacks.push_back(callbacks::ProgbarLogger());
  attach(callbacks, handle, {1, steps, options.verbose}, where);
  const Interrupt interrupt;
  stop_training = false;
  return evaluate_quietly(handle, data, {options.batch_size, false}, steps, callbacks, where);
}

TensorList Trainer::predict(Model& handle, const Data& given, const PredictOptions& options,
                            std::source_location where) {
  const Data data = in_model_order(given, where);
  std::vector<Callback> callbacks = options.callbacks;
  const int64_t steps = options.steps > 0 ? options.steps : data.source()->batches(options.batch_size);
  if (options.verbose > 0) callbacks.push_back(callbacks::ProgbarLogger());
  attach(callbacks, handle, {1, steps, options.verbose}, where);
  const Interrupt interrupt;
  tell(callbacks, &CallbackBase::on_predict_begin, Logs());
  const auto reader = data.source()->read({options.batch_size, false});
  std::vector<TensorList> parts;
  Batch batch;
  for (int64_t step = 0; step != steps && !Interrupt::requested() && reader->next(batch); ++step) {
    tell(callbacks, &CallbackBase::on_predict_batch_begin, step, Logs());
    batch.y.clear();
    batch.sample_weight.clear();
    parts.resize(std::max(parts.size(), size_t{1}));
    TensorList results = run_step(Kind::predict, batch, where);
    parts.resize(std::max(parts.size(), results.size()));
    for (size_t i = 0; i < results.size(); ++i) parts[i].push_back(std::move(results[i]));
    tell(callbacks, &CallbackBase::on_predict_batch_end, step, Logs());
  }
  TensorList joined;
  for (const TensorList& part : parts)
    if (!part.empty()) joined.push_back(part.size() == 1 ? part[0] : concat(part, 0, where));
  tell(callbacks, &CallbackBase::on_predict_end, Logs());
  return joined;
}

Logs Trainer::train_on_batch(const Batch& batch, const std::map<int64_t, double>& class_weight,
                             std::source_location where) {
  require_compiled("train_on_batch", where);
  reset_metrics();
  const Data data(array_source(batch, {}, {}, where));
  const Data weighted = class_weight.empty() ? data : with_class_weight(data, class_weight, where);
  run_step(Kind::train, *weighted.source()->arrays(), where);
  return results();
}

Logs Trainer::test_on_batch(const Batch& batch, std::source_location where) {
  require_compiled("test_on_batch", where);
  reset_metrics();
  run_step(Kind::test, *array_source(batch, {}, {}, where)->arrays(), where);
  return results();
}

TensorList Trainer::predict_on_batch(const TensorList& x, std::source_location where) {
  return run_step(Kind::predict, {x, {}, {}}, where);
}

}  // namespace lockstep::keras
