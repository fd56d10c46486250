// Callbacks that watch the logs: stopping, learning rates.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "keras/callbacks/monitor.h"
#include "keras/callbacks/number_text.h"
#include "keras/range.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/base/terminal.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras::callbacks {
namespace {

class EarlyStoppingCallback final : public CallbackBase {
 public:
  explicit EarlyStoppingCallback(const EarlyStoppingOptions& options)
      : options_(options), monitor_(options.monitor, options.mode, options.min_delta, "EarlyStopping") {
    require_in(kFinite, "EarlyStopping", "min_delta", options.min_delta);
    require_in(kNotNegative, "EarlyStopping", "patience", options.patience);
    require_in(kFinite, "EarlyStopping", "baseline", options.baseline);
    require_in(kNotNegative, "EarlyStopping", "start_from_epoch", options.start_from_epoch);
  }

  bool needs_every_batch() const override { return false; }
  void on_train_begin(const Logs&) override {
    waited_ = 0;
    best_ = monitor_.worst();
    best_epoch_ = 0;
    stopped_epoch_ = 0;
    best_weights_.clear();
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    const std::optional<double> current = monitor_.read(logs);
    if (!current || epoch < options_.start_from_epoch) return;
    if (options_.restore_best_weights && best_weights_.empty()) keep(epoch);
    ++waited_;
    if (monitor_.better(*current, best_)) {
      best_ = *current;
      keep(epoch);
      // A baseline that is not reached keeps the patience running.
      if (!options_.baseline || monitor_.better(*current, *options_.baseline)) waited_ = 0;
      return;
    }
    if (waited_ >= options_.patience && epoch > 0) {
      stopped_epoch_ = epoch;
      model().stop_training();
    }
  }

  void on_train_end(const Logs&) override {
    if (stopped_epoch_ > 0 && options_.verbose > 0)
      terminal::print(fmt::format("Epoch {}: early stopping\n", stopped_epoch_ + 1));
    if (!options_.restore_best_weights || best_weights_.empty()) return;
    if (options_.verbose > 0)
      terminal::print(
          fmt::format("Restoring model weights from the end of the best epoch: {}.\n", best_epoch_ + 1));
    model().set_weights(best_weights_);
  }

  std::string state_name() const override { return "EarlyStopping"; }
  void visit_state(CallbackState& state) override {
    state("waited", waited_);
    state("best", best_);
    state("best_epoch", best_epoch_);
    state("stopped_epoch", stopped_epoch_);
    state("best_weights", best_weights_);
  }

 private:
  void keep(int epoch) {
    best_epoch_ = epoch;
    if (options_.restore_best_weights) best_weights_ = model().get_weights();
  }

  EarlyStoppingOptions options_;
  Monitor monitor_;
  int waited_ = 0;
  double best_ = 0;
  int best_epoch_ = 0;
  int stopped_epoch_ = 0;
  TensorList best_weights_;
};

// What the epoch was trained with.
void add_learning_rate(const Model& model, Logs& logs) {
  logs.set("learning_rate", model.optimizer().current_learning_rate());
}

class ReduceLROnPlateauCallback final : public CallbackBase {
 public:
  explicit ReduceLROnPlateauCallback(const ReduceLROnPlateauOptions& options)
      : options_(options), monitor_(options.monitor, options.mode, options.min_delta, "ReduceLROnPlateau") {
    const Range part{.low = 0, .high = 1, .above_low = true, .below_high = true};
    require_in(part, "ReduceLROnPlateau", "factor", options.factor);
    require_in(kNotNegative, "ReduceLROnPlateau", "patience", options.patience);
    require_in(kFinite, "ReduceLROnPlateau", "min_delta", options.min_delta);
    require_in(kNotNegative, "ReduceLROnPlateau", "cooldown", options.cooldown);
    require_in(kNotNegative, "ReduceLROnPlateau", "min_lr", options.min_lr);
  }

  bool needs_every_batch() const override { return false; }
  void on_train_begin(const Logs&) override {
    best_ = monitor_.worst();
    waited_ = 0;
    cooldown_ = 0;
  }
  void add_logs(int, Logs& logs) override { add_learning_rate(model(), logs); }

  void on_epoch_end(int epoch, const Logs& logs) override {
    const std::optional<double> current = monitor_.read(logs);
    if (!current) return;
    if (cooldown_ > 0) {
      --cooldown_;
      waited_ = 0;
    }
    if (monitor_.better(*current, best_)) {
      best_ = *current;
      waited_ = 0;
    } else if (cooldown_ == 0 && ++waited_ >= options_.patience) {
      const double old = model().optimizer().current_learning_rate();
      if (static_cast<float>(old) <= static_cast<float>(options_.min_lr)) return;
      const double reduced = std::max(old * options_.factor, options_.min_lr);
      model().optimizer().set_learning_rate(reduced);
      if (options_.verbose > 0)
        terminal::print(fmt::format("\nEpoch {}: ReduceLROnPlateau reducing learning rate to {}.\n",
                                    epoch + 1, number_text(reduced)));
      cooldown_ = options_.cooldown;
      waited_ = 0;
    }
  }

