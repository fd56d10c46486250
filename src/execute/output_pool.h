// Memory for the results of a program, used again once nobody holds them.
#pragma once

#include <vector>

#include "tensor/tensor_impl.h"

namespace lockstep::compile {

class OutputPool {
 public:
  // An earlier tensor that nobody holds any more, or a new one.
  Tensor take(const TensorSpec& spec, Device& device) {
    for (const Tensor& candidate : held_)
      if (sole_owner(candidate) && candidate.spec() == spec) return candidate;
    Tensor fresh = Tensor::empty(spec.dtype, spec.shape, device);
    if (held_.size() < kMost) held_.push_back(fresh);
    return fresh;
  }

 private:
  static constexpr size_t kMost = 4;
  TensorList held_;
};

}  // namespace lockstep::compile
