// The record of a run, kept up to date while it goes on.
#include "lockstep/keras/run_record.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "comm/workers.h"
#include "device/backend_facts.h"
#include "distribute/worker_summaries.h"
#include "keras/training/fit_run.h"
#include "keras/training/trainer.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host.h"
#include "lockstep/base/log.h"
#include "lockstep/keras/model.h"
#include "lockstep/observe/run_record.h"
#include "observe/record_parts.h"
#include "observe/record_writer.h"

namespace lockstep::keras::callbacks {
namespace {

using Record = observe::RunRecord;
using State = Record::State;
using distribute::WorkerStatistics;

constexpr int64_t kSecond = 1'000'000'000;
// How often the clock is looked at: less often as the run grows.
constexpr int64_t kFirstLookNs = kSecond / 50, kLookNs = kSecond / 5;
constexpr int64_t kSendNs = kSecond;  // between two that a worker sends to the chief
constexpr int64_t kCloseLooks = 128;  // batches
constexpr int64_t kTraceFrom = 4, kTracedSteps = 3;
constexpr int64_t kEventsPerThread = 1 << 14;  // a MiB
constexpr size_t kMostPoints = 1000;           // of a curve

Json versions() {
  Json all = Json::object({{"lockstep", LOCKSTEP_VERSION}, {"compiler", __VERSION__}});
  for (const BackendFacts& backend : describe_backends())
    for (const auto& [name, value] : backend.facts) all.set(backend.name + ": " + name, value);
  return all;
}

Record::Stage stage_of(const data::StageExplanation& stage) {
  Record::Stage made{.name = stage.name,
                     .arguments = stage.arguments,
                     .where = stage.where,
                     .elements = stage.elements,
                     .elements_per_s = stage.elements_per_s,
                     .self_ns = stage.self_ns,
                     .busy = stage.busy,
                     .threads = stage.threads,
                     .slots = stage.slots,
                     .ready = stage.ready,
                     .waited = stage.waited};
  for (const data::StageExplanation& input : stage.inputs) made.inputs.push_back(stage_of(input));
  return made;
}

Record::Input input_of(const data::Explanation& explanation) {
  return {.seconds = explanation.seconds,
          .elements = explanation.elements,
          .consumer = explanation.consumer,
          .root = stage_of(explanation.root),
          .bottleneck = explanation.bottleneck,
          .where = explanation.where,
          .cause = explanation.cause,
          .fix = explanation.fix,
          .speedup = explanation.speedup};
}

// A trace of a few steps, of a program that does not trace itself.
class ShortTrace {
 public:
  ~ShortTrace() {
    if (traces_) observe::stop_tracing();
  }
  // `steps`: made so far. True when the trace is there.
  bool step(int64_t steps) {
    if (done_ || steps < kTraceFrom) return false;
    if (!traces_) {
      done_ = observe::tracing();
      if (done_) return false;
      traces_ = true;
      from_ = steps;
      observe::start_tracing({.events_per_thread = kEventsPerThread});
      return false;
    }
    if (steps - from_ < kTracedSteps) return false;
    observe::stop_tracing();
    traces_ = false;
    done_ = true;
    return true;
  }
  int64_t from() const { return from_; }

 private:
  bool traces_ = false, done_ = false;
  int64_t from_ = 0;
};

// What devices hold over time, by use.
class MemoryOverTime {
 public:
  void sample(int64_t ms, const std::vector<observe::MemorySummary>& devices) {
    devices_.resize(std::max(devices_.size(), devices.size()), Device{});
    for (size_t d = 0; d < devices.size(); ++d) {
      Device& device = devices_[d];
      if (!device.samples.wants(ms)) continue;
      std::vector<int64_t> bytes(device.uses.size());
      for (const observe::MemorySummary::Use& use : devices[d].uses) {
        const auto found = std::find(device.uses.begin(), device.uses.end(), use.name);
        const auto index = static_cast<size_t>(found - device.uses.begin());
        if (found == device.uses.end()) device.uses.push_back(use.name), bytes.push_back(0);
        bytes[index] = use.after;
      }
      device.samples.add(ms, {ms, std::move(bytes)});
    }
  }

  Record::Memory of(size_t device, const observe::MemorySummary& summary) const {
    Record::Memory memory{
        .device = summary.device, .peak = summary.peak, .limit = summary.limit, .reserved = summary.reserved};
    if (device >= devices_.size()) return memory;
    memory.uses = devices_[device].uses;
    memory.samples = devices_[device].samples.points();
    // Uses that came later were not there before.
    for (Record::MemorySample& sample : memory.samples) sample.bytes.resize(memory.uses.size());
    return memory;
  }

