// What AdaptableLayer calls.
#pragma once

#include <source_location>

#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::layers {

class Adaptable {
 public:
  virtual ~Adaptable() = default;
  virtual void adapt(const Tensor& data, std::source_location where) = 0;
};

}  // namespace lockstep::keras::layers
