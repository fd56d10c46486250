// Indices into tensors, in device code.
#pragma once

#include <cstdint>

namespace lockstep::cuda {

// Division by a number that is known before the launch: of numbers below 2^31 a multiplication.
class Divider {
 public:
  Divider() = default;
  explicit Divider(int64_t divisor) : divisor_(divisor) {
    const auto d = static_cast<uint64_t>(divisor);
    if (d >> 31 != 0) return;
    while ((uint64_t{1} << shift_) < d) ++shift_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift_) - d)) / d + 1);
  }
  __device__ int64_t quotient(int64_t n) const {
    if (n >> 31 != 0) return n / divisor_;
    return (__umulhi(static_cast<uint32_t>(n), multiplier_) + static_cast<uint32_t>(n)) >> shift_;
  }
  __device__ int64_t divisor() const { return divisor_; }

 private:
  int64_t divisor_ = 1;
  uint32_t multiplier_ = 1, shift_ = 0;
};

// The loop of a kernel over [0, count): this thread's first index, and the step to its next.
__device__ inline int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t index_step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// int32 or int64 numbers.
struct IndexReader {
  const void* data;
  bool wide;
  __device__ int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

}  // namespace lockstep::cuda
