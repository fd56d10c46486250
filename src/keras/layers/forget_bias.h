// How the bias of an LSTM's four gates begins.
#pragma once

#include "lockstep/keras/initializers.h"

namespace lockstep::keras::layers {

// 1 for the forget gate, the second of the four; the others as `others` says.
Initializer forget_bias(const Initializer& others);

}  // namespace lockstep::keras::layers
