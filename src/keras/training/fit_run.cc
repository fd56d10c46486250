#include "keras/training/fit_run.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <optional>
#include <tuple>
#include <utility>

#include "comm/connection.h"
#include "comm/workers.h"
#include "data/adaptive_prefetch.h"
#include "data/host.h"
#include "device/cpu_device.h"
#include "distribute/worker_summaries.h"
#include "keras/training/reshaped_data.h"
#include "keras/training/step_loop.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/observe/run_report.h"
#include "observe/loop.h"

namespace lockstep::keras {
namespace {

void check(const FitOptions& options, std::source_location where) {
  require(options.batch_size > 0, ErrorCode::invalid_argument, where,
          "fit: batch_size must be positive, received ", options.batch_size);
  require(options.epochs >= 0 && options.initial_epoch >= 0, ErrorCode::invalid_argument, where,
          "fit: epochs and initial_epoch must not be negative, received ", options.epochs, " and ",
          options.initial_epoch);
  require(options.validation_split >= 0 && options.validation_split < 1, ErrorCode::invalid_argument, where,
          "fit: validation_split must be in [0, 1), received ", options.validation_split);
  require(options.validation_freq >= 1, ErrorCode::invalid_argument, where,
          "fit: validation_freq must be at least 1, received ", options.validation_freq);
  require(options.validation_batch_size > 0 || options.validation_batch_size == -1,
          ErrorCode::invalid_argument, where,
          "fit: validation_batch_size must be positive, or -1 for batch_size, received ",
          options.validation_batch_size);
}

int64_t validation_batch_size(const FitOptions& options) {
  return options.validation_batch_size > 0 ? options.validation_batch_size : options.batch_size;
}

// What all workers have to do alike.
std::string text_of(const FitOptions& options) {
  std::string classes;
  for (const auto& [label, weight] : options.class_weight)
    classes += detail::concat(" ", label, ": ", weight);
  return detail::concat("batch_size ", options.batch_size, ", epochs ", options.epochs, ", initial_epoch ",
                        options.initial_epoch, ", steps_per_epoch ", options.steps_per_epoch, ", shuffle ",
                        options.shuffle, ", validation_split ", options.validation_split,
                        options.validation_data.defined() ? ", validation_data" : "",
                        ", validation_batch_size ", options.validation_batch_size, ", validation_steps ",
                        options.validation_steps, ", validation_freq ", options.validation_freq,
                        ", class_weight", classes.empty() ? " none" : classes);
}

// What only some workers have is lost with them.
void require_outliving(Trainer& trainer, std::source_location where) {
  trainer.build_optimizer();
  for (const Variable& variable : trainer.variables())
    require(
        !variable.per_replica(), ErrorCode::unsupported, where,
        "fit: every replica has a part of variable \"", variable.name(),
        "\" to itself (VariableOptions::per_replica), and in an elastic run a worker's parts would be lost "
        "with it; let all replicas hold the same, the sum over them");
}

TrainingData prepare(Trainer& trainer, const Model& model, const Data& given, const FitOptions& options,
                     std::source_location where) {
  trainer.require_compiled("fit", where);
  check(options, where);
  TrainingData data{.train = trainer.in_model_order(given, where), .validation = {}};
  if (options.validation_data.defined())
    data.validation = trainer.in_model_order(options.validation_data, where);
  else if (options.validation_split > 0)
    std::tie(data.train, data.validation) = split_off(data.train, options.validation_split, where);
  if (!options.class_weight.empty()) data.train = with_class_weight(data.train, options.class_weight, where);
  trainer.check_strategy("fit", where);
  if (const auto& workers = trainer.strategy().workers())
    workers->require_equal("the options of fit", text_of(options), where);
  data.train = trainer.placed(data.train, where);
  data.steps =
      steps_of(data.train, options.steps_per_epoch, options.batch_size, "fit", "steps_per_epoch", where);
  if (data.validation.defined()) {
    data.validation = trainer.placed(data.validation, where);
    data.validation_steps =
        steps_of(data.validation, options.validation_steps, validation_batch_size(options),
                 "fit: validation_data", "validation_steps", where);
  }
  // Callbacks find the weights when training begins, and the run's memory is what it needs beside them.
  trainer.build_for(model, data.train, where);
  if (trainer.strategy().elastic()) require_outliving(trainer, where);
  trainer.share_values();
  return data;
}

// What a backup knows the run by.
RunParams params_of(const Data& data, const FitOptions& options, int64_t steps, int verbose) {
  RunParams params{.epochs = options.epochs, .steps = steps, .verbose = verbose};
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

data::RowBatchOptions reading(const FitOptions& options, const distribute::Strategy& strategy) {
  const int threads = data::host_device().threads();
  int busy = 0;  // with the steps
  for (const Device* device : strategy.devices())
    if (device->kind() == DeviceKind::cpu) busy += device->threads();
  return {.batch_size = options.batch_size,
          .shuffle = options.shuffle,
          .threads = threads,
          .free_threads = std::max(0, available_cores() - std::max(threads, busy)),
          .adaptive_prefetch = std::make_shared<data::AdaptivePrefetch>()};
}

int next_number() {
  static std::atomic<int> fits{0};
  return ++fits;
}

// A dataset that keeps the steps waiting is not to be missed, also where nothing is printed.
void warn_of_input(const observe::RunReport& report) {
  constexpr int64_t kWorthWarningNs = 1'000'000'000;
  const observe::RunSummary& time = report.summary;
  if (time.input.bottleneck.empty()) return;
  const auto long_wait = [](const observe::ReplicaSummary& replica) {
    return replica[observe::Category::input_wait].total >= kWorthWarningNs;
  };
  if (std::none_of(time.replicas.begin(), time.replicas.end(), long_wait)) return;
  for (const observe::Verdict& verdict : report.verdicts)
    if (verdict.id == "input-bound")
      log(LogLevel::warning, "fit: ", verdict.cause, "; ", verdict.evidence, "; fix: ", verdict.fix,
          "; gain: ", verdict.gain);
}

}  // namespace

FitRun::Registration::Registration(Trainer& trainer, FitRun& run, std::source_location where)
    : trainer_(trainer) {
  require(!trainer.run_, ErrorCode::failed_precondition, where,
          "fit: the model is being fitted already, by the fit whose callback this is or on another thread; "
          "fit another model, or a clone");
  trainer.compiled_steps();  // for the strategy that the model has now: from here on it cannot change
  trainer.run_ = &run;
}
FitRun::Registration::~Registration() {
  trainer_.run_ = nullptr;
  trainer_.control().save_now = trainer_.control().save_alone = nullptr;
  trainer_.control().callbacks.clear();
}

FitRun::FitRun(Trainer& trainer, Model& model, const Data& data, const FitOptions& options,
               std::source_location where)
    : trainer_(trainer),
      options_(options),
      where_(where),
      registration_(trainer, *this, where),
      strategy_(trainer.strategy()),
      data_(prepare(trainer, model, data, options, where)),
      recorder_(std::make_shared<HistoryRecorder>()),
      // The recorder stands behind the callbacks that add to the logs.
      callbacks_(options.callbacks, model,
                 // Of an elastic run every worker may become the chief.
                 params_of(data_.train, options, data_.steps,
                           strategy_.elastic() ? options.verbose : trainer.verbose_here(options.verbose)),
                 where, Callback(recorder_), strategy_.is_chief()),
      observer_(trainer.clock(),
                strategy_.devices().empty() ? std::vector<Device*>{&current_device()} : strategy_.devices()),
      stream_(data_.train, reading(options, strategy_), options.steps_per_epoch > 0),
      loss_watch_(trainer, stream_),
      cause_watch_("fit"),
      elastic_({.trainer = trainer_,
                .strategy = strategy_,
                .data = data_.train,
                .batch_size = options.batch_size,
                .callbacks = callbacks_,
                .stream = stream_,
                .at = at_,
                .metrics = metrics_,
                .told_begin = told_begin_,
                .tell_begin = [this](bool joins) { tell_begin(joins); },
                .where = where},
               next_number()) {}

History FitRun::run() {
  elastic_.come();
  try {
    return run_outliving();
  } catch (const comm::Passed& over) {
    return elastic_.passed(over.past);
  }
}

History FitRun::run_outliving() {
  const auto& workers = strategy_.workers();
  bool joins = workers && workers->newcomer();
  while (true) {
    std::string reason;
    try {
      if (std::exchange(joins, false)) elastic_.join();
      return run_epochs();
    } catch (const std::exception& error) {
      if (!elastic_.may_recover()) elastic_.end_with(error);
      reason = error.what();
    }
    elastic_.recover(std::move(reason));
  }
}

History FitRun::run_epochs() {
  if (!at_.begun) begin();
  while (goes_on()) run_epoch();
  elastic_.close();
  trainer_.finalize(where_);
  callbacks_.tell(&CallbackBase::on_train_end, at_.logs);
  return finish();
}

void FitRun::tell_begin(bool joins) {
  if (std::exchange(told_begin_, true)) return;
  trainer_.stop_training = false;
  trainer_.set_signal(0);
  trainer_.control().resume.reset();
  trainer_.control().joined = joins;
  trainer_.control().save_now = trainer_.control().save_alone = nullptr;
  trainer_.control().callbacks = callbacks_.all();
  if (joins) callbacks_.set_chief(false);
  callbacks_.tell(&CallbackBase::on_train_begin, Logs());
}

void FitRun::begin() {
  tell_begin(false);
  callbacks_.tell(&CallbackBase::on_settled);
  // In an elastic run all variables are there before anybody may come whom they are sent to.
  if (strategy_.elastic() && trainer_.control().resume)
    trainer_.make_variables(data_.train, options_.batch_size, where_);
  at_.begun = true;
  at_.epoch = options_.initial_epoch;
  if (!trainer_.control().resume) return;
  // Of a run that a backup made go on: where that stood.
  at_.epoch = std::max(at_.epoch, trainer_.control().resume->epoch);
  at_.batch = trainer_.control().resume->batch;
}

bool FitRun::goes_on() const {
  if (at_.stage != Standing::Stage::begins) return true;
  return at_.epoch < options_.epochs && !trainer_.stop_training && !trainer_.interrupted();
}

int64_t FitRun::begin_data() {
  if (!trainer_.control().resume) {
    stream_.begin_epoch();
    return 0;
  }
  const Trainer::Progress from = *std::exchange(trainer_.control().resume, std::nullopt);
  if (from.batch > 0) trainer_.restore_metrics(from.metrics);
  stream_.restore(from.stream, from.random);
  return from.batch;
}

void FitRun::run_epoch() {
  const int epoch = at_.epoch;
  const std::optional<Trainer::Progress> resumed = trainer_.control().resume;
  // Where the next epoch's data begins, where that is not where this one's ended.
  std::optional<Trainer::Progress> next;
  if (at_.stage == Standing::Stage::begins) {
    elastic_.share_chiefs_callbacks();
    trainer_.reset_metrics();
    callbacks_.tell(&CallbackBase::on_epoch_begin, epoch, Logs());
    at_.batch = begin_data();
    at_.stage = Standing::Stage::steps;
  }
  if (at_.stage == Standing::Stage::steps) {
    run_steps();
    // A scheduler wants the machine, and the run shall go on elsewhere from this step.
    if (trainer_.signal() == SIGTERM && trainer_.control().save_now)
      trainer_.control().save_now(trainer_.progress(epoch, at_.batch));
    // A run that goes on where all steps of the epoch were made. Metrics have their names from a step; an
    // elastic run's have.
    if (resumed && at_.batch > 0 && at_.batch == resumed->batch && !strategy_.elastic()) {
      next = trainer_.progress_after(epoch);
      trainer_.make_variables(data_.train, options_.batch_size, where_);
      trainer_.restore_metrics(resumed->metrics);
    }
    metrics_ = trainer_.outputs().values();
    at_.logs = trainer_.results();
    at_.stage = Standing::Stage::validation;
    loss_watch_.look(Batch());
  }
  if (data_.validation.defined() && (epoch + 1) % options_.validation_freq == 0) add_validation(at_.logs);
  callbacks_.add_logs(epoch, at_.logs);
  metrics_.clear();
  at_ = {.begun = true, .epoch = epoch + 1, .logs = std::move(at_.logs)};
  callbacks_.tell(&CallbackBase::on_epoch_end, epoch, at_.logs);
  callbacks_.tell(&CallbackBase::on_settled);
  if (next) trainer_.control().resume = std::move(next);
  observer_.end_epoch();
}

void FitRun::run_steps() {
  const auto watch = [this](const Batch& batch) {
    loss_watch_.look(batch);
    cause_watch_.look(observer_.clock(), [this](observe::RunSummary& time) { complete(time); });
  };
  while (true) {
    StepLoop loop(trainer_, StepKind::train, &observer_.clock(), callbacks_, where_, watch);
    loop.run(stream_, at_.batch, data_.steps);
    observer_.finish_steps();
    if (!loop.newcomers()) return;
    elastic_.let_in();
  }
}

void FitRun::add_validation(Logs& logs) {
  if (trainer_.interrupted()) return;
  const Logs measured = trainer_.evaluate_prepared(data_.validation, validation_batch_size(options_),
                                                   data_.validation_steps, callbacks_, where_);
  // The metrics of a part of the data are not those of the data.
  if (trainer_.interrupted()) return;
  for (const auto& [name, value] : measured) logs.set("val_" + name, value);
}

void FitRun::complete(observe::RunSummary& time) const {
  time.input = stream_.input_summary();
  if (strategy_.devices().size() > 1 || strategy_.workers()) time.sums = strategy_.sums_description();
  observe::RunSetting& setting = time.setting;
  setting.kind = observe::RunKind::dataset;
  setting.steps_per_execution = trainer_.options().steps_per_execution;
  setting.same_examples = stream_.same_examples();
  if (const Batch* arrays = data_.train.source()->arrays()) {
    setting.kind = observe::RunKind::arrays;
    setting.batch_size = options_.batch_size;
    setting.examples = examples_in(*arrays) * strategy_.num_workers();
  }
  observer_.devices().describe(time);
}

observe::RunSummary FitRun::summary() const {
  observe::RunSummary time = observer_.summary();
  complete(time);
  return time;
}

History FitRun::finish() {
  observe::RunSummary time = distribute::of_all_workers(strategy_, summary());
  observe::RunReport report = observe::report_on(std::move(time), "fit");
  warn_of_input(report);
  observe::remember(report);
  report.title.clear();
  if (trainer_.verbose_here(options_.verbose) > 0 && options_.report && strategy_.options().report &&
      observe::steps(report.summary) >= observe::kWorthReporting)
    observe::print(report);
  History history = std::move(recorder_->history);
  history.time = std::move(report.summary);
  history.interrupted = trainer_.interrupted();
  history.signal = trainer_.signal();
  if (history.interrupted)
    log(LogLevel::warning, "fit: interrupted; the model keeps what it has learnt so far");
  elastic_.leave(history);
  return history;
}

}  // namespace lockstep::keras
