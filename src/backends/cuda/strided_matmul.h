// Matrix products that cuBLASLt has no form for: integers, and matrices of any strides.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cuda {

// C = A B for every index of the batch; strides in elements. C is contiguous.
struct StridedMatmul {
  static constexpr int kMaxBatchRank = 6;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0;
  int batch_rank = 0;
  std::array<int64_t, kMaxBatchRank> batch{}, a_batch{}, b_batch{};
};

// Queues it; sums have float32 accumulators for 16-bit floats, and one order.
void launch_strided_matmul(DType dtype, const StridedMatmul& product, const void* a, const void* b, void* c,
                           cudaStream_t stream);

}  // namespace lockstep::cuda
