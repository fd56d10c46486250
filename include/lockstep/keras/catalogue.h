// What files know by name, listed: its classes, and what each can be told.
//
//   for (const std::string& name : catalogue::class_names(catalogue::Kind::layer))
//     std::cout << name << catalogue::parameters(catalogue::Kind::layer, name) << '\n';
//
// For those who make layers, losses, ... from configurations that they write themselves (Layer::deserialize()
// and its kin): a front in another language, an editor. Any thread may ask.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep::keras::catalogue {

enum class Kind : uint8_t {
  layer,
  loss,
  metric,
  optimizer,
  schedule,
  initializer,
  regularizer,
  constraint,
};

// Keras' names of the classes, in the order in which they became known.
std::vector<std::string> class_names(Kind kind);

// The parameters of Keras' constructor with their defaults, in the order of its configuration, which mostly
// is that of the constructor: an object. null: a class of the program's own, or one that has none that can be
// listed. What must be given has a default that is refused (the units of Dense are 0).
// Throws Error(not_found) where there is no such class.
Json parameters(Kind kind, const std::string& class_name,
                std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::catalogue
