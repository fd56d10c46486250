#include "cli/run.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "cli/run_data.h"
#include "lockstep/device/device.h"
#include "lockstep/keras/applications.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/ops/random.h"

namespace lockstep::cli {
namespace {

using keras::Logs;
using keras::Model;

std::ofstream open_file(const std::string& path) {
  std::ofstream file(path);
  require(file.good(), ErrorCode::io, std::source_location::current(), "cannot write \"", path, "\"");
  return file;
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file = open_file(path.string());
  file << text << '\n';
  require(file.flush().good(), ErrorCode::io, std::source_location::current(), "cannot write \"",
          path.string(), "\"");
}

// step,epoch,loss: every step's own loss, where logs hold means over the epoch.
class StepLog final : public keras::CallbackBase {
 public:
  explicit StepLog(const std::string& path) : file_(open_file(path)) { file_ << "step,epoch,loss\n"; }
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  void on_train_batch_end(int64_t, const Logs&) override {
    file_ << fmt::format("{},{},{:.9g}\n", ++step_, epoch_ + 1, model().last_loss());
  }
  void on_train_end(const Logs&) override { file_.flush(); }

 private:
  std::ofstream file_;
  int64_t step_ = 0;
  int epoch_ = 0;
};

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

void compile(const RunFile& run, const Model& model, std::FILE* out) {
  const bool logits = gives_logits(model);
  if (!run.compile) {
    if (model.compiled()) return;
    require(!run.model.from_json(), ErrorCode::invalid_argument, std::source_location::current(),
            "compile: the model's JSON does not say how to train it; add \"compile\" with at least \"loss\"");
    model.compile({.optimizer = "adam",
                   .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = logits}),
                   .metrics = {"accuracy"}});
    return;
  }
  const keras::CompileOptions options = run.compile->options("compile");
  if (logits && options.loss.single()) {
    const Json loss = options.loss.list()[0].serialize();
    const Json* config = loss.find("config");
    const Json* from_logits = config ? config->find("from_logits") : nullptr;
    if (from_logits && *from_logits == Json(false))
      fmt::print(out,
                 "compile.loss: \"{}\" takes probabilities, but the model's last layer gives logits; "
                 "say {{\"class_name\": ..., \"config\": {{\"from_logits\": true}}}} or add a softmax\n",
                 options.loss.list()[0].name());
  }
  at_key("compile", [&] { model.compile(options); });
}

void write_results(const RunFile& run, const Model& model, const keras::History& history, std::FILE* out) {
  if (run.output.empty()) return;
  const std::filesystem::path folder = run.resolve(run.output);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, ErrorCode::io, std::source_location::current(), "output: cannot make the folder \"",
          folder.string(), "\": ", error.message());
  model.save_weights((folder / "weights.safetensors").string());
  write_text(folder / "model.json", model.to_json(2));
  write_text(folder / "history.json", history.to_json().dump(2));
  fmt::print(out, "weights.safetensors, model.json and history.json written to {}\n", folder.string());
}

// Where the run trains.
Json device_names(const distribute::Strategy& strategy) {
  Json names = Json::list();
  for (const Device* device : strategy.devices()) names.push_back(device->name());
  if (strategy.devices().empty()) names.push_back(current_device().name());
  return names;
}

}  // namespace

Model make_model(const RunFile& run) {
  return at_key("model", [&] {
    const Json& json = run.model.json;
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
  const auto scope = strategy.scope();
  const Model model = make_model(run);
  compile(run, model, reports.out);
  const RunData data = load_data(run, model);
  const int64_t train_count = data.train.x.shape()[0];
  const bool validates = data.validation.x.defined();
  if (!run.initial_weights.empty())
    at_key("initial_weights", [&] { model.load_weights(run.resolve(run.initial_weights)); });
  const bool replicated = strategy.kind() != distribute::Strategy::Kind::none;
  fmt::print(reports.out, "{} on {}: {} examples to learn from, {} to test on\n", model.name(),
             replicated ? fmt::format("{} devices ({} threads each)", strategy.devices().size(),
                                      strategy.devices()[0]->threads())
                        : current_device().name(),
             train_count, validates ? data.validation.x.shape()[0] : int64_t{0});

  const FitSettings& fit = run.fit;
  keras::FitOptions options{.batch_size = fit.batch_size,
                            .epochs = static_cast<int>(fit.epochs),
                            .verbose = static_cast<int>(fit.verbose),
                            .shuffle = fit.shuffle,
                            .class_weight = fit.class_weight,
                            .initial_epoch = static_cast<int>(fit.initial_epoch),
                            .steps_per_epoch = fit.steps_per_epoch,
                            .validation_steps = fit.validation_steps,
                            .validation_batch_size = fit.validation_batch_size,
                            .validation_freq = static_cast<int>(fit.validation_freq)};
  if (validates) options.validation_data = data.validation;
  options.callbacks.push_back(keras::make_callback<StopAtNonsense>());
  if (!reports.step_log.empty()) options.callbacks.push_back(keras::make_callback<StepLog>(reports.step_log));
  if (!reports.tensorboard.empty())
    options.callbacks.push_back(keras::callbacks::TensorBoard(reports.tensorboard));
  const keras::History history = model.fit(data.train, options);

  const int64_t test_batch = std::max<int64_t>(fit.batch_size, 256);
  const Logs figures =
      model.evaluate(validates ? data.validation : data.train, {.batch_size = test_batch, .verbose = 0});
  std::string line = validates ? "test" : "on the training examples";
  Json result = Json::object();
  if (const auto accuracy = figures.find("accuracy")) result.set("accuracy", *accuracy);
  for (const auto& [name, value] : figures) {
    result.set(name, value);
    line += fmt::format(" - {}: {:.4f}", name, value);
  }
  fmt::print(reports.out, "{}\n", line);
  if (observe::steps(history.time) > 0) observe::print(observe::report_on(history.time), reports.out);
  write_results(run, model, history, reports.out);

  result.set("examples_per_s", observe::examples_per_second(history.time));
  result.set("devices", device_names(strategy));
  result.set("threads_per_device", (replicated ? *strategy.devices()[0] : current_device()).threads());
  result.set("model", model.name());
  result.set("parameters", model.count_params());
  result.set("epochs", static_cast<int64_t>(history.epoch.size()));
  result.set("batch_size", fit.batch_size);
  result.set("seed", run.seed);
  result.set("reproducible", strategy.options().reproducible);
  if (history.interrupted) result.set("interrupted", true);
  result.set("step_clock", Json::parse(observe::to_json(history.time)));
  return result;
}

}  // namespace lockstep::cli
