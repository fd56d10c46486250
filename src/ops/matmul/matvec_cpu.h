// Products of a matrix and a vector on the CPU: bound by the matrix's bytes, of which nothing is packed.
#pragma once

#include <memory>

#include "graph/kernel.h"

namespace lockstep::cpu {

// The layout of the matrices' transposes.
OperandLayout transposed(OperandLayout layout);

// A kernel of op matmul where [..., M, K] times [..., K, N], given as prepare_simple_matmul() takes them, has one
// row or one column, its matrix is dense, and this is faster than a matrix product; else null. Results
// depend on neither the number of threads nor the other elements of the result. 16-bit floats are computed in
// float32.
std::unique_ptr<Kernel> prepare_matvec(const KernelRequest& request, const OperandLayout& a,
                                       const OperandLayout& b);

}  // namespace lockstep::cpu
