#include "keras/training/step_loop.h"

#include <algorithm>
#include <utility>

#include "comm/workers.h"
#include "keras/training/interrupt.h"
#include "keras/training/trainer.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "observe/activity.h"

namespace lockstep::keras {
namespace {

// So many steps may be one launch although nobody asked for it, where no callback needs to hear of every
// batch.
constexpr int64_t kStepsPerLaunch = 64;

struct Moments {
  void (CallbackBase::*begin)(int64_t, const Logs&);
  void (CallbackBase::*end)(int64_t, const Logs&);
};

Moments moments_of(StepKind kind) {
  switch (kind) {
    case StepKind::train: return {&CallbackBase::on_train_batch_begin, &CallbackBase::on_train_batch_end};
    case StepKind::test: return {&CallbackBase::on_test_batch_begin, &CallbackBase::on_test_batch_end};
    default: return {&CallbackBase::on_predict_batch_begin, &CallbackBase::on_predict_batch_end};
  }
}

}  // namespace

StepLoop::StepLoop(Trainer& trainer, StepKind kind, observe::StepClock* clock, const CallbackList& callbacks,
                   std::source_location where, Watch watch)
    : trainer_(trainer),
      kind_(kind),
      clock_(clock),
      counts_examples_(clock && trainer.strategy().kind() == distribute::Strategy::Kind::none),
      callbacks_(callbacks),
      where_(where),
      watch_(std::move(watch)),
      agreement_(trainer.strategy()) {}

bool StepLoop::stops(bool ask) {
  const bool trains = kind_ == StepKind::train;
  const auto& workers = trainer_.strategy().workers();
  const Agreement::Wishes own{.stop = trains && trainer_.stop_training,
                              .signal = Interrupt::signal(),
                              .newcomers = trains && workers && workers->newcomers_waiting() > 0};
  const Agreement::Wishes all = ask ? agreement_.settle(own) : agreement_.after_step(own);
  newcomers_ = all.newcomers;
  trainer_.set_signal(all.signal);
  if (all.stop) trainer_.stop_training = true;
  return all.stop || all.signal != 0 || all.newcomers;
}

void StepLoop::compute() {
  if (kind_ != StepKind::predict) return trainer_.run_step(kind_, batch_, where_);
  batch_.y.clear();
  batch_.sample_weight.clear();
  predictions_.push_back(trainer_.predict_step(batch_, where_));
}

// What callbacks take between two steps is a part of the later one; what came before the loop is not.
void StepLoop::begin_step() {
  if (step_) return;
  step_.emplace(clock_,
                std::exchange(begun_, true) ? observe::StepBegins::with_the_last : observe::StepBegins::now);
}

void StepLoop::end_step(int64_t steps, int64_t examples) {
  if (counts_examples_) clock_->replica(0).count(observe::Counter::examples, examples);
  step_->made(steps);
  step_.reset();
}

// False where the data has ended.
bool StepLoop::run_one(BatchStream& stream) {
  begin_step();
  {
    const observe::TimeScopeOfAll scope(clock_, observe::Category::input_wait);
    if (!stream.next(batch_)) return false;
  }
  require(!batch_.x.empty(), ErrorCode::invalid_argument, where_, "the data gave an empty batch");
  {
    const observe::ActivityScope activity("a step");
    // Op by op there is nobody who tells one from the other.
    const observe::TimeScopeOfAll scope(
        clock_, trainer_.runs_eagerly() ? observe::Category::compute : observe::Category::host);
    compute();
  }
  stream.used();
  end_step(1, examples_in(batch_));
  return true;
}

// Where the data is on a GPU and the step one kernel. How many steps were made.
int64_t StepLoop::run_as_one_launch(BatchStream& stream, int64_t most) {
  if (kind_ == StepKind::predict || trainer_.runs_eagerly()) return 0;
  const std::optional<BatchReader::Runs> runs = stream.runs(most);
  if (!runs) return 0;
  const int64_t steps = runs->rows.runs, examples = steps * runs->rows.rows;
  begin_step();
  {
    const observe::TimeScopeOfAll scope(clock_, observe::Category::host);
    if (!trainer_.run_steps(kind_, *runs, where_)) return 0;
  }
  stream.skip(steps);
  end_step(steps, examples);
  return steps;
}

void StepLoop::run(BatchStream& stream, int64_t& step, int64_t steps) {
  const Moments moments = moments_of(kind_);
  const bool logs_wanted = kind_ != StepKind::predict && callbacks_.wants_batch_logs();
  const int64_t asked = trainer_.options().steps_per_execution;
  const int64_t most = callbacks_.needs_every_batch() ? asked : std::max(asked, kStepsPerLaunch);
  const Logs none;
  while (step != steps) {
    // Callbacks hear of the last batch of an execution, as in Keras.
    callbacks_.tell(moments.begin, step, none);
    const int64_t first = step;
    for (int64_t made = 1; made > 0 && step - first < most && step != steps; step += made)
      made = run_as_one_launch(stream, (steps > 0 ? std::min(most, steps - first) : most) - (step - first));
    while (step - first < asked && step != steps && run_one(stream)) ++step;
    if (step == first) {
      if (steps > 0)
        log(LogLevel::warning, "the data ended after ", step, " of ", steps, " steps; it must give ",
            kind_ == StepKind::train ? "steps_per_epoch * epochs" : "as many", " batches");
      break;
    }
    callbacks_.tell(moments.end, step - 1, logs_wanted ? trainer_.results() : none);
    if (kind_ == StepKind::train) callbacks_.tell(&CallbackBase::on_settled);
    if (watch_) watch_(batch_);
    if (stops(false)) return;
  }
  require(
      step > 0 || trainer_.interrupted() || trainer_.stop_training, ErrorCode::invalid_argument, where_,
      "the data gave no batch: the dataset is empty, has ended in an epoch before (it needs repeat()), or "
      "drop_remainder dropped its only batch");
  step_.reset();
  stops(true);
}

}  // namespace lockstep::keras