  std::string state_name() const override { return "ReduceLROnPlateau"; }
  void visit_state(CallbackState& state) override {
    state("best", best_);
    state("waited", waited_);
    state("cooldown", cooldown_);
  }

 private:
  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
  double best_ = 0;
  int waited_ = 0;
  int cooldown_ = 0;
};

class LearningRateSchedulerCallback final : public CallbackBase {
 public:
  LearningRateSchedulerCallback(std::function<double(int, double)> schedule, int verbose)
      : schedule_(std::move(schedule)), verbose_(verbose) {
    require(schedule_ != nullptr, ErrorCode::invalid_argument, std::source_location::current(),
            "LearningRateScheduler: the schedule is empty");
  }

  bool needs_every_batch() const override { return false; }
  void on_train_begin(const Logs&) override { scheduled_ = -1; }
  void on_epoch_begin(int epoch, const Logs&) override {
    // An epoch that goes on from a backup begins once more, with the rate that it has.
    if (std::exchange(scheduled_, epoch) == epoch) return;
    const double rate = schedule_(epoch, model().optimizer().current_learning_rate());
    require(std::isfinite(rate), ErrorCode::invalid_argument, std::source_location::current(),
            "LearningRateScheduler: the schedule gave ", rate, " for epoch ", epoch);
    model().optimizer().set_learning_rate(rate);
    if (verbose_ > 0)
      terminal::print(fmt::format("\nEpoch {}: LearningRateScheduler setting learning rate to {}.\n",
                                  epoch + 1, number_text(rate)));
  }
  void add_logs(int, Logs& logs) override { add_learning_rate(model(), logs); }

  std::string state_name() const override { return "LearningRateScheduler"; }
  void visit_state(CallbackState& state) override { state("scheduled", scheduled_); }

 private:
  std::function<double(int, double)> schedule_;
  int verbose_;
  int scheduled_ = -1;  // the epoch that the rate is of
};

class TerminateOnNaNCallback final : public CallbackBase {
 public:
  explicit TerminateOnNaNCallback(const TerminateOnNaNOptions& options) : options_(options) {}
  bool wants_batch_logs() const override { return true; }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    const std::optional<double> loss = logs.find("loss");
    if (!loss || std::isfinite(*loss)) return;
    require(!options_.raise_error, ErrorCode::failed_precondition, std::source_location::current(),
            "TerminateOnNaN: the loss is ", *loss, " after batch ", batch);
    terminal::print(fmt::format("Batch {}: Invalid loss, terminating training\n", batch));
    model().stop_training();
  }

 private:
  TerminateOnNaNOptions options_;
};

class LambdaCallbackImpl final : public CallbackBase {
 public:
  explicit LambdaCallbackImpl(LambdaCallbackOptions options) : options_(std::move(options)) {}

  void on_epoch_begin(int epoch, const Logs& logs) override { tell(options_.on_epoch_begin, epoch, logs); }
  void on_epoch_end(int epoch, const Logs& logs) override { tell(options_.on_epoch_end, epoch, logs); }
  void on_train_batch_begin(int64_t batch, const Logs& logs) override {
    tell(options_.on_train_batch_begin, batch, logs);
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    tell(options_.on_train_batch_end, batch, logs);
  }
  void on_train_begin(const Logs& logs) override { tell(options_.on_train_begin, logs); }
  void on_train_end(const Logs& logs) override { tell(options_.on_train_end, logs); }
  bool wants_batch_logs() const override { return options_.on_train_batch_end != nullptr; }
  bool needs_every_batch() const override {
    return options_.on_train_batch_begin != nullptr || options_.on_train_batch_end != nullptr;
  }

 private:
  template <class F, class... Arguments>
  static void tell(const F& f, const Arguments&... arguments) {
    if (f) f(arguments...);
  }
  LambdaCallbackOptions options_;
};

}  // namespace

Callback EarlyStopping(const EarlyStoppingOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_callback<EarlyStoppingCallback>(options);
}
Callback ReduceLROnPlateau(const ReduceLROnPlateauOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_callback<ReduceLROnPlateauCallback>(options);
}
Callback LearningRateScheduler(std::function<double(int, double)> schedule, int verbose,
                               std::source_location where) {
  const CallSite site(where);
  return make_callback<LearningRateSchedulerCallback>(std::move(schedule), verbose);
}
Callback TerminateOnNaN(const TerminateOnNaNOptions& options) {
  return make_callback<TerminateOnNaNCallback>(options);
}
Callback LambdaCallback(const LambdaCallbackOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_callback<LambdaCallbackImpl>(options);
}

}  // namespace lockstep::keras::callbacks
