// Whether a model's output and its loss agree about logits.
#pragma once

#include "lockstep/keras/model.h"

namespace lockstep::keras {

// Warns, once for the same words, where a loss of probabilities is given logits, or one of logits
// probabilities: either trains, to something worse. The layer that gives the output shows it; of layers that
// say nothing about it, nothing is said.
void warn_of_mistaken_logits(const ModelBase& model, size_t output, const Loss& loss);

}  // namespace lockstep::keras
