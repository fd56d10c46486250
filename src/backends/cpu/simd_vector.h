// Vectors of 16 lanes for files x_simd.cc, whatever width the instruction set has.
//
// The lane count is part of the meaning: sums over lanes and their final fold happen in one order at every
// level. Only raw pointers here, and everything in the level's own namespace.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/dtype.h"

#ifndef LOCKSTEP_SIMD
#error "only files x_simd.cc, which are compiled once per instruction-set level, include this header"
#endif

// The compiler may contract a * b + c in one copy of an inlined function and not in another: results would
// depend on an element's position. Where a fused operation is wanted, mul_add() says so.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#pragma GCC optimize("fp-contract=off")
#define LOCKSTEP_UNROLL _Pragma("GCC unroll 16")
// Vectors are only passed to functions that are inlined: their ABI does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define LOCKSTEP_INLINE inline __attribute__((always_inline))

// A loop over the parts of a vector. Unrolled early: an array that is indexed by a variable is kept in
// memory.
#define LOCKSTEP_EACH_PART(i, vector) LOCKSTEP_UNROLL for (int i = 0; i < (vector).kParts; ++i)

namespace lockstep::LOCKSTEP_SIMD {

inline constexpr int kLanes = 16;

#if defined(__AVX512F__)
inline constexpr int kNativeBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kNativeBytes = 32;
#else
inline constexpr int kNativeBytes = 16;
#endif

template <class T>
struct Vec {
  using Native [[gnu::vector_size(kNativeBytes)]] = T;
  static constexpr int kWidth = kNativeBytes / static_cast<int>(sizeof(T));
  static constexpr int kParts = kLanes / kWidth;
  Native part[kParts];
};

using F32 = Vec<float>;
using F64 = Vec<double>;
using I32 = Vec<int32_t>;
using U32 = Vec<uint32_t>;
using I64 = Vec<int64_t>;

// The integers that comparisons of T give: all bits set where true.
template <class T>
struct MaskOf {
  using type = int32_t;
};
template <>
struct MaskOf<double> {
  using type = int64_t;
};
template <>
struct MaskOf<int64_t> {
  using type = int64_t;
};
template <>
struct MaskOf<uint64_t> {
  using type = int64_t;
};
template <class T>
using Mask = Vec<typename MaskOf<T>::type>;

template <class To, class From>
LOCKSTEP_INLINE Vec<To> bits_as(const Vec<From>& v) {
  static_assert(sizeof(To) == sizeof(From));
  Vec<To> r;
  LOCKSTEP_EACH_PART(i, r) r.part[i] = reinterpret_cast<typename Vec<To>::Native>(v.part[i]);
  return r;
}

template <class T>
LOCKSTEP_INLINE Vec<T> splat(T value) {
  Vec<T> r;
  LOCKSTEP_EACH_PART(i, r) r.part[i] = value - typename Vec<T>::Native{};
  return r;
}

#define LOCKSTEP_BINARY(op)                                              \
  template <class T>                                                     \
  LOCKSTEP_INLINE Vec<T> operator op(const Vec<T>& a, const Vec<T>& b) { \
    Vec<T> r;                                                            \
    LOCKSTEP_EACH_PART(i, r) r.part[i] = a.part[i] op b.part[i];         \
    return r;                                                            \
  }
LOCKSTEP_BINARY(/)
LOCKSTEP_BINARY(&)
LOCKSTEP_BINARY(|)
LOCKSTEP_BINARY(^)
#undef LOCKSTEP_BINARY

// Signed integers wrap around, as the instructions do.
#define LOCKSTEP_WRAPPING(op)                                                                          \
  template <class T>                                                                                   \
  LOCKSTEP_INLINE Vec<T> operator op(const Vec<T>& a, const Vec<T>& b) {                               \
    Vec<T> r;                                                                                          \
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {                                      \
      using Bits = typename Vec<std::make_unsigned_t<T>>::Native;                                      \
      LOCKSTEP_EACH_PART(i, r)                                                                         \
      r.part[i] = reinterpret_cast<typename Vec<T>::Native>(reinterpret_cast<Bits>(a.part[i])          \
                                                                op reinterpret_cast<Bits>(b.part[i])); \
    } else {                                                                                           \
      LOCKSTEP_EACH_PART(i, r) r.part[i] = a.part[i] op b.part[i];                                     \
    }                                                                                                  \
    return r;                                                                                          \
  }
LOCKSTEP_WRAPPING(+)
LOCKSTEP_WRAPPING(-)
LOCKSTEP_WRAPPING(*)
#undef LOCKSTEP_WRAPPING

#define LOCKSTEP_SHIFT(op)                                         \
  template <class T>                                               \
  LOCKSTEP_INLINE Vec<T> operator op(const Vec<T>& a, int count) { \
    Vec<T> r;                                                      \
    LOCKSTEP_EACH_PART(i, r) r.part[i] = a.part[i] op count;       \
    return r;                                                      \
  }
LOCKSTEP_SHIFT(<<)
LOCKSTEP_SHIFT(>>)
#undef LOCKSTEP_SHIFT

#define LOCKSTEP_COMPARE(op)                                                        \
  template <class T>                                                                \
  LOCKSTEP_INLINE Mask<T> operator op(const Vec<T>& a, const Vec<T>& b) {           \
    Mask<T> r;                                                                      \
    LOCKSTEP_EACH_PART(i, r)                                                        \
    r.part[i] = reinterpret_cast<typename Mask<T>::Native>(a.part[i] op b.part[i]); \
    return r;                                                                       \
  }
LOCKSTEP_COMPARE(<)
LOCKSTEP_COMPARE(>)
LOCKSTEP_COMPARE(<=)
LOCKSTEP_COMPARE(>=)
LOCKSTEP_COMPARE(==)
LOCKSTEP_COMPARE(!=)
#undef LOCKSTEP_COMPARE

template <class T>
LOCKSTEP_INLINE Vec<T> select(const Mask<T>& mask, const Vec<T>& a, const Vec<T>& b) {
  Vec<T> r;
  LOCKSTEP_EACH_PART(i, r) r.part[i] = mask.part[i] ? a.part[i] : b.part[i];
  return r;
}

// a * b + c, rounded once where the level has such an instruction (v3 and v4).
template <class T>
LOCKSTEP_INLINE Vec<T> mul_add(const Vec<T>& a, const Vec<T>& b, const Vec<T>& c) {
  Vec<T> r;
  LOCKSTEP_EACH_PART(i, r) r.part[i] = a.part[i] * b.part[i] + c.part[i];
  return r;
}
#if defined(__AVX512F__)
LOCKSTEP_INLINE F32 mul_add(const F32& a, const F32& b, const F32& c) {
  return {{_mm512_fmadd_ps(a.part[0], b.part[0], c.part[0])}};
}
LOCKSTEP_INLINE F64 mul_add(const F64& a, const F64& b, const F64& c) {
  return {
      {_mm512_fmadd_pd(a.part[0], b.part[0], c.part[0]), _mm512_fmadd_pd(a.part[1], b.part[1], c.part[1])}};
}
#elif defined(__AVX2__)
LOCKSTEP_INLINE F32 mul_add(const F32& a, const F32& b, const F32& c) {
  F32 r;
  LOCKSTEP_EACH_PART(i, r) r.part[i] = _mm256_fmadd_ps(a.part[i], b.part[i], c.part[i]);
  return r;
}
LOCKSTEP_INLINE F64 mul_add(const F64& a, const F64& b, const F64& c) {
  F64 r;
  LOCKSTEP_EACH_PART(i, r) r.part[i] = _mm256_fmadd_pd(a.part[i], b.part[i], c.part[i]);
  return r;
}
#endif

// Bit l is set where lane l of a comparison's result is true.
template <class T>
LOCKSTEP_INLINE uint32_t lane_bits(const Vec<T>& mask) {
  uint32_t bits = 0;
  LOCKSTEP_EACH_PART(i, mask) {
#if defined(__AVX512F__)
    const uint32_t part = sizeof(T) == 4 ? _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask.part[i]))
                                         : _mm512_movepi64_mask(reinterpret_cast<__m512i>(mask.part[i]));
#elif defined(__AVX2__)
    const int part = sizeof(T) == 4 ? _mm256_movemask_ps(reinterpret_cast<__m256>(mask.part[i]))
                                    : _mm256_movemask_pd(reinterpret_cast<__m256d>(mask.part[i]));
#else
    const int part = sizeof(T) == 4 ? _mm_movemask_ps(reinterpret_cast<__m128>(mask.part[i]))
                                    : _mm_movemask_pd(reinterpret_cast<__m128d>(mask.part[i]));
#endif
    bits |= static_cast<uint32_t>(part) << (i * mask.kWidth);
  }
  return bits;
}

