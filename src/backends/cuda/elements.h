// Elements of tensors in device code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cuda {

template <class T>
struct ElementOf {
  using type = T;
};
template <>
struct ElementOf<BFloat16> {
  using type = __nv_bfloat16;
};
template <>
struct ElementOf<Float16> {
  using type = __half;
};
// What device code calls the elements that the host calls T.
template <class T>
using Element = typename ElementOf<T>::type;

template <class T>
inline constexpr bool kIs16Bit = std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half>;

// What floating-point elements are computed in.
template <class T>
using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;

// What sums of elements are made in. Integers wrap around: unsigned ones have the same bits.
template <class T>
using Sum = std::conditional_t<
    kIs16Bit<T>, float,
    std::conditional_t<sizeof(T) == 1, uint32_t,
                       std::conditional_t<std::is_same_v<T, int32_t>, uint32_t,
                                          std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>>>>;

// n neighbouring elements that are moved together. 16-bit ones are kept as words of two, which stay in
// registers.
template <class T, int n, bool words = kIs16Bit<T>&& n % 2 == 0>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T element[n];

  __device__ void get(Real<T> (&values)[n]) const {
#pragma unroll
    for (int k = 0; k < n; ++k) values[k] = static_cast<Real<T>>(element[k]);
  }
  __device__ void set(const Real<T> (&values)[n]) {
#pragma unroll
    for (int k = 0; k < n; ++k) element[k] = static_cast<T>(values[k]);
  }
};

template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack<T, n, true> {
  uint32_t word[n / 2];

  __device__ void get(float (&values)[n]) const {
#pragma unroll
    for (int k = 0; k < n / 2; ++k) {
      if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        values[2 * k] = __uint_as_float(word[k] << 16);
        values[2 * k + 1] = __uint_as_float(word[k] & 0xffff0000u);
      } else {
        const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&word[k]));
        values[2 * k] = both.x, values[2 * k + 1] = both.y;
      }
    }
  }
  __device__ void set(const float (&values)[n]) {
#pragma unroll
    for (int k = 0; k < n / 2; ++k) {
      if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        const __nv_bfloat162 both = __floats2bfloat162_rn(values[2 * k], values[2 * k + 1]);
        word[k] = *reinterpret_cast<const uint32_t*>(&both);
      } else {
        const __half2 both = __floats2half2_rn(values[2 * k], values[2 * k + 1]);
        word[k] = *reinterpret_cast<const uint32_t*>(&both);
      }
    }
  }
};

// In one access where the pack has 16 bytes, which compilers do not see by themselves.
template <class T, int n>
__device__ Pack<T, n> load_pack(const void* p) {
  Pack<T, n> pack;
  if constexpr (sizeof pack == 16) {
    const uint4 raw = *static_cast<const uint4*>(p);
    memcpy(&pack, &raw, sizeof pack);
  } else {
    pack = *static_cast<const Pack<T, n>*>(p);
  }
  return pack;
}
template <class T, int n, bool words>
__device__ void store_pack(void* p, const Pack<T, n, words>& pack) {
  if constexpr (sizeof pack == 16) {
    uint4 raw;
    memcpy(&raw, &pack, sizeof pack);
    *static_cast<uint4*>(p) = raw;
  } else {
    *static_cast<Pack<T, n, words>*>(p) = pack;
  }
}

// Calls f.template operator()<T>() with the device's type of `dtype`.
template <class F>
decltype(auto) dispatch_elements(DType dtype, F&& f) {
  return dispatch(dtype, [&]<class T>() -> decltype(auto) { return f.template operator()<Element<T>>(); });
}

// The same for floating-point types alone.
template <class F>
decltype(auto) dispatch_floats(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64: return f.template operator()<double>();
    case DType::bfloat16: return f.template operator()<__nv_bfloat16>();
    case DType::float16: return f.template operator()<__half>();
    default: return f.template operator()<float>();
  }
}

// Calls f.template operator()<U>() with an unsigned type of this many bytes: for code that moves elements.
template <class F>
decltype(auto) dispatch_bytes(size_t bytes, F&& f) {
  switch (bytes) {
    case 16: return f.template operator()<uint4>();
    case 8: return f.template operator()<uint64_t>();
    case 4: return f.template operator()<uint32_t>();
    case 2: return f.template operator()<uint16_t>();
    default: return f.template operator()<uint8_t>();
  }
}

}  // namespace lockstep::cuda
