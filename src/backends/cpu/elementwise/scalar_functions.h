// What each opcode means for one element, where a C++ operator does not say it: the interpreter's
// building blocks, and what generated code calls for the lanes it leaves to the C library.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu::scalar {

// Integers wrap around: computed without a sign, where that is defined.
template <std::integral T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
T add(T a, T b) {
  if constexpr (std::integral<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  else
    return a + b;
}

template <class T>
T sub(T a, T b) {
  if constexpr (std::integral<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  else
    return a - b;
}

template <class T>
T mul(T a, T b) {
  if constexpr (std::integral<T>)
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  else
    return a * b;
}

template <class T>
T neg(T a) {
  if constexpr (std::integral<T>)
    return sub(T{0}, a);
  else
    return -a;
}

// The lowest integer divided by -1 wraps around to itself; the processor would trap.
template <class T>
T div(T a, T b) {
  if constexpr (std::integral<T>) {
    if (b == 0) return 0;
    if (std::signed_integral<T> && b == static_cast<T>(-1)) return neg(a);
    return static_cast<T>(a / b);
  } else {
    return a / b;
  }
}

template <class T>
T mod(T a, T b) {
  if constexpr (std::integral<T>) {
    if (b == 0 || (std::signed_integral<T> && b == static_cast<T>(-1))) return 0;
    const T remainder = static_cast<T>(a % b);
    return remainder != 0 && (remainder < 0) != (b < 0) ? static_cast<T>(remainder + b) : remainder;
  } else {
    const T remainder = std::fmod(a, b);
    if (remainder == 0) return std::copysign(T{0}, b);
    return (remainder < 0) != (b < 0) ? remainder + b : remainder;
  }
}

template <class T>
T pow(T a, T b) {
  if constexpr (std::integral<T>) {
    if (b < 0) return a == 1 ? T{1} : a == static_cast<T>(-1) ? (b % 2 != 0 ? a : T{1}) : T{0};
    T result = 1;
    for (; b != 0; b = static_cast<T>(b / 2), a = mul(a, a))
      if (b % 2 != 0) result = mul(result, a);
    return result;
  } else {
    return std::pow(a, b);
  }
}

template <class T>
bool is_nan(T a) {
  if constexpr (std::integral<T>)
    return false;
  else
    return std::isnan(a);
}

template <class T>
T maximum(T a, T b) {
  return a > b || is_nan(a) ? a : b;
}

template <class T>
T minimum(T a, T b) {
  return a < b || is_nan(a) ? a : b;
}

template <class T>
T abs(T a) {
  if constexpr (std::integral<T>)
    return a < 0 ? neg(a) : a;
  else
    return std::fabs(a);
}

template <class T>
T sign(T a) {
  return a > 0 ? T{1} : a < 0 ? static_cast<T>(-1) : a == 0 ? T{0} : a;
}

// Values outside the integer's range become its nearest end, NaN becomes 0.
template <std::integral To, std::floating_point From>
To saturate(From x) {
  constexpr From kAbove = static_cast<From>(uint64_t{1} << (std::numeric_limits<To>::digits - 1)) * 2;
  if (is_nan(x)) return 0;
  if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (x >= kAbove) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

// The C++ type in which elements of T are computed; booleans are 0 or 1.
template <class T>
using Computed = std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float,
                                    std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>;

// A value computed for any dtype, converted to the dtype whose C++ type is To.
template <class To, class From>
Computed<To> convert(From x) {
  if constexpr (std::is_same_v<To, bool>)
    return x != From{0};
  else if constexpr (std::is_same_v<To, BFloat16> || std::is_same_v<To, Float16>)
    return static_cast<float>(To(static_cast<float>(x)));
  else if constexpr (std::integral<To> && std::floating_point<From>)
    return saturate<To>(x);
  else
    return static_cast<To>(x);
}

}  // namespace lockstep::cpu::scalar
