// Elements of tensors in device code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cuda {

template <class T>
struct ElementOf {
  using type = T;
};
template <>
struct ElementOf<bfloat16> {
  using type = __nv_bfloat16;
};
template <>
struct ElementOf<float16> {
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
