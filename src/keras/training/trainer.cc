#include "keras/training/trainer.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "data/host.h"
#include "device/memory_ledger.h"
#include "device/memory_summary.h"
#include "keras/functional_graph.h"
#include "keras/training/history_recorder.h"
#include "keras/training/interrupt.h"
#include "keras/training/reshaped_data.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/terminal.h"
#include "lockstep/observe/verdict.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {

// --- compile ---------------------------------------------------------------------------------------------------

Trainer::Trainer(ModelBase& model) : model_(model) {}

void Trainer::compile(const CompileOptions& options, std::source_location where) {
  require(options.steps_per_execution >= 1, ErrorCode::invalid_argument, where,
          "compile: steps_per_execution must be at least 1, received ", options.steps_per_execution);
  options_ = options;
  if (options.auto_scale_loss && model_.policy().name() == "mixed_float16")
    options_.optimizer = optimizers::LossScaleOptimizer(options.optimizer);
  compiled_ = true;
  outputs_ = std::make_unique<Outputs>(model_, options_);
  steps_.reset();
}

void Trainer::require_compiled(const char* what, std::source_location where) const {
  require(compiled_, ErrorCode::failed_precondition, where, what, ": model \"", model_.name(),
          "\" has no loss and optimizer yet; call compile() first");
}

std::vector<Metric> Trainer::metrics() const {
  return outputs_ ? outputs_->metrics() : std::vector<Metric>();
}

double Trainer::last_loss() const {
  require(last_loss_.defined(), ErrorCode::failed_precondition, std::source_location::current(), "model \"",
          model_.name(), "\" has made no training step yet");
  return cast(last_loss_, DType::float64).item<double>();
}

void Trainer::build_optimizer() { options_.optimizer.build(model_.trainable_weights()); }

bool Trainer::interrupted() const { return Interrupt::requested(); }

// --- one step ----------------------------------------------------------------------------------------------------

TensorList Trainer::run_body(StepKind kind, const Batch& batch) {
  const std::source_location here = std::source_location::current();
  model_.forget_losses();
  if (kind == StepKind::predict) return model_.run(batch.x, {.training = false}, here);
  const bool trains = kind == StepKind::train;
  Tensor loss;
  TensorList predictions;
  const auto forward = [&] {
    predictions = model_.run(batch.x, {.training = trains}, here);
    outputs_->resolve(predictions.size(), batch.y.size());
    loss = outputs_->total_loss(batch.y, predictions, batch.sample_weight);
  };
  if (trains) {
    GradientTape tape;
    forward();
    const std::vector<Variable> variables = model_.trainable_weights();
    require(!variables.empty(), ErrorCode::failed_precondition, here, "model \"", model_.name(),
            "\" has no trainable weights");
    const TensorList gradients = tape.gradient(options_.optimizer.scale_loss(loss), variables);
    options_.optimizer.apply_gradients(gradients, variables);
  } else {
    forward();
  }
  loss = all_reduce_sum(loss);
  outputs_->update_metrics(loss, batch.y, predictions, batch.sample_weight);
  model_.forget_losses();
  return {loss};
}

distribute::Strategy Trainer::strategy() const { return distribute::Strategy::of(model_.owner()); }

void Trainer::start_clock() {
  clock_.emplace(
      observe::StepClockOptions{.replicas = std::max(1, static_cast<int>(strategy().devices().size()))});
  counts_examples_ = strategy().kind() == distribute::Strategy::Kind::none;
}

Steps Trainer::make_steps(observe::StepClock* clock) {
  return Steps([this](StepKind kind, const Batch& batch) { return run_body(kind, batch); }, model_.name(),
               strategy().replica_options(), clock);
}

Steps& Trainer::steps() {
  if (!steps_) {
    if (!clock_) start_clock();
    steps_ = std::make_unique<Steps>(make_steps(&*clock_));
  }
  return *steps_;
}

void Trainer::run_step(StepKind kind, const Batch& batch, std::source_location where) {
  if (kind == StepKind::train) {
    steps().run(kind, batch, options_.run_eagerly, last_loss_, where);
  } else {
    Tensor loss;
    steps().run(kind, batch, options_.run_eagerly, loss, where);
  }
}

// --- data --------------------------------------------------------------------------------------------------------