// {first, first + 1, ...}
template <class T>
LOCKSTEP_INLINE Vec<T> iota(T first) {
  Vec<T> r;
  LOCKSTEP_EACH_PART(i, r)
  for (int k = 0; k < r.kWidth; ++k) r.part[i][k] = first + static_cast<T>(i * r.kWidth + k);
  return r;
}

// --- memory ------------------------------------------------------------------------------------------------
// load(p) reads 16 elements, load_some(p, n, fill) the first n < 16 of them; elements of 16-bit and 8-bit
// dtypes widen to the type that is computed in.

template <class T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<BFloat16> {
  using type = float;
};
template <>
struct ComputeOf<Float16> {
  using type = float;
};
template <>
struct ComputeOf<uint8_t> {
  using type = uint32_t;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

// Part by part: copied as a whole, a vector of several parts would be kept in memory.
template <class T>
LOCKSTEP_INLINE Vec<T> load(const T* p) {
  Vec<T> r;
  LOCKSTEP_EACH_PART(i, r) __builtin_memcpy(&r.part[i], p + i * r.kWidth, sizeof r.part[i]);
  return r;
}

template <class T>
LOCKSTEP_INLINE void store(T* p, const Vec<T>& v) {
  LOCKSTEP_EACH_PART(i, v) __builtin_memcpy(p + i * v.kWidth, &v.part[i], sizeof v.part[i]);
}

// Narrow elements, one by one in a native vector of the wide type.
template <class Wide, class Narrow>
LOCKSTEP_INLINE Vec<Wide> widen(const Narrow* p) {
  using NarrowPart [[gnu::vector_size(Vec<Wide>::kWidth * sizeof(Narrow))]] = Narrow;
  Vec<Wide> r;
  LOCKSTEP_EACH_PART(i, r) {
    NarrowPart narrow;
    __builtin_memcpy(&narrow, p + i * r.kWidth, sizeof narrow);
    r.part[i] = __builtin_convertvector(narrow, typename Vec<Wide>::Native);
  }
  return r;
}

template <class Narrow, class Wide>
LOCKSTEP_INLINE void narrow(Narrow* p, const Vec<Wide>& v) {
  using NarrowPart [[gnu::vector_size(Vec<Wide>::kWidth * sizeof(Narrow))]] = Narrow;
  LOCKSTEP_EACH_PART(i, v) {
    const NarrowPart part = __builtin_convertvector(v.part[i], NarrowPart);
    __builtin_memcpy(p + i * v.kWidth, &part, sizeof part);
  }
}

LOCKSTEP_INLINE F32 load(const BFloat16* p) {
  return bits_as<float>(widen<uint32_t>(reinterpret_cast<const uint16_t*>(p)) << 16);
}

// Shifting the 15 low bits into a float's place leaves an exponent that is 112 too small: a multiplication
// mends it, for subnormals too. Infinity and NaN have the exponent 31, which must become 255.
LOCKSTEP_INLINE F32 load(const Float16* p) {
  const U32 h = widen<uint32_t>(reinterpret_cast<const uint16_t*>(p));
  const U32 magnitude = (h & splat<uint32_t>(0x7fff)) << 13;
  const F32 finite = bits_as<float>(magnitude) * splat(0x1p112f);
  const F32 special = bits_as<float>(magnitude | splat<uint32_t>(0x7f800000));
  const F32 value = select(bits_as<int32_t>(magnitude) >= splat<int32_t>(0x0f800000), special, finite);
  return bits_as<float>(bits_as<uint32_t>(value) | ((h & splat<uint32_t>(0x8000)) << 16));
}

// In two steps: compilers widen to four times the size element by element.
LOCKSTEP_INLINE U32 load(const uint8_t* p) {
  using Bytes [[gnu::vector_size(U32::kWidth)]] = uint8_t;
  using Halves [[gnu::vector_size(U32::kWidth * sizeof(uint16_t))]] = uint16_t;
  U32 r;
  LOCKSTEP_EACH_PART(i, r) {
    Bytes bytes;
    __builtin_memcpy(&bytes, p + i * r.kWidth, sizeof bytes);
    r.part[i] = __builtin_convertvector(__builtin_convertvector(bytes, Halves), U32::Native);
  }
  return r;
}

// The conversions of dtype.cc, lane by lane: to nearest, ties to even.
LOCKSTEP_INLINE void store(BFloat16* p, const F32& v) {
  const U32 u = bits_as<uint32_t>(v);
  const U32 rounded = (u + splat<uint32_t>(0x7fff) + ((u >> 16) & splat<uint32_t>(1))) >> 16;
  const U32 quiet = (u >> 16) | splat<uint32_t>(0x40);
  narrow(reinterpret_cast<uint16_t*>(p), select(v != v, bits_as<int32_t>(quiet), bits_as<int32_t>(rounded)));
}

LOCKSTEP_INLINE void store(Float16* p, const F32& v) {
  const U32 u = bits_as<uint32_t>(v);
  const U32 sign = (u >> 16) & splat<uint32_t>(0x8000);
  const I32 magnitude = bits_as<int32_t>(u & splat<uint32_t>(0x7fffffff));
  const I32 odd = (magnitude >> 13) & splat<int32_t>(1);
  const I32 normal = (magnitude - splat<int32_t>(0x38000000 - 0xfff) + odd) >> 13;
  const I32 subnormal =
      bits_as<int32_t>(bits_as<float>(magnitude) + splat(0.5f)) - splat<int32_t>(0x3f000000);
  I32 r = select(magnitude < splat<int32_t>(0x38800000), subnormal, normal);
  r = select(magnitude >= splat<int32_t>(0x477ff000), splat<int32_t>(0x7c00), r);
  r = select(magnitude > splat<int32_t>(0x7f800000), splat<int32_t>(0x7e00), r);
  narrow(reinterpret_cast<uint16_t*>(p), r | bits_as<int32_t>(sign));
}

template <class T>
__attribute__((noinline)) Vec<Compute<T>> load_some(const T* p, int64_t n, Compute<T> fill) {
  T buffer[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  using C = Compute<T>;
  const auto inside = iota<typename MaskOf<C>::type>(0) < splat(static_cast<typename MaskOf<C>::type>(n));
  return select(inside, load(buffer), splat(fill));
}

template <class T>
__attribute__((noinline)) void store_some(T* p, int64_t n, const Vec<Compute<T>>& v) {
  T buffer[kLanes];
  store(buffer, v);
  for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}

// Rows shorter than a vector are the common case of a classifier's logits.
#if defined(__AVX512F__)
LOCKSTEP_INLINE __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }

LOCKSTEP_INLINE F32 load_some(const float* p, int64_t n, float fill) {
  return {{reinterpret_cast<F32::Native>(_mm512_mask_loadu_ps(_mm512_set1_ps(fill), first_lanes(n), p))}};
}
LOCKSTEP_INLINE void store_some(float* p, int64_t n, const F32& v) {
  _mm512_mask_storeu_ps(p, first_lanes(n), reinterpret_cast<__m512>(v.part[0]));
}
LOCKSTEP_INLINE F64 load_some(const double* p, int64_t n, double fill) {
  F64 r;
  for (int i = 0; i < 2; ++i)
    r.part[i] = reinterpret_cast<F64::Native>(_mm512_mask_loadu_pd(
        _mm512_set1_pd(fill), static_cast<__mmask8>(first_lanes(n) >> (8 * i)), p + 8 * i));
  return r;
}
LOCKSTEP_INLINE void store_some(double* p, int64_t n, const F64& v) {
  for (int i = 0; i < 2; ++i)
    _mm512_mask_storeu_pd(p + 8 * i, static_cast<__mmask8>(first_lanes(n) >> (8 * i)),
                          reinterpret_cast<__m512d>(v.part[i]));
}
template <class T>
requires(sizeof(T) == 2) LOCKSTEP_INLINE F32 load_some(const T* p, int64_t n, float fill) {
  T buffer[kLanes];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(buffer), _mm256_maskz_loadu_epi16(first_lanes(n), p));
  return {{reinterpret_cast<F32::Native>(_mm512_mask_blend_ps(
      first_lanes(n), _mm512_set1_ps(fill), reinterpret_cast<__m512>(load(buffer).part[0])))}};
}
template <class T>
requires(sizeof(T) == 2) LOCKSTEP_INLINE void store_some(T* p, int64_t n, const F32& v) {
  T buffer[kLanes];
  store(buffer, v);
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(buffer)));
}
#elif defined(__AVX2__)
LOCKSTEP_INLINE F32 load_some(const float* p, int64_t n, float fill) {
  const I32 inside = iota<int32_t>(0) < splat(static_cast<int32_t>(n));
  F32 r;
  for (int i = 0; i < 2; ++i)
    r.part[i] = reinterpret_cast<F32::Native>(
        _mm256_maskload_ps(p + 8 * i, reinterpret_cast<__m256i>(inside.part[i])));
  return select(inside, r, splat(fill));
}
LOCKSTEP_INLINE void store_some(float* p, int64_t n, const F32& v) {
  const I32 inside = iota<int32_t>(0) < splat(static_cast<int32_t>(n));
  for (int i = 0; i < 2; ++i)
    _mm256_maskstore_ps(p + 8 * i, reinterpret_cast<__m256i>(inside.part[i]),
                        reinterpret_cast<__m256>(v.part[i]));
}
LOCKSTEP_INLINE F64 load_some(const double* p, int64_t n, double fill) {
  const I64 inside = iota<int64_t>(0) < splat(n);
  F64 r;
  for (int i = 0; i < 4; ++i)
    r.part[i] = reinterpret_cast<F64::Native>(
        _mm256_maskload_pd(p + 4 * i, reinterpret_cast<__m256i>(inside.part[i])));
  return select(inside, r, splat(fill));
}
LOCKSTEP_INLINE void store_some(double* p, int64_t n, const F64& v) {
  const I64 inside = iota<int64_t>(0) < splat(n);
  for (int i = 0; i < 4; ++i)
    _mm256_maskstore_pd(p + 4 * i, reinterpret_cast<__m256i>(inside.part[i]),
                        reinterpret_cast<__m256d>(v.part[i]));
}
#endif

