// Keras' weights in HDF5 files: those of Keras 3 (".weights.h5", and "model.weights.h5" of a ".keras" archive) both ways, those
// of Keras 2 (".h5") for reading.
#pragma once

#include <source_location>
#include <string>

#include "keras/saving/stored_weights.h"
#include "lockstep/keras/model.h"
#include "train/hdf5.h"

namespace lockstep::keras {

// A file of the model's weights and, where it is compiled, the optimizer's state.
std::string written_hdf5_weights(const Model& model, std::source_location where);

// What the file has for the model's weights, by structure; everything of the file must have a place in the model. Throws
// Error(invalid_argument) that lists all that is missing, left over or of another shape. `user` begins the message.
PendingWeights read_hdf5_weights(const Model& model, const train::Hdf5Reader& file, const char* user,
                                 std::source_location where);

// The state of the compiled model's optimizer, whose slots exist. Empty where the file has none, or that of
// an optimizer that was never used. Throws Error(invalid_argument) where it is of another optimizer.
PendingWeights read_hdf5_optimizer(const Model& model, const train::Hdf5Reader& file, const char* user,
                                   std::source_location where);

// Whether the file is of Keras 2: weights alone, or a whole model.
bool is_legacy_hdf5(const train::Hdf5Reader& file);
// The model's weights from such a file, layer by layer: the file's first layer with weights is the model's first.
PendingWeights read_legacy_hdf5(const Model& model, const train::Hdf5Reader& file, const char* user,
                                std::source_location where);

}  // namespace lockstep::keras