 private:
  struct Device {
    std::vector<std::string> uses = {};
    observe::ThinnedPoints<Record::MemorySample> samples{128, 100};
  };
  std::vector<Device> devices_;
};

// What is known of the run that goes on.
struct Run {
  Record record;  // all that is not made anew for every snapshot
  int64_t began_ns = 0, next_look_ns = 0, next_write_ns = 0, next_send_ns = 0;
  int epoch = 0;
  int64_t last_batch = -1;
  int64_t steps = 0;  // made here
  int64_t told = 0;
  std::optional<observe::StepHistory> history;
  ShortTrace trace;
  MemoryOverTime memory;
  observe::ThinnedPoints<Record::Loss> losses{512, 1};
  std::vector<int64_t> epochs;
  std::map<std::string, std::vector<double>> curves;
  std::vector<std::string> curve_order;
  WorkerStatistics before;                                  // a restart, by replica of all workers
  std::optional<distribute::AllWorkersStatistics> workers;  // of several, as far as they are known here
};

class RunRecordCallback final : public CallbackBase {
 public:
  RunRecordCallback(std::string folder, const RunRecordOptions& options)
      : folder_(std::move(folder)), options_(options) {
    require(!folder_.empty(), ErrorCode::invalid_argument, std::source_location::current(),
            "RunRecord: the folder is empty");
    require(options.configuration.is_object(), ErrorCode::invalid_argument, std::source_location::current(),
            "RunRecord: the configuration must be an object, received ", options.configuration);
  }

  // Where training has ended otherwise than by on_train_end().
  ~RunRecordCallback() override {
    if (!writer_) return;
    try {
      Record record = writer_->last();
      record.state = State::failed;
      record.updated_ms = milliseconds_since_1970();
      writer_->write(record);
    } catch (const std::exception& error) {
      log(LogLevel::warning, "RunRecord: that the run has failed could not be written: ", error.what());
    }
  }

  bool needs_every_batch() const override { return false; }
  std::string state_name() const override { return "RunRecord"; }

  void on_train_begin(const Logs&) override {
    run_.emplace();
    Record& record = run_->record;
    record.model = model().name();
    record.host = host_name();
    record.process = getpid();
    record.started_ms = record.updated_ms = milliseconds_since_1970();
    record.epochs = params().epochs;
    record.steps_per_epoch = params().steps;
    record.configuration = options_.configuration;
    record.versions = versions();
    run_->began_ns = monotonic_ns();
    run_->next_write_ns = run_->began_ns + kSecond;
  }

  void on_epoch_begin(int epoch, const Logs&) override {
    Run& run = *run_;
    run.epoch = epoch;
    run.last_batch = -1;
    // What cannot be written is to be known before there is anything to lose.
    if (chief() && !writer_) {
      if (!run.history) earlier_ = earlier_record();
      writer_.emplace(folder_);
      Record first = earlier_ ? *earlier_ : run.record;
      first.state = State::running;
      first.host = run.record.host;
      first.process = run.record.process;
      first.updated_ms = run.record.updated_ms;
      attempt([&] { writer_->write(first); });
    }
  }

  void on_train_batch_end(int64_t batch, const Logs&) override {
    Run& run = *run_;
    int64_t made = batch - std::exchange(run.last_batch, batch);
    if (!run.history) begin_history(batch, made);
    run.record.step += made;
    run.steps += made;
    if (writer_ && run.trace.step(run.steps)) take_trace();
    const int64_t now = monotonic_ns();
    const bool close = ++run.told <= kCloseLooks && (run.told & (run.told - 1)) == 0;
    if (!close && now < run.next_look_ns) return;
    look(now);
    const auto& workers = trainer().strategy().workers();
    if (workers && !chief() && now >= run.next_send_ns) {
      run.next_send_ns = now + kSendNs;
      distribute::send_statistics(*workers, own_statistics());
    }
    if (now < run.next_write_ns || !chief() || !writer_) return;
    run.next_write_ns = now + std::clamp((now - run.began_ns) / 64, kSecond, 10 * kSecond);
    if (workers) take_workers(distribute::latest_statistics(*workers, own_statistics()));
    attempt([&] { writer_->hand_over(snapshot()); });
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    Run& run = *run_;
    if (run.history) look(monotonic_ns());
    run.record.epoch = epoch + 1;
    run.epochs.push_back(epoch);
    for (const auto& [name, value] : logs) {
      std::vector<double>& values = run.curves[name];
      if (values.empty()) run.curve_order.push_back(name);
      values.resize(run.epochs.size() - 1, std::numeric_limits<double>::quiet_NaN());
      values.push_back(value);
    }
    if (!chief() || !writer_) return;
    if (const auto& workers = trainer().strategy().workers())
      take_workers(distribute::latest_statistics(*workers, own_statistics()));
    attempt([&] { writer_->hand_over(snapshot()); });
  }