Data Trainer::in_model_order(const Data& data, std::source_location where) const {
  require(data.defined(), ErrorCode::invalid_argument, where, "no data was given");
  ModelArrays model;
  for (const KerasTensor& input : model_.inputs()) {
    model.inputs.push_back(input.name());
    model.shapes.push_back(input.shape());
  }
  if (!model.inputs.empty()) model.outputs = model_.output_names(model_.outputs().size());
  const std::shared_ptr<const Data::Source> ordered = data.source()->in_order(model, where);
  return ordered ? Data(ordered) : data;
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

// Else so many steps may be made together although nobody asked for it.
constexpr int64_t kUnheardSteps = 64;
bool any_needs_every_batch(const std::vector<Callback>& callbacks) {
  return std::any_of(callbacks.begin(), callbacks.end(),
                     [](const Callback& callback) { return callback.base()->needs_every_batch(); });
}

void check_batch_size(const char* what, int64_t batch_size, std::source_location where) {
  require(batch_size > 0, ErrorCode::invalid_argument, where, what,
          ": batch_size must be positive, received ", batch_size);
}

// Steps of a pass: as told, or as the data has.
int64_t steps_of(const Data& data, int64_t told, int64_t batch_size, const char* what, const char* option,
                 std::source_location where) {
  if (told > 0) return told;
  const int64_t batches = data.source()->batches(batch_size);
  require(batches != Data::Source::kEndless, ErrorCode::invalid_argument, where, what,
          ": the dataset has no end (repeat() without a count); say with ", option,
          " how many batches to take, or take(count) of it");
  return batches;
}

// What a backup knows the run by.
RunParams params_of(const Data& data, const FitOptions& options, int64_t steps) {
  RunParams params{.epochs = options.epochs, .steps = steps, .verbose = options.verbose};
  const Batch* arrays = data.source()->arrays();
  if (!arrays) {
    params.data = "a dataset";
    return params;
  }
  params.batch_size = options.batch_size;
  params.examples = examples_in(*arrays);
  each_array(*arrays, [&](const Tensor& array) {
    Dims example;
    for (int i = 1; i < array.rank(); ++i) example.push_back(array.shape()[i]);
    params.data +=
        detail::concat(params.data.empty() ? "arrays: " : ", ", TensorSpec{array.dtype(), example});
  });
  if (!options.shuffle) params.data += ", in their order";
  return params;
}

void attach(const std::vector<Callback>& callbacks, Model& model, const RunParams& params,
            std::source_location where) {
  for (const Callback& callback : callbacks) {
    require(callback.base() != nullptr, ErrorCode::invalid_argument, where, "a callback is empty");
    callback.base()->bind(&model, params);
  }
}

}  // namespace

Trainer::Progress Trainer::progress(int epoch, int64_t batch) {
  Progress now{epoch, batch, random_state(), stream_ ? stream_->position() : BatchStream::Position()};
  for (const Variable& variable : outputs_->variables()) now.metrics.push_back(variable.value());
  return now;
}
Trainer::Progress Trainer::progress_after(int epoch) {
  return {epoch + 1, 0, random_state(), stream_ ? stream_->position_after_epoch() : BatchStream::Position()};
}

// Metrics make their variables when they first see a batch, so that they are shown one before these are
// filled.
void Trainer::restore_metrics(const TensorList& values, const Data& data, int64_t batch_size,
                              std::source_location where) {
  if (outputs_->variables().size() != values.size()) {
    BatchStream stream(data, {.batch_size = batch_size}, false);
    Batch batch;
    stream.begin_epoch();
    if (stream.next(batch)) run_step(StepKind::test, batch, where);
  }
  const std::vector<Variable> variables = outputs_->variables();
  require(variables.size() == values.size(), ErrorCode::invalid_argument, where, "the backup has ",
          values.size(), " variables of metrics, this run ", variables.size());
  for (size_t i = 0; i < values.size(); ++i) variables[i].assign(values[i], where);
}

// False where the data has ended.
bool Trainer::timed_step(StepKind kind, BatchStream& stream, Batch& batch, std::source_location where) {
  const bool timed = kind == StepKind::train;
  if (timed) {
    clock_->begin_step();
    clock_->enter(observe::Category::input_wait);
  }
  const bool got = stream.next(batch);
  if (timed) clock_->leave();
  if (!got) {
    if (timed) clock_->abandon_step();
    return false;
  }
  require(!batch.x.empty(), ErrorCode::invalid_argument, where, "the data gave an empty batch");
  {
    const observe::TimeScopeOfAll scope(timed ? &*clock_ : nullptr, observe::Category::host);
    run_step(kind, batch, where);
  }
  if (timed) {
    if (counts_examples_) clock_->replica(0).count(observe::Counter::examples, examples_in(batch));
    clock_->end_step();
  }
  return true;
}

