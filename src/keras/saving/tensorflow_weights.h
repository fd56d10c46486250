// Weights of models in TensorFlow's checkpoints, which name them by the attributes of objects:
// "layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE" is the kernel of the first layer that has weights.
#pragma once

#include <source_location>
#include <string>

#include "keras/saving/stored_weights.h"
#include "lockstep/keras/model.h"
#include "lockstep/train/tensorflow_checkpoint.h"

namespace lockstep::keras {

// What a checkpoint of tf.keras' save_weights(), or of tf.train.Checkpoint(model=...) around such a model,
// has for this one. What else it holds (an optimizer's slots, counters) is left alone. Throws
// Error(invalid_argument) that lists what is missing or of another shape.
PendingWeights read_tensorflow_weights(const Model& model, const train::TensorflowCheckpoint& checkpoint,
                                       const char* user, std::source_location where);

}  // namespace lockstep::keras
