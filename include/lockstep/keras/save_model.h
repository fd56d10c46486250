// Models as files, with settings that Model::save() leaves as they are.
#pragma once

#include <source_location>
#include <string>

#include "lockstep/keras/model.h"

namespace lockstep::keras::models {

struct SaveModelOptions {
  bool include_optimizer = true;  // with what the model was compiled with, and the optimizer's state
};

// model.save(path): Keras' .keras, or .h5, its older format.
void save_model(const Model& model, const std::string& path, const SaveModelOptions& options = {},
                std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::models
