// Configurations of models as Keras 2 wrote them.
#pragma once

#include "lockstep/base/json.h"

namespace lockstep::keras {

// Beside the arguments of a call: true where its settings are those alone that somebody gave, as in Keras 2, and
// where one of them is what Keras writes of itself.
inline constexpr const char* kAsSaid = "as_said";

// A model, or what it was compiled with, as Keras 3 writes it: calls of layers by their arguments, and
// settings that are there no more left out. What is as Keras 3 writes it stays as it is.
Json as_keras3(const Json& json);

}  // namespace lockstep::keras
