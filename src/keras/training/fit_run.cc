#include "keras/training/fit_run.h"

#include <algorithm>
#include <thread>
#include <tuple>
#include <utility>

#include "comm/workers.h"
#include "data/host.h"
#include "keras/training/reshaped_data.h"
#include "keras/training/step_loop.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/observe/run_report.h"

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
}

int64_t validation_batch_size(const FitOptions& options) {
  return options.validation_batch_size > 0 ? options.validation_batch_size : options.batch_size;
}

TrainingData prepare(const Trainer& trainer, const Model& model, const Data& given, const FitOptions& options,
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

data::RowBatchOptions reading(const FitOptions& options) {
  const int threads = data::host_device().threads();
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return {.batch_size = options.batch_size,
          .shuffle = options.shuffle,
          .threads = threads,
          .free_threads = cores - threads};
}

// A dataset that keeps the steps waiting is not to be missed, also where nothing is printed.
void warn_of_input(const observe::RunReport& report) {
  constexpr int64_t kWorthWarningNs = 1'000'000'000;
  const observe::RunSummary& time = report.summary;
  if (time.input.bottleneck.empty()) return;
  if (time.replicas[0][observe::Category::input_wait].total < kWorthWarningNs) return;
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
  trainer.program();  // for the strategy that the model has now: from here on it cannot change
  trainer.run_ = &run;
}
FitRun::Registration::~Registration() {
  trainer_.run_ = nullptr;
  trainer_.callbacks.clear();
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
                 params_of(data_.train, options, data_.steps, trainer.verbose_here(options.verbose)), where,
                 Callback(recorder_), strategy_.is_chief()),
      observer_(trainer.clock(),
                strategy_.devices().empty() ? std::vector<Device*>{&current_device()} : strategy_.devices()),
      stream_(data_.train, reading(options), options.steps_per_epoch > 0),
      loss_watch_(trainer, stream_) {}

History FitRun::run() {
  try {
    return run_epochs();
  } catch (const std::exception& error) {
    // The other workers would wait for this one.
    if (const auto& workers = strategy_.workers())
      workers->give_up(detail::concat("fit failed at worker ", workers->rank(), ": ", error.what()));
    throw;
  }
}

History FitRun::run_epochs() {
  trainer_.stop_training = false;
  trainer_.set_signal(0);
  trainer_.resume.reset();
  Logs logs;
  trainer_.callbacks = callbacks_.all();
  callbacks_.tell(&CallbackBase::on_train_begin, logs);
  callbacks_.tell(&CallbackBase::on_settled);
  for (int epoch = first_epoch(); epoch < options_.epochs && !trainer_.stop_training; ++epoch) {
    logs = run_epoch(epoch);
    if (trainer_.interrupted()) break;
  }
  trainer_.finalize(where_);
  callbacks_.tell(&CallbackBase::on_train_end, logs);
  return finish();
}

int FitRun::first_epoch() {
  return trainer_.resume ? std::max(options_.initial_epoch, trainer_.resume->epoch) : options_.initial_epoch;
}

int64_t FitRun::begin_data() {
  if (!trainer_.resume) {
    stream_.begin_epoch();
    return 0;
  }
  const Trainer::Progress from = *std::exchange(trainer_.resume, std::nullopt);
  if (from.batch > 0) trainer_.restore_metrics(from.metrics);
  stream_.restore(from.stream, from.random);
  return from.batch;
}

Logs FitRun::run_epoch(int epoch) {
  trainer_.reset_metrics();
  callbacks_.tell(&CallbackBase::on_epoch_begin, epoch, Logs());
  const int64_t done = begin_data();
  StepLoop(trainer_, StepKind::train, &observer_.clock(), callbacks_, where_, &loss_watch_)
      .run(stream_, done, data_.steps);
  Logs logs = trainer_.results();
  loss_watch_.look(Batch());
  if (data_.validation.defined() && (epoch + 1) % options_.validation_freq == 0) add_validation(logs);
  callbacks_.add_logs(epoch, logs);
  callbacks_.tell(&CallbackBase::on_epoch_end, epoch, logs);
  callbacks_.tell(&CallbackBase::on_settled);
  observer_.end_epoch();
  return logs;
}

void FitRun::add_validation(Logs& logs) {
  if (trainer_.interrupted()) return;
  const Logs measured = trainer_.evaluate_prepared(data_.validation, validation_batch_size(options_),
                                                   data_.validation_steps, callbacks_, where_);
  // The metrics of a part of the data are not those of the data.
  if (trainer_.interrupted()) return;
  for (const auto& [name, value] : measured) logs.set("val_" + name, value);
}

History FitRun::finish() {
  observe::RunSummary time = observer_.summary();
  time.input = stream_.input_summary();
  if (strategy_.devices().size() > 1 || strategy_.workers()) time.sums = strategy_.sums_description();
  observe::RunReport report = observe::report_on(std::move(time));
  warn_of_input(report);
  const bool replicated = strategy_.kind() != distribute::Strategy::Kind::none;
  if (trainer_.verbose_here(options_.verbose) > 0 && replicated && strategy_.options().report)
    observe::print(report);
  History history = std::move(recorder_->history);
  history.time = std::move(report.summary);
  history.interrupted = trainer_.interrupted();
  history.signal = trainer_.signal();
  if (history.interrupted)
    log(LogLevel::warning, "fit: interrupted; the model keeps what it has learnt so far");
  return history;
}

}  // namespace lockstep::keras
