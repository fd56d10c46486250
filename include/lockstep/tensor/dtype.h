// Element types of tensors.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

namespace lockstep {

enum class DType : uint8_t { float32, float64, bfloat16, float16, int32, int64, uint8, boolean };

inline constexpr int kNumDTypes = 8;

// The same as names: cast(x, tf::float32).
inline constexpr DType float32 = DType::float32;
inline constexpr DType float64 = DType::float64;
inline constexpr DType bfloat16 = DType::bfloat16;
inline constexpr DType float16 = DType::float16;
inline constexpr DType int32 = DType::int32;
inline constexpr DType int64 = DType::int64;
inline constexpr DType uint8 = DType::uint8;
inline constexpr DType boolean = DType::boolean;

size_t size_of(DType dtype);
std::string_view name(DType dtype);
bool is_floating(DType dtype);
bool is_integer(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);

// The upper half of a float32; conversion rounds to nearest even and keeps NaN a NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  bool operator==(const BFloat16&) const = default;
};

// IEEE 754 binary16; conversion rounds to nearest even, overflows to infinity.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
  bool operator==(const Float16&) const = default;
};

// dtype_of<float> == DType::float32, and so on for every C++ type that a tensor can hold.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no tensor holds elements of this C++ type");
  return DType::float32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of<Float16> = DType::float16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::uint8;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

// Calls f.template operator()<T>() with the C++ type of `dtype`.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f.template operator()<float>();
    case DType::float64: return f.template operator()<double>();
    case DType::bfloat16: return f.template operator()<BFloat16>();
    case DType::float16: return f.template operator()<Float16>();
    case DType::int32: return f.template operator()<int32_t>();
    case DType::int64: return f.template operator()<int64_t>();
    case DType::uint8: return f.template operator()<uint8_t>();
    case DType::boolean: break;
  }
  return f.template operator()<bool>();
}

}  // namespace lockstep
