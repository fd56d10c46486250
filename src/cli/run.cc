#include "cli/run.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "cli/run_data.h"
#include "cli/trained.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/errors.h"
#include "lockstep/base/files.h"
#include "lockstep/base/folder_lock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/terminal.h"
#include "lockstep/device/device.h"
#include "lockstep/doctor/doctor.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/run_record.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/event_writer.h"

namespace lockstep::cli {
namespace {

using keras::Logs;
using keras::Model;

void write_text(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path.string());
  file.write(text + "\n");
  file.commit();
}

// Where workers that are not the chief write what it alone has to say.
std::FILE* nowhere() {
  static std::FILE* const file = std::fopen("/dev/null", "w");
  return file ? file : stderr;
}

// step,epoch,loss: every step's own loss, where logs hold means over the epoch.
class StepLog final : public keras::CallbackBase {
 public:
  explicit StepLog(const std::string& path) : file_(path) {}
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  void on_train_batch_end(int64_t, const Logs&) override {
    begin();
    file_.write(fmt::format("{},{},{:.9g}\n", ++step_, epoch_ + 1, model().last_loss()));
  }
  void on_train_end(const Logs&) override { begin(); }

  std::string state_name() const override { return "StepLog"; }
  // Lines that were written after the backup are written again.
  void visit_state(keras::CallbackState& state) override {
    int64_t size = file_.size();
    state("size", size);
    state("step", step_);
    if (!state.restores()) return;
    file_.cut(size);
    begun_ = file_.size() == size && size > 0;
  }

 private:
  void begin() {
    if (std::exchange(begun_, true)) return;
    file_.cut(0);
    file_.write("step,epoch,loss\n");
  }

  GrowingFile file_;
  bool begun_ = false;
  int64_t step_ = 0;
  int epoch_ = 0;
};

// A report that cannot be written any more is a problem to be told of, and no reason to lose a run.
class Reporting final : public keras::CallbackBase {
 public:
  Reporting(std::string flag, keras::Callback report, std::vector<std::string>& problems)
      : flag_(std::move(flag)), report_(std::move(report)), problems_(problems) {}

  void on_train_begin(const Logs& logs) override {
    report_.base()->bind(&model(), params());
    report_.base()->on_train_begin(logs);
  }
  void on_train_end(const Logs& logs) override {
    attempt([&](CallbackBase& report) { report.on_train_end(logs); });
  }
  void on_epoch_begin(int epoch, const Logs& logs) override {
    attempt([&](CallbackBase& report) { report.on_epoch_begin(epoch, logs); });
  }
  void on_epoch_end(int epoch, const Logs& logs) override {
    attempt([&](CallbackBase& report) { report.on_epoch_end(epoch, logs); });
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    attempt([&](CallbackBase& report) { report.on_train_batch_end(batch, logs); });
  }
  bool chief_only() const override { return report_.base()->chief_only(); }
  bool wants_batch_logs() const override { return report_.base()->wants_batch_logs(); }
  bool needs_every_batch() const override { return report_.base()->needs_every_batch(); }
  std::string state_name() const override { return report_.base()->state_name(); }
  void visit_state(keras::CallbackState& state) override { report_.base()->visit_state(state); }

 private:
  using CallbackBase = keras::CallbackBase;

  template <class F>
  void attempt(F&& f) {
    if (failed_) return;
    try {
      f(*report_.base());
    } catch (const errors::UnavailableError&) {
      throw;  // other workers are lost, and no file
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io) throw;
      failed_ = true;
      problems_.push_back(flag_ + ": " + error.message());
      log(LogLevel::error, problems_.back(), "; training goes on without it");
    }
  }

  std::string flag_;
  keras::Callback report_;
  std::vector<std::string>& problems_;
  bool failed_ = false;
};

// A backup is of no use for a run that computes something else: it would be neither run's result.
class SameRun final : public keras::CallbackBase {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;
  explicit SameRun(Settings settings) : settings_(std::move(settings)) {}
  bool needs_every_batch() const override { return false; }
  std::string state_name() const override { return "SameRun"; }
  void visit_state(keras::CallbackState& state) override {
    if (state.restores()) {
      keras::CallbackState::Tensors saved = state.take();
      if (saved.empty()) {
        log(LogLevel::warning,
            "the backup was written by a version that did not record the run's settings and data: whether "
            "they are the same as in this run is not checked");
        return;
      }
      state = keras::CallbackState(std::move(saved));
    }
    for (const auto& [name, value] : settings_) {
      std::string saved = value;
      state(name, saved);
      require(saved == value, ErrorCode::invalid_argument, std::source_location::current(),
              "it is of a run with ", name, " ", saved, ", this one has ", value,
              "; to go on with it, set that back");
    }
  }

