// Who is told when gradients of variables are taken outside of replicas, so by a step that runs on one
// device.
#pragma once

#include <source_location>
#include <span>

#include "lockstep/autodiff/gradient_tape.h"

namespace lockstep {

// Called by GradientTape::gradient() before it computes. What it throws, gradient() throws.
using TrainingWatch = void (*)(std::span<const GradientSource> sources, std::source_location where);

// There is one watch, that of src/distribute: strategies know which other devices there are.
class RegisterTrainingWatch {
 public:
  explicit RegisterTrainingWatch(TrainingWatch watch);
};

}  // namespace lockstep
