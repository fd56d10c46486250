// Category numbers in the shapes that models take.
#pragma once

#include <string>

#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::layers {

// Category numbers as rows of `depth`; numbers that are no category count for nothing. multi_hot and count
// run over the second dimension (the only one of a vector). `weights`: what each number counts.
Tensor encode(const Tensor& input, const std::string& mode, int64_t depth, DType dtype,
              const Tensor& weights = {});

}  // namespace lockstep::keras::layers