 private:
  Settings settings_;
};

// The same with every build of this program, so that a run goes on after an upgrade. It reads the examples
// once, at about the speed of memory.
class Checksum {
 public:
  void add(std::string_view bytes) { sum_ = crc32c(bytes, sum_); }
  void add(const TensorList& tensors) {
    for (const Tensor& tensor : tensors) {
      if (!tensor.defined()) continue;
      dispatch(tensor.dtype(), [&]<class T>() {
        const Elements<T> elements = tensor.numpy<T>();
        add(std::string_view(reinterpret_cast<const char*>(elements.data()), elements.size_bytes()));
      });
    }
  }
  std::string text() const { return fmt::format("of checksum {:08x}", sum_); }

 private:
  uint32_t sum_ = 0;
};

// What decides on a run's bits, but for how many epochs it makes, and on which devices.
SameRun::Settings settings_of(const RunFile& run, const RunData& data) {
  const auto examples = [](const keras::Batch& batch) {
    Checksum sum;
    for (const TensorList& tensors : {batch.x, batch.y, batch.sample_weight}) sum.add(tensors);
    return std::to_string(examples_in(batch)) + " " + sum.text();
  };
  Json written = written_run(run);
  Json fit = written.contains("fit") ? written.at("fit") : Json::object();
  for (const char* open : {"epochs", "verbose"}) fit.erase(open);
  const auto file = [&](const std::string& path) {
    Checksum sum;
    sum.add(read_file(run.resolve(path)));
    return sum.text();
  };
  return {{"seed", std::to_string(run.seed)},
          {"model", run.model.from_json() && run.model.json.is_string() ? file(run.model.json.as_string())
                                                                        : run.model.json.dump()},
          {"compile", written.contains("compile") ? written.at("compile").dump() : "{}"},
          {"fit", fit.dump()},
          {"initial_weights", run.initial_weights.empty() ? "none" : file(run.initial_weights)},
          {"training examples", examples(data.train)},
          {"validation examples", examples(data.validation)}};
}

// Ends a run that cannot recover, with what to do about it.
class StopAtNonsense final : public keras::CallbackBase {
 public:
  bool needs_every_batch() const override { return false; }
  void on_epoch_end(int epoch, const Logs& logs) override {
    const double loss = logs.find("loss").value_or(0);
    require(std::isfinite(loss), ErrorCode::failed_precondition, std::source_location::current(),
            "the loss became ", loss, " in epoch ", epoch + 1, "; use a smaller learning rate");
  }
};

// Whether the model's last layer leaves its results as they are.
bool gives_logits(const Model& model) {
  const std::vector<keras::Layer> layers = model.layers();
  if (layers.empty()) return false;
  const Json config = layers.back().base()->get_config();
  const Json* activation = config.find("activation");
  return activation && *activation == Json("linear");
}

void exclude_from_weight_decay(const std::vector<std::string>& words, const Model& model) {
  if (words.empty()) return;
  std::string known;
  for (const Variable& weight : model.trainable_weights())
    known += (known.empty() ? "" : ", ") + weight.name();
  for (const std::string& word : words)
    require(known.empty() || known.find(word) != std::string::npos, ErrorCode::invalid_argument,
            std::source_location::current(), "compile.exclude_from_weight_decay: no weight has \"", word,
            "\" in its name; there are ", known);
  model.optimizer().exclude_from_weight_decay(words);
}

void compile(const RunFile& run, const Model& model) {
  if (!run.compile) {
    if (model.compiled()) return;
    require(!run.model.from_json(), ErrorCode::invalid_argument, std::source_location::current(),
            "compile: the model's file does not say how to train it; add \"compile\" with at least \"loss\"");
    model.compile({.optimizer = "adam",
                   .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = gives_logits(model)}),
                   .metrics = {"accuracy"}});
    return;
  }
  at_key("compile", [&] { model.compile(run.compile->options("compile")); });
  exclude_from_weight_decay(run.compile->exclude_from_weight_decay, model);
}

// The run as it was carried out, for whoever uses what it left.
Json run_beside_results(RunFile run) {
  run.model.json = "model.json";
  Json json = written_run(run);
  json.set("model", "model.json");
  json.set("output", ".");
  return json;
}

void write_results(const std::filesystem::path& folder, const RunFile& run, const Model& model,
                   const keras::History& history, std::FILE* out) {
  model.save_weights((folder / "weights.safetensors").string());
  write_text(folder / "model.json", model.to_json(2));
  write_text(folder / "history.json", history.to_json().dump(2));
  write_text(folder / "run.json", run_beside_results(run).dump(2));
  terminal::print(
      fmt::format("weights.safetensors, model.json, history.json, run.json and record.json written to {}\n",
                  folder.string()),
      out);
}

