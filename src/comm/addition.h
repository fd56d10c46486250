// The sum of two arrays, as all collectives that reduce by themselves make it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {

// `sum` may be `a` or `b`. Halves are added as float, and rounded.
template <class T>
void add(T* sum, const T* a, const T* b, int64_t count) {
  if constexpr (std::is_arithmetic_v<T>)
    for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<T>(a[i] + b[i]);
  else
    for (int64_t i = 0; i < count; ++i)
      sum[i] = static_cast<T>(static_cast<float>(a[i]) + static_cast<float>(b[i]));
}

// The same of a type that is known when it runs. Throws Error(dtype_mismatch) for booleans.
void add(void* sum, const void* a, const void* b, int64_t count, DType dtype);

}  // namespace lockstep::comm
