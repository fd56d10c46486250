#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/file.h"

namespace lockstep {
namespace {

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRounds{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

void Sha256::block(const uint8_t* bytes) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i)
    w[i] = uint32_t{bytes[4 * i]} << 24 | uint32_t{bytes[4 * i + 1]} << 16 | uint32_t{bytes[4 * i + 2]} << 8 |
           uint32_t{bytes[4 * i + 3]};
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += mixed[i];
}

Sha256& Sha256::update(std::string_view bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  while (left > 0) {
    const size_t used = size_ % 64;
    const size_t taken = std::min(left, 64 - used);
    if (taken == 64) {
      block(data);
    } else {
      std::copy_n(data, taken, pending_.begin() + used);
      if (used + taken == 64) block(pending_.data());
    }
    data += taken;
    left -= taken;
    size_ += taken;
  }
  return *this;
}

std::string Sha256::finish_bytes() {
  const uint64_t bits = size_ * 8;
  std::string padding("\x80");
  padding.resize((size_ % 64 < 56 ? 56 : 120) - size_ % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) padding.push_back(static_cast<char>(bits >> shift));
  update(padding);
  std::string bytes;
  for (const uint32_t word : state_)
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(word >> shift));
  return bytes;
}

std::string Sha256::finish() {
  std::string digits;
  for (const char byte : finish_bytes())
    for (const int shift : {4, 0})
      digits.push_back("0123456789abcdef"[static_cast<uint8_t>(byte) >> shift & 15]);
  return digits;
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  constexpr size_t kBlock = 64;
  std::string padded(key);
  if (padded.size() > kBlock) padded = Sha256().update(key).finish_bytes();
  padded.resize(kBlock, '\0');
  std::string inner = padded, outer = padded;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return Sha256().update(outer).update(Sha256().update(inner).update(message).finish_bytes()).finish_bytes();
}

std::string sha256_of_file(const std::string& path, std::source_location where) {
  const InputFile file(path, where);
  std::vector<char> buffer(size_t{1} << 20);
  Sha256 hash;
  for (uint64_t offset = 0; offset < file.size();) {
    const size_t bytes = std::min<uint64_t>(buffer.size(), file.size() - offset);
    file.read_at(offset, buffer.data(), bytes, where);
    hash.update({buffer.data(), bytes});
    offset += bytes;
  }
  return hash.finish();
}

}  // namespace lockstep