// --- folding the lanes -------------------------------------------------------------------------------------

// Lane l with lane l + 8, then with l + 4, l + 2, l + 1. Op::apply works on scalars and vectors alike.
template <class Op, class T>
LOCKSTEP_INLINE T fold(const Vec<T>& v) {
  alignas(64) T lanes[kLanes];
  store(lanes, v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] = Op::apply(lanes[l], lanes[l + half]);
  return lanes[0];
}

template <class Op>
LOCKSTEP_INLINE float fold(const F32& v) {
  using F4 [[gnu::vector_size(16)]] = float;
  F4 q[4];
  __builtin_memcpy(q, &v, sizeof q);
  F4 r = Op::apply(Op::apply(q[0], q[2]), Op::apply(q[1], q[3]));
  r = Op::apply(r, __builtin_shufflevector(r, r, 2, 3, 0, 1));
  r = Op::apply(r, __builtin_shufflevector(r, r, 1, 0, 3, 2));
  return r[0];
}

template <class Op>
LOCKSTEP_INLINE double fold(const F64& v) {
  using D2 [[gnu::vector_size(16)]] = double;
  D2 q[8];
  __builtin_memcpy(q, &v, sizeof q);
  for (int half = 4; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) q[l] = Op::apply(q[l], q[l + half]);
  return Op::apply(q[0], __builtin_shufflevector(q[0], q[0], 1, 0))[0];
}

