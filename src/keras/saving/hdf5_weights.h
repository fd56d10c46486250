// Keras' weights in HDF5 files: those of Keras 3, ".weights.h5", and "model.weights.h5" of a ".keras"
// archive.
#pragma once

#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "keras/saving/stored_weights.h"
#include "lockstep/keras/model.h"
#include "train/hdf5.h"

namespace lockstep::keras {

// A file of the model's weights and, where it is compiled and `optimizer` says so, the optimizer's state.
std::string written_hdf5_weights(const Model& model, bool optimizer, std::source_location where);

// What the file has for the model's weights, by structure; everything of the file must have a place in the
// model. Throws Error(invalid_argument) that lists all that is missing, left over or of another shape. `user`
// begins the message.
PendingWeights read_hdf5_weights(const Model& model, const train::Hdf5Reader& file, const char* user,
                                 std::source_location where);

// The state of the compiled model's optimizer, whose slots exist. Empty where the file has none, or that of
// an optimizer that was never used, and, said in the log, where it is of another optimizer or of other
// variables, as after a layer was frozen: it begins anew, as in Keras.
PendingWeights read_hdf5_optimizer(const Model& model, const train::Hdf5Reader& file, const char* user,
                                   std::source_location where);
// The same of these arrays, in the order of Keras' variables; what has no name stays as it is. Throws
// Error(invalid_argument) where they are of another optimizer.
PendingWeights read_optimizer_states(const Model& model, const train::Hdf5Reader& file,
                                     const std::vector<std::string>& arrays, const char* user,
                                     std::source_location where);

// What read() has; empty, and said in the log, where it is refused.
PendingWeights or_anew(const std::function<PendingWeights()>& read);

// How a message begins.
std::string does_not_fit(const char* user, const train::Hdf5Reader& file, const Model& model);

}  // namespace lockstep::keras