// "1 thread", "2 threads"
std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Where the run trains.
Device& first_device(const distribute::Strategy& strategy) {
  return strategy.devices().empty() ? current_device() : *strategy.devices()[0];
}
Json device_names(const distribute::Strategy& strategy) {
  Json names = Json::list();
  for (const Device* device : strategy.devices()) names.push_back(device->name());
  if (strategy.devices().empty()) names.push_back(current_device().name());
  return names;
}

// By which a record knows the run.
keras::callbacks::RunRecordOptions record_options(const RunFile& run, const distribute::Strategy& strategy) {
  keras::callbacks::RunRecordOptions options;
  Json settings = written_run(run);
  for (const char* whereabouts : {"output", "backup"}) settings.erase(whereabouts);
  options.configuration = Json::object({{"run", std::move(settings)},
                                        {"devices", device_names(strategy)},
                                        {"threads_per_device", first_device(strategy).threads()},
                                        {"workers", strategy.num_workers()},
                                        {"reproducible", strategy.options().reproducible}});
  if (!strategy.is_chief()) return options;
  const doctor::Ceilings ceilings = doctor::ceilings(first_device(strategy));
  options.flops_per_second = ceilings.flops_per_second;
  options.half_flops_per_second = ceilings.half_flops_per_second;
  options.bytes_per_second = ceilings.bytes_per_second;
  options.ceiling_is = ceilings.is;
  return options;
}

}  // namespace

Model make_model(const RunFile& run) {
  return at_key("model", [&] {
    const Json& json = run.model.json;
    if (run.model.is_archive()) return keras::models::load_model(run.resolve(json.as_string()));
    if (run.model.from_json())
      return Model::from_json(
          (json.is_string() ? Json::read_file(run.resolve(json.as_string())) : json).dump());
    if (json.is_string()) return keras::applications::make(json.as_string());
    Json options = json;
    options.erase("zoo");
    return keras::applications::make(json.at("zoo").as_string(), options);
  });
}

