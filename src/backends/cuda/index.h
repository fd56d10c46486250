// Indices into tensors, in device code.
#pragma once

#include <cstdint>

namespace lockstep::cuda {

// Division by a number that is known before the launch. 32 bits: of dividends below 2^31, by multiplication.
template <class I>
class Divider;

template <>
class Divider<uint32_t> {
 public:
  Divider() = default;
  explicit Divider(int64_t divisor) : divisor_(static_cast<uint32_t>(divisor)) {
    while ((uint64_t{1} << shift_) < divisor_) ++shift_;
    multiplier_ =
        static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift_) - divisor_)) / divisor_ + 1);
  }
  __device__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, multiplier_) + n) >> shift_; }
  __device__ uint32_t divisor() const { return divisor_; }

 private:
  uint32_t divisor_ = 1, multiplier_ = 1, shift_ = 0;
};

template <>
class Divider<uint64_t> {
 public:
  Divider() = default;
  explicit Divider(int64_t divisor) : divisor_(static_cast<uint64_t>(divisor)) {}
  __device__ uint64_t quotient(uint64_t n) const { return n / divisor_; }
  __device__ uint64_t divisor() const { return divisor_; }

 private:
  uint64_t divisor_ = 1;
};

// The loop of a kernel over [0, count): this thread's first index, and the step to its next.
template <class I>
__device__ I first_index() {
  return static_cast<I>(blockIdx.x) * blockDim.x + threadIdx.x;
}
template <class I>
__device__ I index_step() {
  return static_cast<I>(gridDim.x) * blockDim.x;
}

// int32 or int64 numbers.
struct IndexReader {
  const void* data;
  bool wide;
  __device__ int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

}  // namespace lockstep::cuda
