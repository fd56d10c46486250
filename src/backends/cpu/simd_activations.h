// tanh and the sigmoid of float32 vectors, for files x_simd.cc.
#pragma once

#include "backends/cpu/simd_math.h"

namespace lockstep::LOCKSTEP_SIMD {

// Both are made of e = exp(-|x|), which neither overflows nor loses what is small beside 1. NaN stays NaN.
LOCKSTEP_INLINE F32 negative_magnitude(const F32& x) {
  return bits_as<float>(bits_as<uint32_t>(x) | splat<uint32_t>(0x80000000));
}

// 1 / (1 + e), or e / (1 + e) where x is negative: within 3 ulp; 0 below -87.
LOCKSTEP_INLINE F32 sigmoid(const F32& x) {
  const F32 e = exp_not_positive(negative_magnitude(x));
  return select(x < splat(0.0f), e, splat(1.0f)) / (splat(1.0f) + e);
}

// (1 - e^2) / (1 + e^2), with the sign of x; where that would cancel, a polynomial that interpolates
// tanh(x) / x in x^2. Within 3 ulp.
LOCKSTEP_INLINE F32 tanh(const F32& x) {
  const F32 below = negative_magnitude(x);
  const F32 e = exp_not_positive(below + below);
  const U32 sign = bits_as<uint32_t>(x) & splat<uint32_t>(0x80000000);
  const F32 large = bits_as<float>(bits_as<uint32_t>((splat(1.0f) - e) / (splat(1.0f) + e)) | sign);
  const F32 y = x * x;
  F32 p = mul_add(y, splat(-0.00626911973f), splat(0.0211109591f));
  p = mul_add(y, p, splat(-0.0538739489f));
  p = mul_add(y, p, splat(0.133329154f));
  p = mul_add(y, p, splat(-0.333333303f));
  const F32 small = mul_add(x * y, p, x);
  return select(below > splat(-0.6f), small, large);
}

}  // namespace lockstep::LOCKSTEP_SIMD
