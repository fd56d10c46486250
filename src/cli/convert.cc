// `lockstep convert`.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/trained.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/device/device.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/onnx.h"

namespace lockstep::cli {
namespace {

keras::Model read_model(const std::string& path) {
  if (is_folder(path) && !file_exists(path + "/run.json") && file_exists(path + "/config.json")) {
    // Keras' unpacked archives have a config.json, too.
    if (file_exists(path + "/model.safetensors")) return keras::applications::from_hugging_face(path);
    return keras::models::load_model(path);
  }
  if (path.ends_with(".onnx")) return keras::models::import_onnx(path);
  return trained_model(read_trained_run(path));
}

}  // namespace

void add_convert(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("convert", "Write a trained model as a file of another kind");
  struct Settings {
    std::string from, to;
  };
  auto settings = std::make_shared<Settings>();
  command
      ->add_option("from", settings->from,
                   "The folder that a run left its results in, a .keras or .onnx file, or a folder of "
                   "Hugging Face's hub "
                   "(config.json, model.safetensors)")
      ->required();
  command
      ->add_option("to", settings->to,
                   "The file to write: .keras (the whole model), .onnx (what it computes), .weights.h5 or "
                   ".safetensors (its "
                   "weights)")
      ->required();
  command->footer(
      "Examples:\n"
      "  lockstep convert trained model.keras\n"
      "  lockstep convert gpt2 gpt2.keras");
  command->callback([settings] {
    const std::string& to = settings->to;
    require(to.ends_with(".keras") || to.ends_with(".onnx") || to.ends_with(".weights.h5") ||
                to.ends_with(".safetensors"),
            ErrorCode::invalid_argument, std::source_location::current(), "to: \"", to,
            "\" must end in .keras, .onnx, .weights.h5 or .safetensors");
    set_logical_cpus({.count = 1});
    const keras::Model model = read_model(settings->from);
    if (to.ends_with(".keras"))
      model.save(to);
    else if (to.ends_with(".onnx"))
      keras::models::export_onnx(model, to);
    else
      model.save_weights(to);
    print_result(model.name() + " written to " + to + "\n");
  });
}

}  // namespace lockstep::cli
