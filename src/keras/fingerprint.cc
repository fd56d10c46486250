#include "keras/fingerprint.h"

#include <array>
#include <bit>
#include <cstring>

namespace lockstep::keras {
namespace {

constexpr uint64_t kPrime0 = 0xc3a5c85c97cb3127, kPrime1 = 0xb492b66fbe98f273, kPrime2 = 0x9ae16a3b2f90404f;

// Little-endian, as every processor that this runs on.
uint64_t word(const char* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
uint64_t half_word(const char* at) {
  uint32_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint64_t folded(uint64_t x) { return x ^ (x >> 47); }

uint64_t mixed(uint64_t u, uint64_t v, uint64_t factor) {
  const uint64_t a = folded((u ^ v) * factor);
  return folded((v ^ a) * factor) * factor;
}

uint64_t of_16(const char* s, uint64_t n) {
  const uint64_t factor = kPrime2 + n * 2;
  if (n >= 8) {
    const uint64_t a = word(s) + kPrime2, b = word(s + n - 8);
    return mixed(std::rotr(b, 37) * factor + a, (std::rotr(a, 25) + b) * factor, factor);
  }
  if (n >= 4) return mixed(n + (half_word(s) << 3), half_word(s + n - 4), factor);
  if (n == 0) return kPrime2;
  const auto byte = [&](uint64_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(s[i])); };
  const uint64_t y = byte(0) + (byte(n >> 1) << 8), z = n + (byte(n - 1) << 2);
  return folded(y * kPrime2 ^ z * kPrime0) * kPrime2;
}

uint64_t of_32(const char* s, uint64_t n) {
  const uint64_t factor = kPrime2 + n * 2;
  const uint64_t a = word(s) * kPrime1, b = word(s + 8), c = word(s + n - 8) * factor,
                 d = word(s + n - 16) * kPrime2;
  return mixed(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + kPrime2, 18) + c, factor);
}

uint64_t of_64(const char* s, uint64_t n) {
  const uint64_t factor = kPrime2 + n * 2;
  const uint64_t a = word(s) * kPrime2, b = word(s + 8), c = word(s + n - 8) * factor,
                 d = word(s + n - 16) * kPrime2;
  const uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
  const uint64_t z = mixed(y, a + std::rotr(b + kPrime2, 18) + c, factor);
  const uint64_t e = word(s + 16) * factor, f = word(s + 24), g = (y + word(s + n - 32)) * factor,
                 h = (z + word(s + n - 24)) * factor;
  return mixed(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, factor);
}

struct Pair {
  uint64_t first = 0, second = 0;
};

Pair of_block(const char* s, uint64_t a, uint64_t b) {
  a += word(s);
  b = std::rotr(b + a + word(s + 24), 21);
  const uint64_t c = a;
  a += word(s + 8) + word(s + 16);
  b += std::rotr(a, 44);
  return {a + word(s + 24), b + c};
}

uint64_t of_many(const char* s, uint64_t n) {
  constexpr uint64_t kSeed = 81;
  uint64_t x = kSeed * kPrime2 + word(s), y = kSeed * kPrime1 + 113;
  uint64_t z = folded(y * kPrime2 + 113) * kPrime2;
  Pair v, w;
  const uint64_t rest = (n - 1) & 63;
  const char* const end = s + (n - 1) / 64 * 64;
  const char* const last = end + rest - 63;
  const auto round = [&](uint64_t factor, uint64_t of_w, uint64_t of_v) {
    x = std::rotr(x + y + v.first + word(s + 8), 37) * factor;
    y = std::rotr(y + v.second + word(s + 48), 42) * factor;
    x ^= w.second * of_w;
    y += v.first * of_v + word(s + 40);
    z = std::rotr(z + w.first, 33) * factor;
    v = of_block(s, v.second * factor, x + w.first);
    w = of_block(s + 32, z + w.second, y + word(s + 16));
    std::swap(z, x);
  };
  for (; s != end; s += 64) round(kPrime1, 1, 1);
  const uint64_t factor = kPrime1 + ((z & 0xff) << 1);
  s = last;
  w.first += rest;
  v.first += w.first;
  w.first += v.first;
  round(factor, 9, 9);
  return mixed(mixed(v.first, w.first, factor) + folded(y) * kPrime0 + z,
               mixed(v.second, w.second, factor) + x, factor);
}

}  // namespace

uint64_t farm_fingerprint(std::string_view text) {
  const uint64_t n = text.size();
  if (n <= 16) return of_16(text.data(), n);
  if (n <= 32) return of_32(text.data(), n);
  return n <= 64 ? of_64(text.data(), n) : of_many(text.data(), n);
}

uint64_t joined_fingerprint(uint64_t first, uint64_t second) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995;
  const uint64_t joined = (first ^ kFactor ^ folded(second * kFactor) * kFactor) * kFactor;
  return folded(folded(joined) * kFactor);
}

uint64_t sip_hash(std::string_view text, std::pair<uint64_t, uint64_t> key) {
  std::array<uint64_t, 4> v = {key.first ^ 0x736f6d6570736575, key.second ^ 0x646f72616e646f6d,
                               key.first ^ 0x6c7967656e657261, key.second ^ 0x7465646279746573};
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v[0] += v[1], v[2] += v[3];
      v[1] = std::rotl(v[1], 13) ^ v[0], v[3] = std::rotl(v[3], 16) ^ v[2];
      v[0] = std::rotl(v[0], 32);
      v[2] += v[1], v[0] += v[3];
      v[1] = std::rotl(v[1], 17) ^ v[2], v[3] = std::rotl(v[3], 21) ^ v[0];
      v[2] = std::rotl(v[2], 32);
    }
  };
  const auto take = [&](uint64_t m) {
    v[3] ^= m;
    rounds(2);
    v[0] ^= m;
  };
  const size_t whole = text.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) take(word(text.data() + i));
  uint64_t last = static_cast<uint64_t>(text.size()) << 56;
  for (size_t i = whole; i < text.size(); ++i)
    last |= static_cast<uint64_t>(static_cast<uint8_t>(text[i])) << (8 * (i - whole));
  take(last);
  v[2] ^= 0xff;
  rounds(4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

}  // namespace lockstep::keras
