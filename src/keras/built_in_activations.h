// Which activations are the library's own.
#pragma once

#include <string>

namespace lockstep::keras {

// Whether the library's function goes by this name, and not one that a program registered under it.
bool is_built_in_activation(const std::string& name);

}  // namespace lockstep::keras
