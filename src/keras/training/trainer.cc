#include "keras/training/trainer.h"

#include <algorithm>
#include <limits>

#include "comm/workers.h"
#include "distribute/one_device.h"
#include "keras/functional_graph.h"
#include "keras/training/array_source.h"
#include "keras/training/fit_run.h"
#include "keras/training/interrupt.h"
#include "keras/training/reshaped_data.h"
#include "keras/training/run_state.h"
#include "keras/training/step_loop.h"
#include "keras/training/worker_source.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/device/config.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {

// --- compile -----------------------------------------------------------------------------------------------

Trainer::Trainer(ModelBase& model) : model_(model) {}

void Trainer::compile(const CompileOptions& options, std::source_location where) {
  require(options.steps_per_execution >= 1, ErrorCode::invalid_argument, where,
          "compile: steps_per_execution must be at least 1, received ", options.steps_per_execution);
  require(options.optimizer.defined(), ErrorCode::invalid_argument, where,
          "compile: the optimizer was default-constructed: it names none");
  options_ = options;
  compiled_at_ = CallSite::of(where);
  if (options.auto_scale_loss && model_.policy().name() == "mixed_float16" &&
      options.optimizer.serialize().at("class_name").as_string() != "LossScaleOptimizer")
    options_.optimizer = optimizers::LossScaleOptimizer(options.optimizer);
  compiled_ = true;
  outputs_ = std::make_unique<Outputs>(model_, options_);
  if (compiled_steps_) compiled_steps_->functions.forget();
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

int Trainer::signal() const { return strategy().workers() ? agreed_signal_ : Interrupt::signal(); }

// --- steps
// -------------------------------------------------------------------------------------------------------

TensorList Trainer::run_body(StepKind kind, const Batch& batch) {
  const std::source_location here = CallSite::of(std::source_location::current());
  model_.forget_losses();
  if (kind == StepKind::predict) return model_.run(batch.x, {.training = false}, here);
  const bool trains = kind == StepKind::train;
  Tensor loss;
  TensorList predictions;
  const auto forward = [&] {
    predictions = model_.run(batch.x, {.training = trains}, here);
    // What a step does with the predictions was said by compile().
    const CallSite site(compiled_at_);
    outputs_->resolve(predictions.size(), batch.y.size());
    loss = outputs_->total_loss(batch.y, predictions, batch.sample_weight);
  };
  if (trains) {
    GradientTape tape;
    forward();
    const std::vector<Variable> variables = model_.trainable_weights();
    if (variables.empty()) {
      log_once(LogLevel::warning, "fit: model \"", model_.name(),
               "\" has no trainable weights: losses and metrics are computed, and nothing is trained; was "
               "trainable = false meant for all of it?");
    } else {
      const TensorList gradients = tape.gradient(options_.optimizer.scale_loss(loss), variables);
      options_.optimizer.apply_gradients(gradients, variables);
    }
  } else {
    forward();
  }
  const CallSite site(compiled_at_);
  loss = all_reduce_sum(loss);
  outputs_->update_metrics(loss, batch.y, predictions, batch.sample_weight);
  model_.forget_losses();
  return {loss};
}

distribute::Strategy Trainer::strategy() const { return distribute::Strategy::of(model_.owner()); }

StepFunctions Trainer::make_step_functions(observe::StepClock* clock) {
  return StepFunctions([this](StepKind kind, const Batch& batch) { return run_body(kind, batch); },
                       model_.name(), strategy().replica_options(), clock);
}

Trainer::CompiledSteps::CompiledSteps(Trainer& trainer)
    : owner(trainer.model_.owner()),
      clock({.replicas = std::max(1, static_cast<int>(trainer.strategy().devices().size()))}),
      functions(trainer.make_step_functions(&clock)) {}

Trainer::CompiledSteps& Trainer::compiled_steps() {
  if (compiled_steps_ && compiled_steps_->owner == model_.owner()) return *compiled_steps_;
  require(!run_, ErrorCode::failed_precondition, std::source_location::current(), "model \"", model_.name(),
          "\" was given to another strategy while it is being fitted; adopt it before or after");
  compiled_steps_ = std::make_unique<CompiledSteps>(*this);
  return *compiled_steps_;
}

bool Trainer::runs_eagerly() const {
  // What runs as replicas stays compiled.
  return options_.run_eagerly ||
         (config::functions_run_eagerly() && strategy().kind() == distribute::Strategy::Kind::none);
}

void Trainer::run_step(StepKind kind, const Batch& batch, std::source_location where) {
  Tensor other;
  compiled_steps().functions.run(kind, batch, runs_eagerly(), kind == StepKind::train ? last_loss_ : other,
                                 where);
}

bool Trainer::run_steps(StepKind kind, const BatchReader::Runs& runs, std::source_location where) {
  Tensor other;
  return compiled_steps().functions.run(kind, runs, kind == StepKind::train ? last_loss_ : other, where);
}

TensorList Trainer::predict_step(const Batch& batch, std::source_location where) {
  TensorList results = compiled_steps().functions.predict(batch, runs_eagerly(), where);
  if (!strategy().workers()) return results;
  // Every worker gets the results of all rows, in their order.
  const TensorList all = strategy().gather_from_workers("predictions", results);
  for (size_t i = 0; i < results.size(); ++i) {
    TensorList parts;
    for (size_t part = i; part < all.size(); part += results.size())
      if (all[part].shape()[0] > 0) parts.push_back(all[part]);
    results[i] = parts.size() == 1 ? parts[0] : concat(parts, 0, where);
  }
  return results;
}

void Trainer::finalize(std::source_location where) const {
  options_.optimizer.finalize_variable_values(model_.trainable_weights(), where);
}

// --- data --------------------------------------------------------------------------------------------------

Data Trainer::in_model_order(const Data& data, std::source_location where) const {
  require(data.defined(), ErrorCode::invalid_argument, where, "no data was given");
  ModelArrays model;
  model.inputs = model_.input_names();
  for (const KerasTensor& input : model_.inputs()) model.shapes.push_back(input.shape());
  if (!model.inputs.empty()) model.outputs = model_.output_names(model_.outputs().size());
  const std::shared_ptr<const Data::Source> ordered = data.source()->in_order(model, where);
  return ordered ? Data(ordered) : data;
}

Data Trainer::placed(const Data& data, std::source_location where, bool keeps_order) const {
  const distribute::Strategy strategy = this->strategy();
  if (strategy.workers()) return for_worker(data, strategy, keeps_order, where);
  // Under a strategy every device gets its rows of each batch.
  return strategy.kind() == distribute::Strategy::Kind::none ? on_device(data) : data;
}

void Trainer::gather_parts() const {
  if (!strategy().workers()) return;
  std::vector<Variable> per_replica;
  for (const Variable& variable : options_.optimizer.variables())
    if (variable.per_replica()) per_replica.push_back(variable);
  if (!per_replica.empty()) strategy().share_values(per_replica);
}

void Trainer::leave_parts_to_chief() const {
  if (strategy().is_chief()) return;
  for (const Variable& variable : options_.optimizer.variables())
    if (variable.per_replica())
      variable.assign(Tensor::full(variable.dtype(), variable.shape(), 0, variable.value().device()));
}

void Trainer::share_values() const {
  if (strategy().workers()) strategy().share_values(variables());
}

std::vector<Variable> Trainer::variables() const {
  std::vector<Variable> all = model_.weights();
  for (const Variable& variable : options_.optimizer.variables()) all.push_back(variable);
  all.push_back(random::default_generator().state());
  return all;
}

void Trainer::make_variables(const Data& data, int64_t batch_size, std::source_location where) {
  build_optimizer();
  // Metrics make theirs when they first see a batch.
  BatchStream stream(data, {.batch_size = batch_size}, false);
  Batch batch;
  stream.begin_epoch();
  if (stream.next(batch)) run_step(StepKind::test, batch, where);
}

void Trainer::check_strategy(const char* user, std::source_location where) const {
  const distribute::Strategy strategy = this->strategy();
  if (strategy.kind() != distribute::Strategy::Kind::none) {
    require(!options_.run_eagerly || (strategy.devices().size() == 1 && !strategy.workers()),
            ErrorCode::failed_precondition, where, user, ": run_eagerly runs model \"", model_.name(),
            "\" op by op on one device, but it belongs to ", strategy.description(),
            "; leave run_eagerly out, or debug without the strategy");
    return strategy.require_own(model_.weights(), user, where);
  }
  require(!model_.owner(), ErrorCode::failed_precondition, where, user, ": model \"", model_.name(),
          "\" would use one device, for its strategy (", model_.owner() ? model_.owner()->description() : "",
          ") is gone; keep a copy of the strategy as long as the model is used");
  if (compiled_)
    distribute::require_same_scope(user, options_.optimizer.iterations().owner(),
                                   detail::concat("model \"", model_.name(), "\""), where);
  distribute::require_none_forgotten(user, where);
}

// Makes the weights, so that callbacks find them when training begins.
void Trainer::build_for(const Model& handle, const Data& data, std::source_location where) const {
  if (model_.built()) return;
  const std::vector<TensorSpec> specs = data.source()->input_specs();
  if (!specs.empty()) infer_outputs(handle, specs, {}, where);
}

// --- loops
// -------------------------------------------------------------------------------------------------------

namespace {

void check_batch_size(const char* what, int64_t batch_size, std::source_location where) {
  require(batch_size > 0, ErrorCode::invalid_argument, where, what,
          ": batch_size must be positive, received ", batch_size);
}

}  // namespace

// Lines come from the chief alone.
int Trainer::verbose_here(int verbose) const { return strategy().is_chief() ? verbose : 0; }

Batch Trainer::part_here(const Batch& batch) const {
  return strategy().workers() ? own_part(batch, strategy()) : batch;
}

Trainer::Progress Trainer::progress(int epoch, int64_t batch) {
  return {epoch, batch, random_state(), run_ ? run_->position() : BatchStream::Position(),
          outputs_->values()};
}
Trainer::Progress Trainer::progress_after(int epoch) {
  return {epoch + 1, 0, random_state(), run_ ? run_->position_after_epoch() : BatchStream::Position()};
}

History Trainer::fit(Model& handle, const Data& data, const FitOptions& options, std::source_location where) {
  return FitRun(*this, handle, data, options, where).run();
}

Logs Trainer::evaluate_prepared(const Data& data, int64_t batch_size, int64_t steps,
                                const CallbackList& callbacks, std::source_location where) {
  reset_metrics();
  callbacks.tell(&CallbackBase::on_test_begin, Logs());
  BatchStream stream(data, {.batch_size = batch_size}, false);
  stream.begin_epoch();
  int64_t step = 0;
  StepLoop(*this, StepKind::test, nullptr, callbacks, where).run(stream, step, steps);
  const Logs logs = results();
  callbacks.tell(&CallbackBase::on_test_end, logs);
  return logs;
}

template <class F>
auto Trainer::outliving(F f) -> decltype(f()) {
  const auto& workers = strategy().workers();
  while (true) {
    try {
      return f();
    } catch (const Error& error) {
      if (run_ || !workers || !workers->elastic() || !workers->broken()) throw;
      log(LogLevel::warning, "worker ", workers->rank(), " of ", workers->size(),
          " forms anew with those who are left: ", error.message());
    }
    for (bool settled = false; !settled;) {
      forget_steps();
      workers->form_anew(true);
      require(!workers->newcomer(), ErrorCode::io, std::source_location::current(),
              "the run has gone on without this worker, which was not heard of for too long");
      try {
        gather_places(*workers, {.standing = {.begun = true, .epoch = std::numeric_limits<int32_t>::max()}});
        settled = true;
      } catch (const Error&) {
        if (!workers->broken()) throw;
      }
    }
  }
}

Logs Trainer::evaluate(Model& handle, const Data& given, const EvaluateOptions& options,
                       std::source_location where) {
  return outliving([&] { return evaluate_once(handle, given, options, where); });
}

TensorList Trainer::predict(Model& handle, const Data& given, const PredictOptions& options,
                            std::source_location where) {
  return outliving([&] { return predict_once(handle, given, options, where); });
}

Logs Trainer::evaluate_once(Model& handle, const Data& given, const EvaluateOptions& options,
                            std::source_location where) {
  require_compiled("evaluate", where);
  check_batch_size("evaluate", options.batch_size, where);
  check_strategy("evaluate", where);
  const Data data = placed(in_model_order(given, where), where);
  const int64_t steps = steps_of(data, options.steps, options.batch_size, "evaluate", "steps", where);
  const CallbackList callbacks(options.callbacks, handle, {1, steps, verbose_here(options.verbose)}, where);
  share_values();
  const Interrupt interrupt;
  return evaluate_prepared(data, options.batch_size, steps, callbacks, where);
}

TensorList Trainer::predict_once(Model& handle, const Data& given, const PredictOptions& options,
                                 std::source_location where) {
  check_batch_size("predict", options.batch_size, where);
  check_strategy("predict", where);
  const Data data = placed(in_model_order(given, where), where, true);
  const int64_t steps = steps_of(data, options.steps, options.batch_size, "predict", "steps", where);
  const CallbackList callbacks(options.callbacks, handle, {1, steps, verbose_here(options.verbose)}, where);
  share_values();
  const Interrupt interrupt;
  callbacks.tell(&CallbackBase::on_predict_begin, Logs());
  BatchStream stream(data, {.batch_size = options.batch_size}, false);
  stream.begin_epoch();
  StepLoop loop(*this, StepKind::predict, nullptr, callbacks, where);
  int64_t step = 0;
  loop.run(stream, step, steps);
  std::vector<TensorList> parts;  // of each output
  for (const TensorList& results : loop.predictions()) {
    parts.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i) parts[i].push_back(results[i]);
  }
  TensorList joined;
  for (const TensorList& part : parts) joined.push_back(part.size() == 1 ? part[0] : concat(part, 0, where));
  callbacks.tell(&CallbackBase::on_predict_end, Logs());
  return joined;
}

Logs Trainer::train_on_batch(const Batch& batch, const std::map<int64_t, double>& class_weight,
                             std::source_location where) {
  require_compiled("train_on_batch", where);
  check_strategy("train_on_batch", where);
  reset_metrics();
  const Data data(array_source(batch, {}, {}, where));
  const Data weighted = class_weight.empty() ? data : with_class_weight(data, class_weight, where);
  run_step(StepKind::train, part_here(*weighted.source()->arrays()), where);
  return results();
}

Logs Trainer::test_on_batch(const Batch& batch, std::source_location where) {
  require_compiled("test_on_batch", where);
  check_strategy("test_on_batch", where);
  reset_metrics();
  run_step(StepKind::test, part_here(*array_source(batch, {}, {}, where)->arrays()), where);
  return results();
}

TensorList Trainer::predict_on_batch(const TensorList& x, std::source_location where) {
  check_strategy("predict_on_batch", where);
  return predict_step(part_here({x, {}, {}}), where);
}

}  // namespace lockstep::keras
