// SHA-256 (FIPS 180-4): tells whether a file is the one that was meant, and (HMAC, RFC 2104) whether a peer
// knows a secret.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace lockstep {

class Sha256 {
 public:
  Sha256& update(std::string_view bytes);
  // The digest of everything so far, in lower-case hexadecimal digits. Ends the object's use.
  std::string finish();
  // The same as 32 bytes.
  std::string finish_bytes();

 private:
  void block(const uint8_t* bytes);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  uint64_t size_ = 0;  // bytes so far; the last size_ % 64 of them are pending
};

std::string sha256_of_file(const std::string& path,
                           std::source_location where = std::source_location::current());

// HMAC-SHA256 of the message: 32 bytes that only who knows the key can make.
std::string hmac_sha256(std::string_view key, std::string_view message);

}  // namespace lockstep
