// Folding values over the threads of a warp or block, always in the same order.
#pragma once

#include <cstdint>

namespace lockstep::cuda {

inline constexpr int kWarp = 32;

template <class T>
__device__ T shuffle_xor(T value, int mask) {
  if constexpr (sizeof(T) <= 8) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  } else {
    static_assert(sizeof(T) % 4 == 0);
    T other;
    const auto* from = reinterpret_cast<const uint32_t*>(&value);
    auto* to = reinterpret_cast<uint32_t*>(&other);
#pragma unroll
    for (size_t i = 0; i < sizeof(T) / 4; ++i) to[i] = __shfl_xor_sync(0xffffffffu, from[i], mask);
    return other;
  }
}

// The fold over all lanes, in all lanes. `op` is commutative to the bit.
template <class T, class Op>
__device__ T warp_fold(T value, Op op) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = op(value, shuffle_xor(value, mask));
  return value;
}

// The fold over all threads of a block of whole warps, in all threads. `shared` has room for 32 values; it
// may be used again after the next barrier.
template <class T, class Op>
__device__ T block_fold(T value, T neutral, T* shared, Op op) {
  value = warp_fold(value, op);
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  if (warps == 1) return value;
  __syncthreads();
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return warp_fold(lane < warps ? shared[lane] : neutral, op);
}

struct Add {
  template <class T>
  __device__ T operator()(const T& a, const T& b) const {
    return a + b;
  }
};

}  // namespace lockstep::cuda
