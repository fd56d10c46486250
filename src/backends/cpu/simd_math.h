// exp and log of float32 vectors, for files x_simd.cc. Polynomials are minimax fits on the reduced range.
#pragma once

#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {

// Within 1 ulp (subnormal results too); exp(-inf) = 0, overflow gives infinity, NaN stays NaN.
LOCKSTEP_INLINE F32 exp(const F32& x) {
  // Beyond these bounds the result is 0 or infinity; inside them 2^n below stays representable in two steps.
  F32 t = select(x < splat(-104.0f), splat(-104.0f), x);
  t = select(t > splat(89.0f), splat(89.0f), t);
  // exp(x) = 2^n exp(r) with |r| <= ln(2) / 2. Adding and subtracting 1.5 * 2^23 rounds to an integer, which
  // then stands in the low bits. n * ln2_high is exact: ln2_high has 15 bits.
  const F32 magic = splat(0x1.8p23f);
  const F32 shifted = t * splat(0x1.715476p+0f) + magic;
  const F32 n = shifted - magic;
  const F32 r = (t - n * splat(0x1.62e4p-1f)) - n * splat(1.42860682030942e-6f);
  const F32 r2 = r * r;
  const F32 low = splat(0.500000010099f) + r * splat(0.166665128915f);
  const F32 high = splat(0.0416661872476f) + r * splat(0.00836959813171f);
  const F32 p = splat(1.0f) + (r + r2 * (low + r2 * (high + r2 * splat(0.00139517198135f))));
  // 2^n may be outside the normal numbers where the result is not: two factors are never.
  const I32 k = bits_as<int32_t>(shifted) - splat<int32_t>(0x4b400000);
  const I32 k1 = k >> 1;
  const I32 one = splat<int32_t>(0x3f800000);
  return (p * bits_as<float>(one + (k1 << 23))) * bits_as<float>(one + ((k - k1) << 23));
}

// Within 1 ulp; log(0) = -inf, of a negative number NaN.
LOCKSTEP_INLINE F32 log(const F32& x) {
  // x = 2^e m with m in [sqrt(1/2), sqrt(2)); subnormals are scaled into the normal range first.
  const I32 tiny = x < splat(0x1p-126f);
  const F32 scaled = select(tiny, x * splat(0x1p23f), x);
  const I32 bits = bits_as<int32_t>(scaled) - splat<int32_t>(0x3f3504f3);
  const I32 exponent = (bits >> 23) - (tiny & splat<int32_t>(23));
  const F32 m = bits_as<float>((bits & splat<int32_t>(0x007fffff)) + splat<int32_t>(0x3f3504f3));
  F32 e;
  for (int i = 0; i < e.kParts; ++i) e.part[i] = __builtin_convertvector(exponent.part[i], F32::Native);
  const F32 f = m - splat(1.0f);
  const F32 f2 = f * f;
  const F32 a = splat(0.333333167298f) + f * splat(-0.250008089993f);
  const F32 b = splat(0.200022859724f) + f * splat(-0.166245962324f);
  const F32 c = splat(0.141812140795f) + f * splat(-0.131284036545f);
  const F32 d = splat(0.128814039434f) + f * splat(-0.0786020762206f);
  const F32 q = (a + f2 * b) + (f2 * f2) * (c + f2 * d);
  const F32 tail = (f2 * f) * q + e * splat(1.42860682030942e-6f);
  F32 r = ((tail - f2 * splat(0.5f)) + f) + e * splat(0x1.62e4p-1f);
  r = select(x == splat(0.0f), splat(-__builtin_inff()), r);
  r = select(x == splat(__builtin_inff()), x, r);
  return select((x < splat(0.0f)) | (x != x), splat(__builtin_nanf("")), r);
}

}  // namespace lockstep::LOCKSTEP_SIMD
