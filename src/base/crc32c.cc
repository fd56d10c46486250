#include "lockstep/base/crc32c.h"

#include <nmmintrin.h>

#include <cstring>

namespace lockstep {

// The instruction is part of x86-64-v2, the lowest level that Lockstep's vector code is compiled for.
__attribute__((target("sse4.2"))) uint32_t crc32c(std::string_view bytes, uint32_t before) {
  uint64_t crc = ~before;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto last = static_cast<uint32_t>(crc);
  for (const char byte : bytes) last = _mm_crc32_u8(last, static_cast<uint8_t>(byte));
  return ~last;
}

}  // namespace lockstep
