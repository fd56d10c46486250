// Philox4x32-10: counter-based random numbers (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A block depends on its key and counter alone, so any part of a random sequence
// can be made anywhere, in any order, with the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

struct Philox {
  // Four random words. In the paper's terms the low half of each argument is the earlier word:
  // counter words 0 and 1 come from counter_lo, 2 and 3 from counter_hi.
  static constexpr std::array<uint32_t, 4> block(uint64_t key, uint64_t counter_hi, uint64_t counter_lo) {
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    uint32_t c0 = static_cast<uint32_t>(counter_lo), c1 = static_cast<uint32_t>(counter_lo >> 32);
    uint32_t c2 = static_cast<uint32_t>(counter_hi), c3 = static_cast<uint32_t>(counter_hi >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return {c0, c1, c2, c3};
  }
};

// Reads the blocks (key, stream, 0), (key, stream, 1), ... word by word. A value type; not thread-safe.
class PhiloxStream {
 public:
  constexpr PhiloxStream(uint64_t key, uint64_t stream) : key_(key), stream_(stream) {}

  constexpr uint32_t next() {
    if (used_ == block_.size()) {
      block_ = Philox::block(key_, stream_, counter_++);
      used_ = 0;
    }
    return block_[used_++];
  }

  // Uniform in [0, n); the bias is below n / 2^32.
  constexpr uint32_t below(uint32_t n) { return static_cast<uint32_t>(uint64_t{next()} * n >> 32); }

 private:
  uint64_t key_;
  uint64_t stream_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> block_{};
  size_t used_ = 4;
};

}  // namespace lockstep
