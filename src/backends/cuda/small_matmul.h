// Products of matrices so small that the time goes into launches and waiting for memory: one kernel, in full
// float32, with bias and activation. Several times faster there than a library's general kernels.
#pragma once

#include "backends/cuda/strided_matmul.h"
#include "graph/op.h"

namespace lockstep::cuda {

// How a product is cut: blocks of 32 rows and 8 * rows_per_thread columns, and the inner dimension over the
// blocks of a cluster, which add up in a fixed order.
struct SmallMatmulPlan {
  int rows_per_thread = 1;
  int cluster = 1;
};

// Whether it is one for this kernel: float32, and at most four million multiplications.
bool is_small_matmul(DType dtype, const StridedMatmul& product);
SmallMatmulPlan plan_small_matmul(const StridedMatmul& product);

// C = act(A B + bias), bias null: none. Queues it.
void launch_small_matmul(const SmallMatmulPlan& plan, const StridedMatmul& product, Epilogue epilogue,
                         const float* a, const float* b, const float* bias, float* c, cudaStream_t stream);

}  // namespace lockstep::cuda
