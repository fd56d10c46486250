// Keras' older files, ".h5": weights, which Keras 2 wrote, and whole models, which Keras 2 and 3 write under
// such a name.
//
//   model_config, training_config    attributes of the file: the model and what it was compiled with, as JSON
//   model_weights/LAYER/...          the weights of each layer of the model, named in the attributes layer_names and weight_names
//   optimizer_weights/...            the optimizer's variables
//
// A file of weights alone has the layers at its top.
#pragma once

#include <source_location>
#include <string>

#include "keras/saving/stored_weights.h"
#include "lockstep/base/json.h"
#include "lockstep/keras/model.h"
#include "train/hdf5.h"

namespace lockstep::keras {

// Whether the file is one of these.
bool is_legacy_hdf5(const train::Hdf5Reader& file);

// The whole model, as Keras 3 writes it; `optimizer`: with what it was compiled with.
std::string written_legacy_hdf5(const Model& model, bool optimizer, std::source_location where);

// The model as Model::from_json() takes it; with what it was compiled with where `compile` says so and the
// file has it. Throws Error(unsupported) for a file of weights alone.
Json read_legacy_config(const train::Hdf5Reader& file, bool compile, std::source_location where);

// The model's weights, layer by layer: the file's first layer with weights is the model's first. Throws
// Error(invalid_argument) that lists all that does not fit; `user` begins the message.
PendingWeights read_legacy_hdf5(const Model& model, const train::Hdf5Reader& file, const char* user,
                                std::source_location where);

// The state of the compiled model's optimizer, whose slots exist. Empty, and said in the log, where it is
// another one's: optimizers of Keras 2 keep other variables.
PendingWeights read_legacy_optimizer(const Model& model, const train::Hdf5Reader& file, const char* user,
                                     std::source_location where);

}  // namespace lockstep::keras
