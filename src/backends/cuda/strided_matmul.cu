#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "backends/cuda/check.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/strided_matmul.h"

namespace lockstep::cuda {
namespace {

constexpr int kBlock = 128;

template <class T>
__global__ void multiply(const __grid_constant__ StridedMatmul p, const T* a, const T* b, T* c,
                         int64_t size) {
  using Accumulator = Sum<T>;
  for (int64_t at = blockIdx.x * int64_t{kBlock} + threadIdx.x; at < size;
       at += gridDim.x * int64_t{kBlock}) {
    const int64_t column = at % p.n;
    const int64_t row = at / p.n % p.m;
    int64_t rest = at / p.n / p.m;
    const T* left = a + row * p.a_row;
    const T* right = b + column * p.b_column;
    for (int d = p.batch_rank - 1; d >= 0; --d) {
      const int64_t index = rest % p.batch[d];
      rest /= p.batch[d];
      left += index * p.a_batch[d];
      right += index * p.b_batch[d];
    }
    Accumulator sum = 0;
    for (int64_t i = 0; i < p.k; ++i)
      sum += static_cast<Accumulator>(left[i * p.a_column]) * static_cast<Accumulator>(right[i * p.b_row]);
    c[at] = static_cast<T>(sum);
  }
}

template <class T>
void launch(const StridedMatmul& p, const void* a, const void* b, void* c, cudaStream_t stream) {
  int64_t size = p.m * p.n;
  for (int d = 0; d < p.batch_rank; ++d) size *= p.batch[static_cast<size_t>(d)];
  if (size == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((size + kBlock - 1) / kBlock, 65535));
  multiply<T><<<blocks, kBlock, 0, stream>>>(p, static_cast<const T*>(a), static_cast<const T*>(b),
                                             static_cast<T*>(c), size);
  check_launch("strided matmul");
}

}  // namespace

void launch_strided_matmul(DType dtype, const StridedMatmul& p, const void* a, const void* b, void* c,
                           cudaStream_t stream) {
  switch (dtype) {
    case DType::float32: return launch<float>(p, a, b, c, stream);
    case DType::float64: return launch<double>(p, a, b, c, stream);
    case DType::bfloat16: return launch<__nv_bfloat16>(p, a, b, c, stream);
    case DType::float16: return launch<__half>(p, a, b, c, stream);
    case DType::int32: return launch<int32_t>(p, a, b, c, stream);
    default: return launch<int64_t>(p, a, b, c, stream);
  }
}

}  // namespace lockstep::cuda