// Where the data is on a GPU and the step one kernel: all of them as one launch. How many were made.
int64_t Trainer::steps_at_once(StepKind kind, BatchStream& stream, int64_t most, std::source_location where) {
  if (options_.run_eagerly) return 0;
  const std::optional<BatchReader::Rows> rows = stream.rows(most);
  if (!rows) return 0;
  const bool timed = kind == StepKind::train;
  if (timed) clock_->begin_step();
  bool made = false;
  {
    const observe::TimeScopeOfAll scope(timed ? &*clock_ : nullptr, observe::Category::host);
    Tensor other;
    made = steps().run(kind, *rows, timed ? last_loss_ : other, where);
  }
  if (made) stream.skip(rows->batches);
  if (!timed) return made ? rows->batches : 0;
  if (!made) {
    clock_->abandon_step();
    return 0;
  }
  if (counts_examples_)
    clock_->replica(0).count(observe::Counter::examples, rows->batches * rows->batch_size);
  clock_->end_step(rows->batches);
  return rows->batches;
}

void Trainer::run_epoch(StepKind kind, BatchStream& stream, int64_t step, int64_t steps,
                        const std::vector<Callback>& callbacks, std::source_location where) {
  const bool trains = kind == StepKind::train;
  const bool logs_wanted = any_wants_batch_logs(callbacks);
  const int64_t most = options_.steps_per_execution;
  const int64_t at_once = any_needs_every_batch(callbacks) ? most : std::max(most, kUnheardSteps);
  const auto begin = trains ? &CallbackBase::on_train_batch_begin : &CallbackBase::on_test_batch_begin;
  const auto end = trains ? &CallbackBase::on_train_batch_end : &CallbackBase::on_test_batch_end;
  const Logs none;
  Batch batch;
  while (step != steps) {
    // Callbacks hear of the last batch of an execution, as in Keras.
    tell(callbacks, begin, step, none);
    int64_t done = 0;
    for (int64_t made = 1; made > 0 && done < at_once && step + done != steps; done += made)
      made =
          steps_at_once(kind, stream, (steps > 0 ? std::min(at_once, steps - step) : at_once) - done, where);
    while (done < most && step + done != steps && timed_step(kind, stream, batch, where)) ++done;
    if (done == 0) {
      if (steps > 0)
        log(LogLevel::warning, "the data ended after ", step, " of ", steps, " steps; it must give ",
            trains ? "steps_per_epoch * epochs" : "as many", " batches");
      return;
    }
    step += done;
    tell(callbacks, end, step - 1, logs_wanted ? results() : none);
    if (trains) tell(callbacks, &CallbackBase::on_settled);
    if ((trains && stop_training) || Interrupt::requested()) return;
  }
}

Logs Trainer::evaluate_quietly(const Data& data, int64_t batch_size, int64_t steps,
                               const std::vector<Callback>& callbacks, std::source_location where) {
  reset_metrics();
  tell(callbacks, &CallbackBase::on_test_begin, Logs());
  BatchStream stream(data, {.batch_size = batch_size}, steps > 0);
  stream.begin_epoch();
  run_epoch(StepKind::test, stream, 0, steps, callbacks, where);
  const Logs logs = results();
  tell(callbacks, &CallbackBase::on_test_end, logs);
  return logs;
}

namespace {

constexpr int64_t kWorthWarningNs = 1'000'000'000;

// A dataset that keeps the steps waiting is not to be missed.
void warn_of_input(const observe::RunSummary& time) {
  if (time.input.bottleneck.empty()) return;
  if (time.replicas[0][observe::Category::input_wait].total < kWorthWarningNs) return;
  for (const observe::Verdict& verdict : observe::judge(time))
    if (verdict.id == "input-bound")
      log(LogLevel::warning, "fit: ", verdict.cause, "; ", verdict.evidence, "; fix: ", verdict.fix,
          "; gain: ", verdict.gain);
}

}  // namespace

