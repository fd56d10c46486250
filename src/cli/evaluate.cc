// `lockstep evaluate` and `lockstep predict`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/predictions.h"
#include "cli/trained.h"
#include "lockstep/base/files.h"
#include "lockstep/device/device.h"

namespace lockstep::cli {
namespace {

struct EvaluateFlags {
  std::string run;
  std::string data;
  std::string part = "validation";
  int64_t batch_size = 0;
  int threads = 0;
  std::string output;
  bool json = false;

  RunFile read() const {
    set_logical_cpus({.count = 1, .threads = threads});
    require(!data.empty() || !run.ends_with(".keras"), ErrorCode::invalid_argument,
            std::source_location::current(), "a .keras file names no examples; give them with --data");
    const RunFile trained = read_trained_run(run);
    return data.empty() ? trained : with_data(trained, data);
  }
  UseOptions use() const {
    const Part of_run = part == "train" ? Part::train : Part::validation;
    return {.part = data.empty() ? of_run : Part::all, .batch_size = batch_size};
  }
};

std::shared_ptr<EvaluateFlags> add_flags(CLI::App& command) {
  auto flags = std::make_shared<EvaluateFlags>();
  command
      .add_option("run", flags->run,
                  "The folder that a run left its results in, its run file, or a .keras file")
      ->required();
  CLI::Option* data = command
                          .add_option("--data", flags->data,
                                      "Examples of this file (.csv, .safetensors, .txt) or folder of images, "
                                      "read as the run's own are, of a "
                                      "data set by name, or of \"data\" as a run file has it, in JSON")
                          ->check(path());
  command.add_option("--on", flags->part, "Without --data, the examples of the run: validation or train")
      ->check(CLI::IsMember({"validation", "train"}))
      ->capture_default_str()
      ->excludes(data);
  command.add_option("--batch-size", flags->batch_size, "Examples at a time; left out: the run's")
      ->check(whole_number(1));
  command.add_option("--threads", flags->threads, "Threads to compute with; 0: one per core")
      ->check(whole_number(0, kMostThreads))
      ->capture_default_str();
  return flags;
}

}  // namespace

void add_evaluate(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("evaluate", "Loss and metrics of what `lockstep train` has trained");
  const auto flags = add_flags(*command);
  command->add_flag("--json", flags->json, "Only the result, one JSON object, on standard output");
  command->footer(
      "Examples:\n"
      "  lockstep train run.json --output trained && lockstep evaluate trained\n"
      "  lockstep evaluate trained --data test.csv --json");
  command->callback([flags] {
    const Json results = evaluate_run(flags->read(), flags->use());
    if (flags->json) return print_result(results.dump() + "\n");
    std::string line = !flags->data.empty()     ? "on " + flags->data
                       : flags->part == "train" ? "on the training examples"
                                                : "on the validation examples";
    for (const auto& [name, value] : results.members())
      line += fmt::format(" - {}: {:.4f}", name, value.as_double());
    print_result(line + "\n");
  });
}

void add_predict(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("predict", "Predictions of what `lockstep train` has trained");
  const auto flags = add_flags(*command);
  CLI::Option* output = command
                            ->add_option("--output", flags->output,
                                         "The file to write: .npy, .csv, .jsonl or .safetensors; left "
                                         "out: a line of JSON per example on standard "
                                         "output")
                            ->check(path());
  command
      ->add_flag("--json", flags->json,
                 "What was written, one JSON object on standard output: the file, and each output's shape")
      ->needs(output);
  command->footer(
      "Examples:\n"
      "  lockstep predict trained --data new.csv --output predictions.csv\n"
      "  lockstep predict trained --data new.safetensors > predictions.jsonl\n"
      "  lockstep predict model.keras --data new.safetensors --output predictions.npy");
  command->callback([flags] {
    // What cannot be written shows before anything is computed.
    if (!flags->output.empty()) {
      prediction_format(flags->output);
      at_key("--output", [&] { const AtomicFile writable(flags->output); });
    }
    const train::NamedTensors predictions = predict_run(flags->read(), flags->use());
    if (flags->output.empty()) return print_result(prediction_lines(predictions));
    write_predictions(predictions, flags->output);
    Json shapes = Json::object();
    std::string text;
    for (const auto& [name, prediction] : predictions) {
      const Shape& shape = prediction.shape();
      shapes.set(name, Json::List(shape.begin(), shape.end()));
      text += fmt::format("{} of shape {} written to {}\n", name, shapes.at(name).dump(), flags->output);
    }
    if (flags->json) text = Json::object({{"output", flags->output}, {"shapes", shapes}}).dump() + "\n";
    print_result(text);
  });
}

}  // namespace lockstep::cli
