#include "base/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <set>

namespace lockstep {
namespace {

using testing::ElementsAre;

// The known answers published with the generator, and the order of the words in the arguments.
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(Philox::block(0, 0, 0), ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  constexpr uint64_t kOnes = std::numeric_limits<uint64_t>::max();
  EXPECT_THAT(Philox::block(kOnes, kOnes, kOnes),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(Philox::block(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(PhiloxStream, ReadsItsBlocksInOrder) {
  PhiloxStream stream(7, 11);
  for (uint64_t counter = 0; counter < 3; ++counter)
    for (const uint32_t word : Philox::block(7, 11, counter)) EXPECT_EQ(stream.next(), word);
}

TEST(PhiloxStream, BelowReachesEveryValueAndNoMore) {
  PhiloxStream stream(7, 11);
  std::set<uint32_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(stream.below(5));
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
}

TEST(Philox, IsKnownWhenCompiling) { static_assert(Philox::block(0, 0, 0)[0] == 0x6627e8d5u); }

// A change of one bit anywhere changes about half of the bits of the block.
TEST(Philox, EveryBitOfKeyAndCounterMatters) {
  const auto base = Philox::block(1, 2, 3);
  const auto distance = [&](const std::array<uint32_t, 4>& other) {
    int bits = 0;
    for (size_t i = 0; i < 4; ++i) bits += std::popcount(base[i] ^ other[i]);
    return bits;
  };
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t flip = uint64_t{1} << bit;
    for (const int bits : {distance(Philox::block(1 ^ flip, 2, 3)), distance(Philox::block(1, 2 ^ flip, 3)),
                           distance(Philox::block(1, 2, 3 ^ flip))}) {
      EXPECT_GT(bits, 32) << bit;
      EXPECT_LT(bits, 96) << bit;
    }
  }
}

TEST(PhiloxStream, StreamsOfOneKeyDiffer) {
  PhiloxStream a(7, 0), b(7, 1), c(8, 0);
  std::set<uint32_t> words;
  for (int i = 0; i < 100; ++i) {
    words.insert(a.next());
    words.insert(b.next());
    words.insert(c.next());
  }
  EXPECT_GE(words.size(), 299u);
}

}  // namespace
}  // namespace lockstep
