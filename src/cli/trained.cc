#include "cli/trained.h"

#include <algorithm>
#include <filesystem>

#include "cli/run_data.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"

namespace lockstep::cli {
namespace {

using keras::Batch;

std::string left_by_training(const RunFile& run, const char* name) {
  require(!run.output.empty(), ErrorCode::invalid_argument, std::source_location::current(),
          "output: the run names no folder for what it learns; train it with \"output\", or with --output "
          "FOLDER, and give that folder instead of the file");
  const std::string path = (std::filesystem::path(run.resolve(run.output)) / name).string();
  require(file_exists(path), ErrorCode::not_found, std::source_location::current(), "output: there is no \"",
          path, "\"; `lockstep train` writes it when the run has ended");
  return path;
}

bool keeps_states(const keras::Layer& layer) {
  const Json config = layer.base()->get_config();
  const Json* stateful = config.find("stateful");
  if (stateful && *stateful == Json(true)) return true;
  const std::vector<keras::Layer> inside = layer.layers();
  return std::any_of(inside.begin(), inside.end(), keeps_states);
}

int64_t batch_size(const RunFile& run, const keras::Model& model, const UseOptions& options) {
  const int64_t fixed = fixed_batch(model);
  if (fixed > 0) return fixed;
  return options.batch_size > 0 ? options.batch_size : run.fit.batch_size;
}

Batch examples_of(const RunFile& run, const keras::Model& model, Part part, bool labels) {
  const RunData data = load_data(run, model, {.labels = labels, .shuffle = part != Part::all});
  if (part != Part::validation) return in_whole_batches(model, data.train, "data");
  require(examples_in(data.validation) > 0, ErrorCode::invalid_argument, std::source_location::current(),
          "data: the run holds back no examples to test on (\"validation\", \"validation_split\"); use those "
          "that it learns from, --on train, or others, --data FILE");
  return in_whole_batches(model, data.validation, "data.validation");
}

// The kind of source that files of this name are.
Source source_by_name(const std::string& path) {
  const auto ends = [&](std::string_view ending) { return path.ends_with(ending); };
  if (is_folder(path)) return ImageFolderSource();
  if (ends(".csv") || ends(".csv.gz") || ends(".tsv"))
    return CsvSource{.separator = ends(".tsv") ? "\t" : ","};
  if (ends(".safetensors")) return SafetensorsSource();
  if (ends(".txt")) return TextSource();
  fail(ErrorCode::invalid_argument, std::source_location::current(), "--data ", path,
       ": expected a file that ends in .csv, .safetensors or .txt, a folder of images, the name of a data "
       "set (",
       join(BuiltinSource::names()), "), or \"data\" as a run file has it: '{\"csv\": ...}'");
}

}  // namespace

int64_t fixed_batch(const keras::Model& model) {
  const keras::KerasTensorList inputs = model.model_base().inputs();
  return !inputs.empty() && keeps_states(model) ? inputs[0].shape()[0] : -1;
}

Batch in_whole_batches(const keras::Model& model, const Batch& examples, const char* key) {
  const int64_t batch = fixed_batch(model), count = examples_in(examples);
  if (batch <= 0 || count == 0 || count % batch == 0) return examples;
  require(count >= batch, ErrorCode::invalid_argument, std::source_location::current(), key,
          ": the model is stateful and takes batches of ", batch, " examples; there are ", count);
  log(LogLevel::warning, key, ": the model is stateful and takes batches of ", batch, " examples: the last ",
      count % batch, " of ", count, " do not fill one and are left out");
  return rows(examples, 0, count - count % batch);
}

RunFile read_trained_run(const std::string& path) {
  if (path.ends_with(".keras")) {
    RunFile run;
    run.model.json = absolute_path("", path);
    return run;
  }
  if (!is_folder(path)) return read_run_file(path);
  const std::string run = (std::filesystem::path(path) / "run.json").string();
  require(file_exists(run), ErrorCode::not_found, std::source_location::current(), "\"", path,
          "\" holds no run.json, so no run has left its results there; `lockstep train --output` names a "
          "folder for them");
  return read_run_file(run);
}

keras::Model trained_model(const RunFile& run) {
  if (run.output.empty() && run.model.is_archive())
    return keras::models::load_model(run.resolve(run.model.json.as_string()));
  const std::string weights = left_by_training(run, "weights.safetensors");
  const keras::Model model =
      keras::Model::from_json(Json::read_file(left_by_training(run, "model.json")).dump());
  model.load_weights(weights);
  return model;
}

RunFile with_data(RunFile run, const std::string& data) {
  const std::vector<std::string>& known = BuiltinSource::names();
  run.data.options.validation.reset();
  run.data.options.validation_split = 0;
  run.data.options.validation_random = false;
  if (data.starts_with('{') || std::find(known.begin(), known.end(), data) != known.end()) {
    const Source trained = run.data.source;
    run.data.read(data.starts_with('{') ? Json::parse(data, "--data") : Json(data), "--data");
    run.data.options.validation.reset();
    // Paths are absolute in what is written.
    SourceSettings source{read_like(run.data.source, trained)};
    source.read(source.write(""), "--data");
    run.data.source = source.source;
    return run;
  }
  Source source = source_by_name(data);
  if (source.index() == run.data.source.index()) source = run.data.source;
  const std::string path = absolute_path("", data);
  std::visit(
      [&](auto& chosen) {
        if constexpr (requires { chosen.path; }) chosen.path = path;
      },
      source);
  run.data.source = source;
  return run;
}

Json evaluate_run(const RunFile& run, const UseOptions& options) {
  const keras::Model model = trained_model(run);
  const keras::Logs logs = model.evaluate(data_of(examples_of(run, model, options.part, true)),
                                          {.batch_size = batch_size(run, model, options), .verbose = 0});
  Json result = Json::object();
  for (const auto& [name, value] : logs) result.set(name, value);
  return result;
}

train::NamedTensors predict_run(const RunFile& run, const UseOptions& options) {
  const keras::Model model = trained_model(run);
  const Batch examples = examples_of(run, model, options.part, false);
  const TensorList results = model.predict_all(keras::Data(examples.x),
                                               {.batch_size = batch_size(run, model, options), .verbose = 0});
  if (results.size() == 1) return {{"prediction", results[0]}};
  const std::vector<std::string> names = model.model_base().output_names(results.size());
  train::NamedTensors predictions;
  for (size_t i = 0; i < results.size(); ++i) predictions.emplace_back(names[i], results[i]);
  return predictions;
}

}  // namespace lockstep::cli
