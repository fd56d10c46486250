// What a run has left in its output folder, used: evaluated and asked for predictions.
#pragma once

#include <optional>
#include <string>

#include "cli/run_file.h"
#include "lockstep/keras/model.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::cli {

// The batch that a stateful model was built for, which is the only one it takes; -1 for other models.
int64_t fixed_batch(const keras::Model& model);

// What fills batches of that size: examples at the end that do not are left out, and it is said of `key`. Of
// models that take any batch: all.
keras::Batch in_whole_batches(const keras::Model& model, const keras::Batch& examples, const char* key);

// A run that has ended, by the run file that was trained, or by the folder that it left its results in (where
// run.json is); or a model that was trained elsewhere, by its .keras file, which names no examples. Throws
// Error that names the file or the key which is missing.
RunFile read_trained_run(const std::string& path);

// The model of the run's output folder with the weights that training ended with, compiled as it was for
// training. Throws Error that names the key or the file where there is none.
keras::Model trained_model(const RunFile& run);

// The same run on other examples: those of a file, which is read as the run's own are where it is of the same
// kind, of a folder of images, or of "data" as a run file has it (JSON, or the name of a data set). There,
// relative paths start at the current folder.
RunFile with_data(RunFile run, const std::string& data);

enum class Part { all, validation, train };  // of the run's data

struct UseOptions {
  Part part = Part::validation;
  int64_t batch_size = 0;  // 0: the run's
};

// Loss and metrics over these examples.
Json evaluate_run(const RunFile& run, const UseOptions& options = {});

// What the model gives for these examples: "prediction", or by the names of its outputs where there are
// several.
train::NamedTensors predict_run(const RunFile& run, const UseOptions& options = {});

}  // namespace lockstep::cli