  void on_train_end(const Logs&) override {
    Run& run = *run_;
    if (run.history) look(monotonic_ns());
    if (const auto& workers = trainer().strategy().workers())
      take_workers(distribute::gather_statistics(*workers, own_statistics()));
    run.record.state = trainer().interrupted() ? State::interrupted : State::finished;
    if (chief() && writer_) attempt([&] { writer_->write(snapshot()); });
    writer_.reset();
  }

 private:
  Trainer& trainer() const { return model().model_base().trainer(); }
  bool chief() const { return trainer().strategy().is_chief(); }

  // A record that cannot be written any more is left as it is.
  template <class F>
  void attempt(F write) {
    try {
      write();
    } catch (...) {
      writer_.reset();
      throw;
    }
  }

  // Where the run goes on from a backup, or with an initial epoch: what it had left before.
  std::optional<Record> earlier_record() const {
    if (run_->epoch == 0 && !trainer().control().resume) return std::nullopt;
    try {
      Record record = observe::read_record(folder_);
      if (record.model == run_->record.model) return record;
    } catch (const Error&) {
      // There is none, or none that this version reads: the record begins here.
    }
    return std::nullopt;
  }

  void begin_history(int64_t batch, int64_t& made) {
    Run& run = *run_;
    // The clock counts from this fit's first step, the record from the run's.
    const int64_t made_here = std::max<int64_t>(1, steps_timed());
    const int64_t before = std::max<int64_t>(0, batch + 1 - made_here);
    run.record.step = before + (params().steps > 0 ? run.epoch * params().steps : earlier_steps());
    made = std::min(made, made_here);
    if (earlier_) take_over(*earlier_);
    earlier_.reset();
    run.history.emplace(trainer().clock(), run.record.step, run.began_ns);
  }
  int64_t steps_timed() const {
    const std::vector<observe::StepRecord> recent = trainer().clock().replica(0).recent();
    return recent.empty() ? 0 : recent.back().index + recent.back().steps;
  }
  int64_t earlier_steps() const { return earlier_ ? earlier_->step : 0; }

  // What the record that lies there says of the epochs and steps before this run's first.
  void take_over(const Record& earlier) {
    Run& run = *run_;
    run.began_ns -= (run.record.started_ms - earlier.started_ms) * 1'000'000;
    run.record.started_ms = earlier.started_ms;
    for (size_t i = 0; i < earlier.history_epochs.size(); ++i) {
      if (earlier.history_epochs[i] >= run.epoch) break;
      run.epochs.push_back(earlier.history_epochs[i]);
      for (const Record::Curve& curve : earlier.curves) {
        std::vector<double>& values = run.curves[curve.name];
        if (values.empty()) run.curve_order.push_back(curve.name);
        values.push_back(curve.values[i]);
      }
    }
    for (const Record::Loss& loss : earlier.losses)
      if (loss.step <= run.record.step && run.losses.wants(loss.step)) run.losses.add(loss.step, loss);
    // Categories of another version are known by their names.
    std::vector<size_t> category(earlier.categories.size(), observe::kCategories);
    for (size_t from = 0; from < category.size(); ++from)
      for (size_t c = 0; c < observe::kCategories; ++c)
        if (earlier.categories[from] == name(static_cast<observe::Category>(c))) category[from] = c;
    run.before.width = earlier.interval_steps;
    for (const Record::Replica& replica : earlier.replicas) {
      observe::Intervals& intervals = run.before.replicas.emplace_back();
      for (const Record::Interval& interval : replica.intervals) {
        if (interval.first_step + earlier.interval_steps > run.record.step) break;
        intervals.push_back(interval);
        intervals.back().times_ns.assign(observe::kCategories, 0);
        for (size_t from = 0; from < category.size(); ++from)
          if (category[from] < observe::kCategories)
            intervals.back().times_ns[category[from]] += interval.times_ns[from];
      }
    }
  }

