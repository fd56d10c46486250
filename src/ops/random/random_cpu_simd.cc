#include "ops/random/random_cpu_simd.h"

#include "backends/cpu/simd_math.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::RandomRows;

typedef uint64_t Wide __attribute__((vector_size(kNativeBytes)));

// The product of the low halves of each 64 bits.
LOCKSTEP_INLINE Wide multiply_low_halves(Wide a, Wide b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Wide>(_mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Wide>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<Wide>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}

// The products of 32-bit lanes as high and low halves: the even lanes are multiplied, then the odd ones.
LOCKSTEP_INLINE void multiply(const U32& a, uint32_t factor, U32& high, U32& low) {
  const Wide factors = factor - Wide{};
  const Wide even_half = 0xffffffffu - Wide{};
  for (int i = 0; i < a.kParts; ++i) {
    const Wide lanes = reinterpret_cast<Wide>(a.part[i]);
    const Wide even = multiply_low_halves(lanes, factors);
    const Wide odd = multiply_low_halves(lanes >> 32, factors);
    high.part[i] = reinterpret_cast<U32::Native>((even >> 32) | (odd & ~even_half));
    low.part[i] = reinterpret_cast<U32::Native>((even & even_half) | (odd << 32));
  }
}

struct Words {
  U32 word[4];
};

// Philox4x32-10 (base/philox.h) of 16 counters under one key.
LOCKSTEP_INLINE Words philox(uint64_t key, U32 c0, U32 c1, U32 c2, U32 c3) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    U32 high0, low0, high1, low1;
    multiply(c0, 0xD2511F53u, high0, low0);
    multiply(c2, 0xCD9E8D57u, high1, low1);
    c0 = high1 ^ c1 ^ splat(k0);
    c1 = low1;
    c2 = high0 ^ c3 ^ splat(k1);
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Four vectors, of word 0, 1, 2, 3 of each block, become the blocks one after the other. Only lanes inside 128 bits
// move here: lane 4 t + p holds block 4 p + t (block_of_lane), so that the results are dense.
LOCKSTEP_INLINE void store_blocks(float* out, const F32 (&v)[4]) {
  typedef float F4 __attribute__((vector_size(16)));
  F4 q[4][4];
  for (int w = 0; w < 4; ++w) __builtin_memcpy(q[w], &v[w], sizeof q[w]);
  for (int t = 0; t < 4; ++t) {
    const F4 a = __builtin_shufflevector(q[0][t], q[1][t], 0, 4, 1, 5), b = __builtin_shufflevector(q[2][t], q[3][t], 0, 4, 1, 5);
    const F4 c = __builtin_shufflevector(q[0][t], q[1][t], 2, 6, 3, 7), d = __builtin_shufflevector(q[2][t], q[3][t], 2, 6, 3, 7);
    const F4 blocks[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                          __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
    for (int p = 0; p < 4; ++p) __builtin_memcpy(out + 4 * (4 * p + t), &blocks[p], sizeof blocks[p]);
  }
}

LOCKSTEP_INLINE int block_of_lane(int lane) { return 4 * (lane % 4) + lane / 4; }

// The words of 16 blocks that stand in memory from block `first` on.
LOCKSTEP_INLINE Words blocks(const RandomRows& rows, int64_t first, int64_t blocks_per_row) {
  uint32_t c[4][kLanes];
  int64_t row = first / blocks_per_row;
  int64_t block = first % blocks_per_row;
  uint64_t low[kLanes], high[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    low[i] = static_cast<uint64_t>(block);
    high[i] = rows.first_row + static_cast<uint64_t>(row);
    if (++block == blocks_per_row) {
      block = 0;
      ++row;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const int i = block_of_lane(lane);
    c[0][lane] = static_cast<uint32_t>(low[i]);
    c[1][lane] = static_cast<uint32_t>(low[i] >> 32);
    c[2][lane] = static_cast<uint32_t>(high[i]);
    c[3][lane] = static_cast<uint32_t>(high[i] >> 32);
  }
  return philox(rows.key, load(c[0]), load(c[1]), load(c[2]), load(c[3]));
}

// Values(words, out): the four elements of each block, as floats.
template <class T, class Values>
LOCKSTEP_INLINE void generate(const RandomRows& rows, void* out, int64_t begin, int64_t end, Values&& make) {
  auto* y = static_cast<T*>(out);
  const int64_t blocks_per_row = (rows.width + 3) / 4;
  for (int64_t first = begin; first < end; first += kLanes) {
    F32 v[4];
    make(blocks(rows, first, blocks_per_row), v);
    alignas(64) float values[4 * kLanes];
    store_blocks(values, v);
    const int64_t count = end - first < kLanes ? end - first : kLanes;
    if (rows.width % 4 == 0 && count == kLanes) {
      for (int k = 0; k < 4; ++k) store(y + 4 * first + k * kLanes, load(values + k * kLanes));
      continue;
    }
    T elements[4 * kLanes];
    for (int k = 0; k < 4; ++k) store(elements + k * kLanes, load(values + k * kLanes));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = (first + i) / blocks_per_row;
      const int64_t column = (first + i) % blocks_per_row * 4;
      for (int64_t k = 0; k < 4 && column + k < rows.width; ++k) y[row * rows.width + column + k] = elements[4 * i + k];
    }
  }
}

// The upper `Bits` bits of a word as a number in [0, 1).
template <int Bits>
LOCKSTEP_INLINE F32 unit(const U32& word) {
  const I32 bits = bits_as<int32_t>(word >> (32 - Bits));
  F32 r;
  for (int i = 0; i < r.kParts; ++i) r.part[i] = __builtin_convertvector(bits.part[i], F32::Native);
  return r * splat(1.0f / static_cast<float>(1 << Bits));
}

template <class T, int Bits>
void uniform(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  generate<T>(rows, out, begin, end, [](const Words& words, F32 (&v)[4]) __attribute__((always_inline)) {
    for (int k = 0; k < 4; ++k) v[k] = unit<Bits>(words.word[k]);
  });
}

LOCKSTEP_INLINE F32 square_root(const F32& x) {
  F32 r;
  for (int i = 0; i < r.kParts; ++i)
    for (int k = 0; k < r.kWidth; ++k) r.part[i][k] = __builtin_sqrtf(x.part[i][k]);
  return r;
}

// Box-Muller: with u, t uniform, sqrt(-2 ln u) (cos, sin)(2 pi t) are two independent normal numbers.
LOCKSTEP_INLINE void box_muller(const U32& a, const U32& b, F32& x, F32& y) {
  const F32 u = unit<24>(a) + splat(0x1p-24f);  // in (0, 1]
  const F32 radius = square_root(splat(-2.0f) * log(u));
  // A turn is four quarters q and a rest f in [-1/2, 1/2] of a quarter; all of this is exact.
  const F32 turn = unit<24>(b) * splat(4.0f);
  const F32 magic = splat(0x1.8p23f);
  const F32 shifted = turn + magic;
  const F32 f = turn - (shifted - magic);
  const I32 q = bits_as<int32_t>(shifted);
  const F32 f2 = f * f;
  const F32 s = f * (splat(1.57079632197f) + f2 * (splat(-0.645963478642f) + f2 * (splat(0.0796802280644f) + f2 * splat(-0.00460217698871f))));
  const F32 c = splat(1.0f) + f2 * (splat(-1.23370054351f) + f2 * (splat(0.253669247229f) + f2 * (splat(-0.0208603085029f) + f2 * splat(0.000904060569983f))));
  const I32 odd = (q & splat<int32_t>(1)) != splat<int32_t>(0);
  const I32 sine_sign = (q & splat<int32_t>(2)) << 30;
  const I32 cosine_sign = ((q + splat<int32_t>(1)) & splat<int32_t>(2)) << 30;
  const F32 sine = select(odd, c, s);
  const F32 cosine = select(odd, s, c);
  x = radius * bits_as<float>(bits_as<int32_t>(cosine) ^ cosine_sign);
  y = radius * bits_as<float>(bits_as<int32_t>(sine) ^ sine_sign);
}

template <class T>
void normal(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  generate<T>(rows, out, begin, end, [](const Words& words, F32 (&v)[4]) __attribute__((always_inline)) {
    box_muller(words.word[0], words.word[1], v[0], v[1]);
    box_muller(words.word[2], words.word[3], v[2], v[3]);
  });
}

// Booleans travel as the floats 0 and 1 until they are stored.
struct Boolean {
  uint8_t value;
};
LOCKSTEP_INLINE void store(Boolean* p, const F32& v) {
  I32 bits;
  for (int i = 0; i < v.kParts; ++i) bits.part[i] = __builtin_convertvector(v.part[i], I32::Native);
  narrow(reinterpret_cast<uint8_t*>(p), bits);
}

void threshold(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  const auto limit = splat(static_cast<int32_t>(rows.threshold));
  generate<Boolean>(rows, out, begin, end, [&](const Words& words, F32 (&v)[4]) __attribute__((always_inline)) {
    for (int k = 0; k < 4; ++k)
      v[k] = select(bits_as<int32_t>(words.word[k] >> 8) >= limit, splat(1.0f), splat(0.0f));
  });
}

}  // namespace

extern const cpu::RandomTable kRandomTable = {
    uniform<float, 24>, uniform<bfloat16, 8>, uniform<float16, 11>, normal<float>, normal<bfloat16>, normal<float16>, threshold};

}  // namespace lockstep::LOCKSTEP_SIMD