Json carry_out(const RunFile& run, const distribute::Strategy& strategy, const RunReports& reports) {
  random::set_seed(static_cast<uint64_t>(run.seed));
  require(reports.step_log.empty() || !run.compile || run.compile->steps_per_execution == 1,
          ErrorCode::invalid_argument, std::source_location::current(),
          "compile.steps_per_execution: must be 1 where every step is logged (--step-log), received ",
          run.compile ? run.compile->steps_per_execution : 1);
  // Where there are several workers the chief alone writes files; all have the same callbacks, for they make
  // the same steps. In an elastic run another may be the chief when it ends.
  const auto chief = [&] { return strategy.is_chief(); };
  const auto out = [&] { return chief() ? reports.out : nowhere(); };
  // What cannot be written shows before anything was learnt that would be lost.
  std::vector<std::string> problems;
  std::vector<keras::Callback> callbacks{keras::make_callback<StopAtNonsense>()};
  const auto report = [&](const char* flag, auto make) {
    at_key(flag, [&] { callbacks.push_back(keras::make_callback<Reporting>(flag, make(), problems)); });
  };
  if (!reports.step_log.empty())
    report("--step-log",
           [&] { return keras::make_callback<StepLog>(chief() ? reports.step_log : "/dev/null"); });
  if (!reports.tensorboard.empty())
    report("--tensorboard", [&] {
      if (chief()) {
        const train::EventWriter writable(reports.tensorboard + "/train");
        std::error_code ignored;
        std::filesystem::remove(writable.path(), ignored);
      }
      return keras::callbacks::TensorBoard(reports.tensorboard);
    });
  const std::filesystem::path output = run.output.empty() ? "" : run.resolve(run.output);
  std::optional<FolderLock> output_lock, backup_lock;
  const auto lock_output = [&] {
    if (!output_lock) at_key("output", [&] { output_lock.emplace(output.string()); });
  };
  if (chief() && !output.empty()) lock_output();
  // All workers have it, the chief writes it.
  const std::string record =
      reports.record.empty() && !run.output.empty() ? run.resolve(run.output) : reports.record;
  if (!record.empty())
    report("record.json", [&] { return keras::callbacks::RunRecord(record, record_options(run, strategy)); });
  const std::string backup = run.backup.empty() ? "" : run.resolve(run.backup);
  if (!backup.empty()) {
    if (chief()) at_key("backup", [&] { backup_lock.emplace(backup); });
    // It goes when the results are written: until then there may be a run to go on with.
    callbacks.push_back(keras::callbacks::BackupAndRestore(backup, {.delete_checkpoint = false}));
  }

  const auto scope = strategy.scope();
  const Model model = make_model(run);
  compile(run, model);
  RunData data = load_data(run, model);
  data.train = in_whole_batches(model, data.train, "data");
  data.validation = in_whole_batches(model, data.validation, "data.validation");
  if (!backup.empty()) callbacks.push_back(keras::make_callback<SameRun>(settings_of(run, data)));
  const bool validates = reports.tests && examples_in(data.validation) > 0;
  if (!run.initial_weights.empty())
    at_key("initial_weights", [&] { model.load_weights(run.resolve(run.initial_weights)); });
  const bool replicated = strategy.kind() != distribute::Strategy::Kind::none;
  std::string place = current_device().name();
  if (replicated)
    place = fmt::format("{} ({} each)", counted(static_cast<int64_t>(strategy.devices().size()), "device"),
                        counted(strategy.devices()[0]->threads(), "thread"));
  if (strategy.num_workers() > 1)
    place = fmt::format("{} workers, each with {}", strategy.num_workers(), place);
  terminal::print(fmt::format("{} on {}: {} to learn from, {} to test on\n", model.name(), place,
                              counted(examples_in(data.train), "example"), examples_in(data.validation)),
                  out());

  const FitSettings& fit = run.fit;
  keras::FitOptions options{.batch_size = fit.batch_size,
                            .epochs = static_cast<int>(fit.epochs),
                            .verbose = static_cast<int>(fit.verbose),
                            .callbacks = callbacks,
                            .shuffle = fit.shuffle,
                            .class_weight = fit.class_weight,
                            .initial_epoch = static_cast<int>(fit.initial_epoch),
                            .steps_per_epoch = fit.steps_per_epoch,
                            .validation_steps = fit.validation_steps,
                            .validation_batch_size = fit.validation_batch_size,
                            .validation_freq = static_cast<int>(fit.validation_freq),
                            .report = false};
  if (validates) options.validation_data = data_of(data.validation);
  keras::History history = model.fit(data_of(data.train), options);
  history.time.setting.kind = observe::RunKind::command_line;
  if (!reports.trained.empty()) history.time.trained = reports.trained;
  // Before anything else: a system that wants the machine back does not wait long.
  if (chief() && !output.empty()) {
    lock_output();
    RunFile carried_out = run;
    carried_out.data.source = data.source;
    write_results(output, carried_out, model, history, reports.out);
  }
  if (chief() && !backup.empty() && !history.interrupted) {
    std::error_code ignored;
    std::filesystem::remove(std::filesystem::path(backup) / "backup.safetensors", ignored);
  }

  const int64_t fixed = fixed_batch(model);
  const int64_t test_batch = fixed > 0 ? fixed : std::max<int64_t>(fit.batch_size, 256);
  const Logs logs = reports.tests ? model.evaluate(data_of(validates ? data.validation : data.train),
                                                   {.batch_size = test_batch, .verbose = 0})
                                  : Logs();
  std::string line = !reports.tests ? "" : validates ? "test" : "on the training examples";
  Json result = Json::object();
  if (const auto accuracy = logs.find("accuracy")) result.set("accuracy", *accuracy);
  for (const auto& [name, value] : logs) {
    result.set(name, value);
    line += fmt::format(" - {}: {:.4f}", name, value);
  }
  if (reports.tests) line += "\n";
  const observe::RunReport report_on_time = observe::report_on(history.time);
  bool printed = terminal::print(line, out());
  if (observe::steps(history.time) > 0) printed = observe::print(report_on_time, out()) && printed;
  if (!printed)
    problems.push_back(
        "the figures could not be written to standard output: is the disk full, or the pipe closed?");

  result.set("examples_per_s", observe::examples_per_second(history.time));
  if (strategy.num_workers() > 1) result.set("workers", strategy.num_workers());
  result.set("devices", device_names(strategy));
  result.set("threads_per_device", first_device(strategy).threads());
  result.set("model", model.name());
  result.set("parameters", model.count_params());
  result.set("epochs", static_cast<int64_t>(history.epoch.size()));
  result.set("batch_size", fit.batch_size);
  result.set("seed", run.seed);
  result.set("reproducible", strategy.options().reproducible);
  if (history.interrupted) result.set("interrupted", true), result.set("signal", history.signal);
  if (!problems.empty()) result.set("problems", Json::List(problems.begin(), problems.end()));
  result.set("step_clock", Json::parse(observe::to_json(history.time)));
  result.set("verdicts", Json::parse(observe::to_json(report_on_time.verdicts)));
  return result;
}

}  // namespace lockstep::cli