  void look(int64_t now) {
    Run& run = *run_;
    run.next_look_ns = now + std::clamp((now - run.began_ns) / 50, kFirstLookNs, kLookNs);
    run.history->look(trainer().clock());
    if (run.losses.wants(run.record.step))
      run.losses.add(run.record.step, {run.record.step, model().last_loss()});
    if (const FitRun* fit = trainer().run())
      run.memory.sample((now - run.began_ns) / 1'000'000, fit->memory());
  }

  void take_trace() {
    Run& run = *run_;
    const observe::Trace trace = observe::take_trace();
    run.record.timeline = observe::timeline_of(trace);
    run.record.timeline->first_step = run.record.step - run.steps + run.trace.from();
    run.record.kernels = observe::kernels_of(trace);
    run.record.kernels->flops_per_second = options_.flops_per_second;
    run.record.kernels->half_flops_per_second = options_.half_flops_per_second;
    run.record.kernels->bytes_per_second = options_.bytes_per_second;
    run.record.kernels->ceiling_is = options_.ceiling_is;
  }

  WorkerStatistics own_statistics() const {
    const Run& run = *run_;
    WorkerStatistics own;
    if (const FitRun* fit = trainer().run()) own.summary = fit->summary();
    if (run.history) {
      own.width = run.history->width();
      own.replicas = run.history->replicas();
    }
    return own;
  }

  void take_workers(std::optional<distribute::AllWorkersStatistics> all) {
    if (!all) return;
    run_->record.others_ms = milliseconds_since_1970() - static_cast<int64_t>(all->age_s * 1000);
    run_->workers = std::move(all);
  }

  // The steps of all workers, by replica: those before a restart, then those that were timed since.
  WorkerStatistics steps_of_all() const {
    const Run& run = *run_;
    WorkerStatistics all;
    const auto add = [&](const WorkerStatistics& part) {
      all.width = std::max(all.width, part.width);
      all.replicas.insert(all.replicas.end(), part.replicas.begin(), part.replicas.end());
    };
    if (run.workers)
      for (const WorkerStatistics& worker : run.workers->workers) add(worker);
    else
      add(own_statistics());
    all.width = std::max(all.width, run.before.width);
    for (size_t r = 0; r < std::min(all.replicas.size(), run.before.replicas.size()); ++r) {
      const observe::Intervals& before = run.before.replicas[r];
      all.replicas[r].insert(all.replicas[r].begin(), before.begin(), before.end());
    }
    return all;
  }

  Record snapshot() const {
    const Run& run = *run_;
    Record record = run.record;
    record.updated_ms = milliseconds_since_1970();
    const FitRun* fit = trainer().run();
    const observe::RunSummary own = fit ? fit->summary() : observe::RunSummary();
    const observe::RunSummary& summary = run.workers ? run.workers->summary : own;
    observe::add_summary(record, summary);
    WorkerStatistics steps = steps_of_all();
    observe::add_intervals(record, std::move(steps.replicas), steps.width, run.workers.has_value(), summary);
    for (size_t d = 0; d < own.memory.size(); ++d) record.memory.push_back(run.memory.of(d, own.memory[d]));
    if (run.workers)  // what other workers hold is known at its peak
      for (size_t d = own.memory.size(); d < summary.memory.size(); ++d)
        record.memory.push_back(MemoryOverTime().of(0, summary.memory[d]));
    if (fit)
      if (const std::optional<data::Explanation> input = fit->explain_input())
        record.input = input_of(*input);
    record.losses = run.losses.points();
    // Thinned out from the end, so that the last epoch is there.
    const size_t stride = run.epochs.size() / kMostPoints + 1;
    std::vector<size_t> shown;
    for (size_t i = run.epochs.size(); i > 0; i -= std::min(i, stride)) shown.push_back(i - 1);
    std::reverse(shown.begin(), shown.end());
    for (const size_t i : shown) record.history_epochs.push_back(run.epochs[i]);
    for (const std::string& name : run.curve_order) {
      const std::vector<double>& values = run.curves.at(name);
      Record::Curve& curve = record.curves.emplace_back(Record::Curve{name, {}});
      for (const size_t i : shown)
        curve.values.push_back(i < values.size() ? values[i] : std::numeric_limits<double>::quiet_NaN());
    }
    return record;
  }

  std::string folder_;
  RunRecordOptions options_;
  std::optional<Run> run_;
  std::optional<Record> earlier_;
  std::optional<observe::RecordWriter> writer_;  // at the chief
};

}  // namespace

Callback RunRecord(const std::string& folder, const RunRecordOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_callback<RunRecordCallback>(folder, options);
}

}  // namespace lockstep::keras::callbacks
