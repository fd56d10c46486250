// exp and log of vectors, for files x_simd.cc. Polynomials are minimax fits on the reduced range.
#pragma once

#include "backends/cpu/math_fits.h"
#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {

// exp(r) for |r| <= ln(2) / 2.
LOCKSTEP_INLINE F32 exp_reduced(const F32& r) {
  const F32 r2 = r * r;
  const F32 low = mul_add(r, splat(0.166665128915f), splat(0.500000010099f));
  const F32 high = mul_add(r, splat(0.00836959813171f), splat(0.0416661872476f));
  const F32 rest = mul_add(r2, mul_add(r2, splat(0.00139517198135f), high), low);
  return mul_add(r2, rest, r) + splat(1.0f);
}

// x = n ln(2) + r; returns r. Adding and subtracting 1.5 * 2^23 rounds to an integer, which then stands in
// the low bits of `shifted`. n * ln2_high is exact: ln2_high has 15 bits.
LOCKSTEP_INLINE F32 reduce_exp(const F32& x, F32& shifted) {
  const F32 magic = splat(0x1.8p23f);
  shifted = mul_add(x, splat(0x1.715476p+0f), magic);
  const F32 n = shifted - magic;
  return mul_add(n, splat(-1.42860682030942e-6f), mul_add(n, splat(-0x1.62e4p-1f), x));
}

// Within 1 ulp, subnormal results too; exp(-inf) = 0, overflow gives infinity, NaN stays NaN.
LOCKSTEP_INLINE F32 exp(const F32& x) {
  // Beyond these bounds the result is 0 or infinity; inside them 2^n stays representable in two factors,
  // where one could be outside the normal numbers though the result is not.
  F32 t = select(x < splat(-104.0f), splat(-104.0f), x);
  t = select(t > splat(89.0f), splat(89.0f), t);
  F32 shifted;
  const F32 r = reduce_exp(t, shifted);
  const I32 k = bits_as<int32_t>(shifted) - splat<int32_t>(0x4b400000);
  const I32 k1 = k >> 1;
  const I32 one = splat<int32_t>(0x3f800000);
  return (exp_reduced(r) * bits_as<float>(one + (k1 << 23))) * bits_as<float>(one + ((k - k1) << 23));
}

// exp of numbers that are not positive, as softmax has them: results below the normal numbers are 0.
LOCKSTEP_INLINE F32 exp_not_positive(const F32& x) {
  F32 shifted;
  const F32 r = reduce_exp(x, shifted);
  // The shift moves everything but n out of the word.
  const F32 scale = bits_as<float>((bits_as<int32_t>(shifted) << 23) + splat<int32_t>(0x3f800000));
  return select(x < splat(-87.0f), splat(0.0f), exp_reduced(r) * scale);
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
  LOCKSTEP_EACH_PART(i, e) e.part[i] = __builtin_convertvector(exponent.part[i], F32::Native);
  const F32 f = m - splat(1.0f);
  const F32 f2 = f * f;
  const F32 a = mul_add(f, splat(-0.250008089993f), splat(0.333333167298f));
  const F32 b = mul_add(f, splat(-0.166245962324f), splat(0.200022859724f));
  const F32 c = mul_add(f, splat(-0.131284036545f), splat(0.141812140795f));
  const F32 d = mul_add(f, splat(-0.0786020762206f), splat(0.128814039434f));
  const F32 q = mul_add(f2 * f2, mul_add(f2, d, c), mul_add(f2, b, a));
  const F32 tail = mul_add(f2 * f, q, e * splat(1.42860682030942e-6f));
  F32 r = mul_add(e, splat(0x1.62e4p-1f), mul_add(f2, splat(-0.5f), tail) + f);
  r = select(x == splat(0.0f), splat(-__builtin_inff()), r);
  r = select(x == splat(__builtin_inff()), x, r);
  return select((x < splat(0.0f)) | (x != x), splat(__builtin_nanf("")), r);
}

// --- float64 -----------------------------------------------------------------------------------------------

// c[0] + c[1] x + ..., by Horner's rule.
template <size_t n>
LOCKSTEP_INLINE F64 polynomial(const F64& x, const double (&c)[n]) {
  F64 sum = splat(c[n - 1]);
  LOCKSTEP_UNROLL for (size_t i = 2; i <= n; ++i) sum = mul_add(sum, x, splat(c[n - i]));
  return sum;
}

// As its namesake of float32: within 1 ulp.
LOCKSTEP_INLINE F64 exp_not_positive(const F64& x) {
  const F64 magic = splat(0x1.8p52);
  const F64 shifted = mul_add(x, splat(0x1.71547652b82fep+0), magic);
  const F64 n = shifted - magic;
  const F64 r = mul_add(n, splat(-cpu::fits::kLn2Low), mul_add(n, splat(-cpu::fits::kLn2High), x));
  const F64 slope = mul_add(polynomial(r, cpu::fits::kExp), r, splat(1.0));
  const F64 scale = bits_as<double>((bits_as<int64_t>(shifted) << 52) + splat<int64_t>(0x3ff0000000000000));
  return select(x < splat(-708.0), splat(0.0), mul_add(slope, r, splat(1.0)) * scale);
}

// As its namesake of float32: within 1 ulp.
LOCKSTEP_INLINE F64 log(const F64& x) {
  // x = 2^e (1 + f) with 1 + f in [0.75, 1.5): half a binade is added, and the exponent put under the bits
  // of 2^52, where it is an integer.
  const I64 tiny = x < splat(0x1p-1022);
  const I64 bits = bits_as<int64_t>(select(tiny, x * splat(0x1p54), x));
  const I64 one = splat<int64_t>(0x3ff0000000000000);
  const I64 biased = bits_as<int64_t>(bits_as<uint64_t>(bits + splat<int64_t>(0x0008000000000000)) >> 52);
  const F64 e = bits_as<double>(biased | splat<int64_t>(0x4330000000000000)) -
                select(tiny, splat(0x1p52 + 1023 + 54), splat(0x1p52 + 1023));
  const F64 f = bits_as<double>(bits + one - (biased << 52)) - splat(1.0);
  // log(1 + f) = 2 atanh(s) with s = f / (2 + f), and f - f^2 / 2 + s f^2 / 2 = 2 s.
  const F64 s = f / (f + splat(2.0));
  const F64 square = s * s;
  const F64 bend = f * f * splat(0.5);
  const F64 curve = mul_add(polynomial(square, cpu::fits::kLog), square, bend);
  const F64 small = bend - mul_add(curve, s, e * splat(cpu::fits::kLn2Low));
  F64 r = mul_add(e, splat(cpu::fits::kLn2High), f - small);
  r = select(x == splat(0.0), splat(-__builtin_inf()), r);
  r = select(x == splat(__builtin_inf()), x, r);
  return select((x < splat(0.0)) | (x != x), splat(__builtin_nan("")), r);
}

}  // namespace lockstep::LOCKSTEP_SIMD
