#include "lockstep/tensor/dtype.h"

#include <cmath>
#include <ostream>

namespace lockstep {

size_t size_of(DType dtype) {
  return dispatch(dtype, []<class T>() { return sizeof(T); });
}

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::bfloat16: return "bfloat16";
    case DType::float16: return "float16";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
    case DType::uint8: return "uint8";
    case DType::boolean: return "bool";
  }
  return "unknown";
}

bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16 ||
         dtype == DType::float16;
}

bool is_integer(DType dtype) {
  return dtype == DType::int32 || dtype == DType::int64 || dtype == DType::uint8;
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

BFloat16::BFloat16(float value) {
  uint32_t u = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    bits = static_cast<uint16_t>((u >> 16) | 0x40);
    return;
  }
  u += 0x7fff + ((u >> 16) & 1);
  bits = static_cast<uint16_t>(u >> 16);
}

Float16::Float16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000;
  const uint32_t magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN
    bits = static_cast<uint16_t>(sign | 0x7e00);
  } else if (magnitude >= 0x477ff000) {  // rounds to 65536 or more
    bits = static_cast<uint16_t>(sign | 0x7c00);
  } else if (magnitude < 0x38800000) {  // subnormal or zero: adding 0.5 aligns and rounds in hardware
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  } else {
    const uint32_t odd = (magnitude >> 13) & 1;
    bits = static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
  }
}

Float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

}  // namespace lockstep
