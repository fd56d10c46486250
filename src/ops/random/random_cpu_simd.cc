#include "ops/random/random_cpu_simd.h"

#include "backends/cpu/simd_math.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::RandomRows;

using Wide [[gnu::vector_size(kNativeBytes)]] = uint64_t;

// The product of the low halves of each 64 bits.
LOCKSTEP_INLINE Wide multiply_low_halves(Wide a, Wide b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Wide>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Wide>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<Wide>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}

struct Words {
  U32 word[4];
};

// Philox4x32-10 (base/philox.h) of 16 counters under one key. A product needs 64 bits, so the even lanes of a
// vector go one way and the odd ones another, each word in the low half of 64 bits; what is in the high half
// never matters.
LOCKSTEP_INLINE Words philox(uint64_t key, const U32& c0, const U32& c1, const U32& c2, const U32& c3) {
  Words result;
  LOCKSTEP_EACH_PART(i, c0) {
    Wide even[4] = {reinterpret_cast<Wide>(c0.part[i]), reinterpret_cast<Wide>(c1.part[i]),
                    reinterpret_cast<Wide>(c2.part[i]), reinterpret_cast<Wide>(c3.part[i])};
    Wide odd[4] = {even[0] >> 32, even[1] >> 32, even[2] >> 32, even[3] >> 32};
    auto k0 = static_cast<uint32_t>(key);
    auto k1 = static_cast<uint32_t>(key >> 32);
    const auto round = [&](Wide(&c)[4]) __attribute__((always_inline)) {
      const Wide p0 = multiply_low_halves(c[0], 0xD2511F53u - Wide{});
      const Wide p1 = multiply_low_halves(c[2], 0xCD9E8D57u - Wide{});
      c[0] = (p1 >> 32) ^ c[1] ^ (k0 - Wide{});
      c[1] = p1;
      c[2] = (p0 >> 32) ^ c[3] ^ (k1 - Wide{});
      c[3] = p0;
    };
    LOCKSTEP_UNROLL
    for (int r = 0; r < 10; ++r) {
      round(even);
      round(odd);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    LOCKSTEP_UNROLL
    for (int w = 0; w < 4; ++w)
      result.word[w].part[i] =
          reinterpret_cast<U32::Native>((even[w] & (0xffffffffu - Wide{})) | (odd[w] << 32));
  }
  return result;
}

// Blocks stand in the lanes in one of two orders: as in memory, or so that blocks_in_memory() need not move
// anything across 128 bits.
enum class Order { natural, turned };
template <Order order>
constexpr int block_of_lane(int lane) {
  return order == Order::natural ? lane : 4 * (lane % 4) + lane / 4;
}

// Where a walk through the blocks stands: rows are `blocks_per_row` long.
struct Position {
  int64_t row, block;
};

// The words of the 16 blocks from `at` on.
template <Order order>
LOCKSTEP_INLINE Words blocks(const RandomRows& rows, const Position& at, int64_t blocks_per_row) {
  uint32_t offset[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) offset[lane] = static_cast<uint32_t>(block_of_lane<order>(lane));
  const auto first = static_cast<uint64_t>(at.block);
  const uint64_t row = rows.first_row + static_cast<uint64_t>(at.row);
  U32 counter[4];
  if (at.block + kLanes <= blocks_per_row && (first + kLanes) >> 32 == first >> 32) {
    counter[0] = splat(static_cast<uint32_t>(first)) + load(offset);
    counter[1] = splat(static_cast<uint32_t>(first >> 32));
    counter[2] = splat(static_cast<uint32_t>(row));
    counter[3] = splat(static_cast<uint32_t>(row >> 32));
  } else {  // The blocks lie in more than one row.
    uint64_t low[kLanes], high[kLanes];
    Position walk = at;
    for (int i = 0; i < kLanes; ++i) {
      low[i] = static_cast<uint64_t>(walk.block);
      high[i] = rows.first_row + static_cast<uint64_t>(walk.row);
      if (++walk.block == blocks_per_row) walk = {walk.row + 1, 0};
    }
    uint32_t words[4][kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t i = offset[lane];
      words[0][lane] = static_cast<uint32_t>(low[i]);
      words[1][lane] = static_cast<uint32_t>(low[i] >> 32);
      words[2][lane] = static_cast<uint32_t>(high[i]);
      words[3][lane] = static_cast<uint32_t>(high[i] >> 32);
    }
    for (int k = 0; k < 4; ++k) counter[k] = load(words[k]);
  }
  return philox(rows.key, counter[0], counter[1], counter[2], counter[3]);
}

// f(elements of 16 blocks, where to put them) for the blocks [begin, end). Whole blocks go straight to
// memory; others through a buffer of 64 elements.
template <class T, Order order, class Make>
LOCKSTEP_INLINE void generate(const RandomRows& rows, void* out, int64_t begin, int64_t end, Make&& make) {
  auto* y = static_cast<T*>(out);
  const int64_t blocks_per_row = (rows.width + 3) / 4;
  Position at{begin / blocks_per_row, begin % blocks_per_row};
  for (int64_t first = begin; first < end; first += kLanes) {
    const Words words = blocks<order>(rows, at, blocks_per_row);
    const int64_t count = end - first < kLanes ? end - first : kLanes;
    const bool whole = rows.width % 4 == 0 && count == kLanes;
    // One call of make(): all of it is inlined, and twice the code is twice the work for the compiler.
    T elements[4 * kLanes];
    make(words, whole ? y + 4 * first : elements);
    if (whole) {
      at.block += kLanes;
      while (at.block >= blocks_per_row) at = {at.row + 1, at.block - blocks_per_row};
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t column = 4 * at.block;
      for (int64_t k = 0; k < 4 && column + k < rows.width; ++k)
        y[at.row * rows.width + column + k] = elements[4 * i + k];
      if (++at.block == blocks_per_row) at = {at.row + 1, 0};
    }
  }
}

// Word 0, 1, 2 and 3 of each block, as floats, become the blocks one after the other (order `turned`).
template <class T>
LOCKSTEP_INLINE void blocks_in_memory(const F32 (&v)[4], T* out) {
  F32 memory[4];
  LOCKSTEP_EACH_PART(i, v[0]) {
    const auto a = v[0].part[i], b = v[1].part[i], c = v[2].part[i], d = v[3].part[i];
#if defined(__AVX512F__)
#define LOCKSTEP_LOW(x, y) \
  __builtin_shufflevector(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define LOCKSTEP_HIGH(x, y) \
  __builtin_shufflevector(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOCKSTEP_LOW2(x, y) \
  __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define LOCKSTEP_HIGH2(x, y) \
  __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#elif defined(__AVX2__)
#define LOCKSTEP_LOW(x, y) __builtin_shufflevector(x, y, 0, 8, 1, 9, 4, 12, 5, 13)
#define LOCKSTEP_HIGH(x, y) __builtin_shufflevector(x, y, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOCKSTEP_LOW2(x, y) __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13)
#define LOCKSTEP_HIGH2(x, y) __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15)
#else
#define LOCKSTEP_LOW(x, y) __builtin_shufflevector(x, y, 0, 4, 1, 5)
#define LOCKSTEP_HIGH(x, y) __builtin_shufflevector(x, y, 2, 6, 3, 7)
#define LOCKSTEP_LOW2(x, y) __builtin_shufflevector(x, y, 0, 1, 4, 5)
#define LOCKSTEP_HIGH2(x, y) __builtin_shufflevector(x, y, 2, 3, 6, 7)
#endif
    const auto ab = LOCKSTEP_LOW(a, b), cd = LOCKSTEP_LOW(c, d), ab2 = LOCKSTEP_HIGH(a, b),
               cd2 = LOCKSTEP_HIGH(c, d);
    memory[0].part[i] = LOCKSTEP_LOW2(ab, cd);
    memory[1].part[i] = LOCKSTEP_HIGH2(ab, cd);
    memory[2].part[i] = LOCKSTEP_LOW2(ab2, cd2);
    memory[3].part[i] = LOCKSTEP_HIGH2(ab2, cd2);
#undef LOCKSTEP_LOW
#undef LOCKSTEP_HIGH
#undef LOCKSTEP_LOW2
#undef LOCKSTEP_HIGH2
  }
  LOCKSTEP_UNROLL
  for (int k = 0; k < 4; ++k) store(out + k * kLanes, memory[k]);
}

// The upper `Bits` bits of a word as a number in [0, 1).
template <int Bits>
LOCKSTEP_INLINE F32 unit(const U32& word) {
  const I32 bits = bits_as<int32_t>(word >> (32 - Bits));
  F32 r;
  LOCKSTEP_EACH_PART(i, r) r.part[i] = __builtin_convertvector(bits.part[i], F32::Native);
  return r * splat(1.0f / static_cast<float>(1 << Bits));
}

template <class T, int Bits>
void uniform(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  generate<T, Order::turned>(
      rows, out, begin, end, [](const Words& words, T* y) __attribute__((always_inline)) {
        F32 v[4];
        LOCKSTEP_UNROLL
        for (int k = 0; k < 4; ++k) v[k] = unit<Bits>(words.word[k]);
        blocks_in_memory(v, y);
      });
}

LOCKSTEP_INLINE F32 square_root(const F32& x) {
  F32 r;
  LOCKSTEP_EACH_PART(i, r)
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
  const F32 s =
      f * (splat(1.57079632197f) +
           f2 * (splat(-0.645963478642f) + f2 * (splat(0.0796802280644f) + f2 * splat(-0.00460217698871f))));
  const F32 c =
      splat(1.0f) +
      f2 * (splat(-1.23370054351f) +
            f2 * (splat(0.253669247229f) + f2 * (splat(-0.0208603085029f) + f2 * splat(0.000904060569983f))));
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
  generate<T, Order::turned>(
      rows, out, begin, end, [](const Words& words, T* y) __attribute__((always_inline)) {
        F32 v[4];
        box_muller(words.word[0], words.word[1], v[0], v[1]);
        box_muller(words.word[2], words.word[3], v[2], v[3]);
        blocks_in_memory(v, y);
      });
}

// The four booleans of a block are the four bytes of one word.
void threshold(const RandomRows& rows, void* out, int64_t begin, int64_t end) {
  const I32 limit = splat(static_cast<int32_t>(rows.threshold));
  generate<uint8_t, Order::natural>(
      rows, out, begin, end, [&](const Words& words, uint8_t* y) __attribute__((always_inline)) {
        I32 bytes = splat<int32_t>(0);
        LOCKSTEP_UNROLL
        for (int k = 0; k < 4; ++k) {
          const I32 hit = bits_as<int32_t>(words.word[k] >> 8) >= limit;
          bytes = bytes | (hit & splat(static_cast<int32_t>(1u << (8 * k))));
        }
        __builtin_memcpy(y, &bytes, sizeof bytes);
      });
}

}  // namespace

extern const cpu::RandomTable kRandomTable = {uniform<float, 24>, uniform<BFloat16, 8>, uniform<Float16, 11>,
                                              normal<float>,      normal<BFloat16>,     normal<Float16>,
                                              threshold};

}  // namespace lockstep::LOCKSTEP_SIMD
