// Optimizers by name.
#pragma once

#include "lockstep/keras/optimizers.h"

namespace lockstep::keras::optimizers {

// A bare name, whatever its case, or Keras' {"class_name", "config"}.
Optimizer optimizer_from_json(const Json& json, std::source_location where);

// LossScaleOptimizer's "config".
Optimizer loss_scale_from_config(const Json& config);

}  // namespace lockstep::keras::optimizers
