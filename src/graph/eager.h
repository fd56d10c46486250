// Runs one op at once: on the device of the scopes around it, else with its inputs (InputPlace). Inputs that
// are elsewhere are copied.
#pragma once

#include "graph/op.h"

namespace lockstep {

TensorList run_eager(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                     std::span<const TensorSpec> specs, std::source_location where);

// The same for an op with one output that this thread has run before with inputs of these layouts, on the
// device on which all of them are: only memory for the result is taken and the kernel launched. None where
// that is not so.
Tensor run_again(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                 std::source_location where);

// The same elements in row-major memory; `tensor` itself where it is so already.
Tensor contiguous(const Tensor& tensor, std::source_location where);

}  // namespace lockstep