// Makes the weights, so that callbacks find them when training begins.
void Trainer::build_for(const Model& handle, const Data& data, std::source_location where) const {
  if (model_.built()) return;
  const std::vector<TensorSpec> specs = data.source()->input_specs();
  if (!specs.empty()) infer_outputs(handle, specs, {}, where);
}

History Trainer::fit(Model& handle, const Data& given, const FitOptions& options,
                     std::source_location where) {
  require_compiled("fit", where);
  check_batch_size("fit", options.batch_size, where);
  require(options.epochs >= 0 && options.initial_epoch >= 0, ErrorCode::invalid_argument, where,
          "fit: epochs and initial_epoch must not be negative, received ", options.epochs, " and ",
          options.initial_epoch);
  require(options.validation_split >= 0 && options.validation_split < 1, ErrorCode::invalid_argument, where,
          "fit: validation_split must be in [0, 1), received ", options.validation_split);
  require(options.validation_freq >= 1, ErrorCode::invalid_argument, where,
          "fit: validation_freq must be at least 1, received ", options.validation_freq);
  Data data = in_model_order(given, where);
  Data validation =
      options.validation_data.defined() ? in_model_order(options.validation_data, where) : Data();
  if (options.validation_split > 0 && !validation.defined())
    std::tie(data, validation) = split_off(data, options.validation_split, where);
  if (!options.class_weight.empty()) data = with_class_weight(data, options.class_weight, where);
  if (this->strategy().kind() == distribute::Strategy::Kind::none) {
    data = on_device(data);
    if (validation.defined()) validation = on_device(validation);
  }

  const distribute::Strategy strategy = this->strategy();
  if (strategy.kind() == distribute::Strategy::Kind::none)
    distribute::Strategy::require_none_forgotten("fit", where);
  else
    strategy.require_own(model_.weights(), "fit", where);

  const bool continues = options.steps_per_epoch > 0;
  const int64_t steps =
      steps_of(data, options.steps_per_epoch, options.batch_size, "fit", "steps_per_epoch", where);
  if (validation.defined())
    steps_of(validation, options.validation_steps, options.batch_size, "fit: validation_data",
             "validation_steps", where);
  std::vector<Callback> callbacks = options.callbacks;
  // Behind the callbacks that add to the logs.
  const auto recorder = std::make_shared<HistoryRecorder>();
  if (options.verbose > 0) callbacks.push_back(callbacks::ProgbarLogger());
  callbacks.push_back(Callback(recorder));
  attach(callbacks, handle, params_of(data, options, steps), where);
  this->callbacks = callbacks;

  build_for(handle, data, where);
  const Interrupt interrupt;
  start_clock();
  const std::vector<Device*> devices =
      strategy.devices().empty() ? std::vector<Device*>{&current_device()} : strategy.devices();
  for (Device* device : devices) device->ledger()->begin_run();
  stop_training = false;
  resume.reset();
  Logs logs;
  tell(callbacks, &CallbackBase::on_train_begin, logs);
  tell(callbacks, &CallbackBase::on_settled);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = data::host_device().threads();
  stream_.emplace(data, EpochOptions{options.batch_size, options.shuffle, threads, cores - threads},
                  continues);
  const int first_epoch = resume ? std::max(options.initial_epoch, resume->epoch) : options.initial_epoch;
  for (int epoch = first_epoch; epoch < options.epochs && !stop_training; ++epoch) {
    reset_metrics();
    tell(callbacks, &CallbackBase::on_epoch_begin, epoch, Logs());
    int64_t done = 0;
    if (resume) {
      if (resume->batch > 0) restore_metrics(resume->metrics, data, options.batch_size, where);
      stream_->restore(resume->stream, resume->random);
      done = resume->batch;
      resume.reset();
    } else {
      stream_->begin_epoch();
    }
    run_epoch(StepKind::train, *stream_, done, steps, callbacks, where);
    logs = results();
    if (validation.defined() && (epoch + 1) % options.validation_freq == 0 && !Interrupt::requested()) {
      const int64_t size =
          options.validation_batch_size > 0 ? options.validation_batch_size : options.batch_size;
      const Logs measured = evaluate_quietly(validation, size, options.validation_steps, callbacks, where);
      // Figures of a part of the data are not those of the data.
      if (!Interrupt::requested())
        for (const auto& [name, value] : measured) logs.set("val_" + name, value);
    }
    for (const Callback& callback : callbacks) callback.base()->add_logs(epoch, logs);
    tell(callbacks, &CallbackBase::on_epoch_end, epoch, logs);
    tell(callbacks, &CallbackBase::on_settled);
    for (Device* device : devices) device->ledger()->settle();
    if (Interrupt::requested()) break;
  }
  options_.optimizer.finalize_variable_values(model_.trainable_weights(), where);
  tell(callbacks, &CallbackBase::on_train_end, logs);
  this->callbacks.clear();
  History history = std::move(recorder->history);
  history.time = clock_->summary();
  history.time.input = stream_->input_summary();
  stream_.reset();
  for (const Device* device : devices) history.time.memory.push_back(memory_summary(*device));
  if (devices.size() > 1) history.time.sums = strategy.sums_description();
  warn_of_input(history.time);
  history.interrupted = Interrupt::requested();
  history.signal = Interrupt::signal();
  if (options.verbose > 0 && strategy.kind() != distribute::Strategy::Kind::none)
    terminal::print(observe::to_text(history.time) + observe::to_text(observe::judge(history.time)));
  if (history.interrupted)
    log(LogLevel::warning, "fit: interrupted; the model keeps what it has learnt so far");
  return history;
}

