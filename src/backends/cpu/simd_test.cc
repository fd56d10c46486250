#include "backends/cpu/simd.h"

#include <gtest/gtest.h>

namespace lockstep::cpu {
namespace {

constexpr SimdLevels kAll{.v2 = true, .v3 = true, .v4 = true};

TEST(SimdLevel, IsTheHighestThatWasCompiledAndRuns) {
  EXPECT_EQ(highest_level(kAll, SimdLevel::v2), SimdLevel::v2);
  EXPECT_EQ(highest_level(kAll, SimdLevel::v3), SimdLevel::v3);
  EXPECT_EQ(highest_level(kAll, SimdLevel::v4), SimdLevel::v4);
  EXPECT_EQ(highest_level({.v2 = true, .v3 = true, .v4 = false}, SimdLevel::v4), SimdLevel::v3);
  EXPECT_EQ(highest_level({.v2 = false, .v3 = true, .v4 = false}, SimdLevel::v4), SimdLevel::v3);
}

TEST(SimdLevel, IsNoneWhereTheProcessorIsOlderThanAllThatWereCompiled) {
  EXPECT_EQ(highest_level({.v2 = false, .v3 = false, .v4 = true}, SimdLevel::v3), std::nullopt);
  EXPECT_EQ(highest_level({.v2 = false, .v3 = true, .v4 = false}, SimdLevel::v2), std::nullopt);
}

}  // namespace
}  // namespace lockstep::cpu