// The folds of four vectors at once, in the same order.
template <class Op>
LOCKSTEP_INLINE void fold_four(const F32 (&v)[4], float* out) {
  using F4 [[gnu::vector_size(16)]] = float;
  F4 r[4];
  for (int k = 0; k < 4; ++k) {
    F4 q[4];
    __builtin_memcpy(q, &v[k], sizeof q);
    r[k] = Op::apply(Op::apply(q[0], q[2]), Op::apply(q[1], q[3]));
  }
  const F4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
           b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const F4 c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7),
           d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const F4 lane0 = __builtin_shufflevector(a, b, 0, 1, 4, 5),
           lane1 = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  const F4 lane2 = __builtin_shufflevector(c, d, 0, 1, 4, 5),
           lane3 = __builtin_shufflevector(c, d, 2, 3, 6, 7);
  const F4 folded = Op::apply(Op::apply(lane0, lane2), Op::apply(lane1, lane3));
  __builtin_memcpy(out, &folded, sizeof folded);
}

template <class Op>
LOCKSTEP_INLINE void fold_four(const F64 (&v)[4], double* out) {
  for (int k = 0; k < 4; ++k) out[k] = fold<Op>(v[k]);
}

// Associative operations with their neutral element. Op::apply(a, b) takes scalars, native vectors and Vec.
struct Sum {
  template <class T>
  static constexpr T neutral() {
    return T(0);
  }
  template <class V>
  LOCKSTEP_INLINE static V apply(const V& a, const V& b) {
    return a + b;
  }
};

