// An optimizer's state as Keras' files number it.
#pragma once

#include <string>
#include <vector>

#include "keras/saving/stored_weights.h"
#include "lockstep/keras/optimizers.h"

namespace lockstep::keras {

// One numbered value of the file.
struct StoredState {
  Variable variable;  // undefined: Keras keeps something there that Lockstep has no use for
  TensorSpec spec;    // in the file
  std::string name;   // for messages
  // Keras counts batches where gradients are accumulated: updates * `per_update` + `extra`.
  int64_t per_update = 1;
  Variable extra = {};

  Tensor value() const;
  void read(const Tensor& stored, PendingWeights& into) const;
};

// The state of an optimizer whose slots exist for these variables, in this order; of one that was never used,
// what it has.
std::vector<StoredState> stored_state(const optimizers::Optimizer& optimizer,
                                      const std::vector<Variable>& variables);

}  // namespace lockstep::keras
