// Weights by the names that Hugging Face's files have for them.
#pragma once

#include <optional>
#include <source_location>

#include "keras/saving/stored_weights.h"
#include "lockstep/keras/model.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras::applications {

// The values of a model of this zoo from a file of GPT-2, ViT or ResNet; nullopt where the file is of
// something else. Throws Error(invalid_argument) that lists what does not fit.
std::optional<PendingWeights> read_hugging_face(const Model& model, const train::SafetensorsFile& file,
                                                std::source_location where);

}  // namespace lockstep::keras::applications
