// Products of two tensors named by letters.
#pragma once

#include <string>

#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

// einsum("abc,cd->abd", x, y): a letter for each dimension; letters that the result leaves out are summed over. No
// letter twice in one operand, no "...".
Tensor einsum(const std::string& equation, const Tensor& a, const Tensor& b);

}  // namespace lockstep::keras
