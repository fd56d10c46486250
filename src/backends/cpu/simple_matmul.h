// Matrix products that oneDNN does not make: of float64 and integers, small ones of float16, those of odd
// strides and of empty sums.
#pragma once

#include <memory>

#include "graph/kernel.h"

namespace lockstep::cpu {

// A kernel of op matmul. `a` and `b` are its first two inputs, transposed to [..., M, K] and [..., K, N];
// strides are arbitrary and batch dimensions broadcast. Every element is summed over K in order, so results
// depend on neither the number of threads nor the other rows and columns. 16-bit floats are computed in
// float32.
std::unique_ptr<Kernel> prepare_simple_matmul(const KernelRequest& request, const OperandLayout& a,
                                              const OperandLayout& b);

}  // namespace lockstep::cpu
