// Tensors as plain bytes, as one process gives them to another.
#pragma once

#include <string>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

// The elements in row-major order.
std::string bytes_of(const Tensor& tensor);
// A tensor of these elements, in the host's memory.
Tensor tensor_of(const TensorSpec& spec, const std::string& bytes);

}  // namespace lockstep