Logs Trainer::evaluate(Model& handle, const Data& given, const EvaluateOptions& options,
                       std::source_location where) {
  require_compiled("evaluate", where);
  check_batch_size("evaluate", options.batch_size, where);
  const Data data = in_model_order(given, where);
  std::vector<Callback> callbacks = options.callbacks;
  const int64_t steps = steps_of(data, options.steps, options.batch_size, "evaluate", "steps", where);
  if (options.verbose > 0) callbacks.push_back(callbacks::ProgbarLogger());
  attach(callbacks, handle, {1, steps, options.verbose}, where);
  const Interrupt interrupt;
  return evaluate_quietly(data, options.batch_size, steps, callbacks, where);
}

TensorList Trainer::predict(Model& handle, const Data& given, const PredictOptions& options,
                            std::source_location where) {
  check_batch_size("predict", options.batch_size, where);
  const Data data = in_model_order(given, where);
  std::vector<Callback> callbacks = options.callbacks;
  const int64_t steps = steps_of(data, options.steps, options.batch_size, "predict", "steps", where);
  if (options.verbose > 0) callbacks.push_back(callbacks::ProgbarLogger());
  attach(callbacks, handle, {1, steps, options.verbose}, where);
  const Interrupt interrupt;
  tell(callbacks, &CallbackBase::on_predict_begin, Logs());
  const auto reader = data.source()->read({.batch_size = options.batch_size});
  std::vector<TensorList> parts;  // of each output
  Batch batch;
  for (int64_t step = 0; step != steps && !Interrupt::requested() && reader->next(batch); ++step) {
    tell(callbacks, &CallbackBase::on_predict_batch_begin, step, Logs());
    batch.y.clear();
    batch.sample_weight.clear();
    TensorList results = this->steps().predict(batch, options_.run_eagerly, where);
    parts.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i) parts[i].push_back(std::move(results[i]));
    tell(callbacks, &CallbackBase::on_predict_batch_end, step, Logs());
  }
  TensorList joined;
  for (const TensorList& part : parts) joined.push_back(part.size() == 1 ? part[0] : concat(part, 0, where));
  tell(callbacks, &CallbackBase::on_predict_end, Logs());
  return joined;
}

Logs Trainer::train_on_batch(const Batch& batch, const std::map<int64_t, double>& class_weight,
                             std::source_location where) {
  require_compiled("train_on_batch", where);
  reset_metrics();
  const Data data(array_source(batch, {}, {}, where));
  const Data weighted = class_weight.empty() ? data : with_class_weight(data, class_weight, where);
  run_step(StepKind::train, *weighted.source()->arrays(), where);
  return results();
}

Logs Trainer::test_on_batch(const Batch& batch, std::source_location where) {
  require_compiled("test_on_batch", where);
  reset_metrics();
  run_step(StepKind::test, *array_source(batch, {}, {}, where)->arrays(), where);
  return results();
}

TensorList Trainer::predict_on_batch(const TensorList& x, std::source_location where) {
  return steps().predict({x, {}, {}}, options_.run_eagerly, where);
}

}  // namespace lockstep::keras