struct Prod {
  template <class T>
  static constexpr T neutral() {
    return T(1);
  }
  template <class V>
  LOCKSTEP_INLINE static V apply(const V& a, const V& b) {
    return a * b;
  }
};

template <class T>
struct Bounds;
template <>
struct Bounds<float> {
  static constexpr float kLowest = -__builtin_inff(), kHighest = __builtin_inff();
};
template <>
struct Bounds<double> {
  static constexpr double kLowest = -__builtin_inf(), kHighest = __builtin_inf();
};
template <>
struct Bounds<int32_t> {
  static constexpr int32_t kLowest = INT32_MIN, kHighest = INT32_MAX;
};
template <>
struct Bounds<uint32_t> {
  static constexpr uint32_t kLowest = 0, kHighest = UINT32_MAX;
};
template <>
struct Bounds<int64_t> {
  static constexpr int64_t kLowest = INT64_MIN, kHighest = INT64_MAX;
};

// A NaN on either side is carried on.
struct Max {
  template <class T>
  static constexpr T neutral() {
    return Bounds<T>::kLowest;
  }
  template <class V>
  LOCKSTEP_INLINE static V apply(const V& a, const V& b) {
    return ((b > a) | (b != b)) ? b : a;
  }
  template <class T>
  LOCKSTEP_INLINE static Vec<T> apply(const Vec<T>& a, const Vec<T>& b) {
    return select((b > a) | (b != b), b, a);
  }
};

// Cheaper than Max; a NaN may be lost.
struct MaxOfNumbers {
  template <class V>
  LOCKSTEP_INLINE static V apply(const V& a, const V& b) {
    return b > a ? b : a;
  }
  template <class T>
  LOCKSTEP_INLINE static Vec<T> apply(const Vec<T>& a, const Vec<T>& b) {
    return select(b > a, b, a);
  }
};

struct Min {
  template <class T>
  static constexpr T neutral() {
    return Bounds<T>::kHighest;
  }
  template <class V>
  LOCKSTEP_INLINE static V apply(const V& a, const V& b) {
    return ((b < a) | (b != b)) ? b : a;
  }
  template <class T>
  LOCKSTEP_INLINE static Vec<T> apply(const Vec<T>& a, const Vec<T>& b) {
    return select((b < a) | (b != b), b, a);
  }
};

}  // namespace lockstep::LOCKSTEP_SIMD
