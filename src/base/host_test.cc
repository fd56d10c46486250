#include "lockstep/base/host.h"

#include <gtest/gtest.h>

#include <ctime>

namespace lockstep {
namespace {

TEST(Host, HasTheNameThatTheSystemHas) {
  EXPECT_FALSE(host_name().empty());
  EXPECT_EQ(host_name(), host_name());
  EXPECT_EQ(host_name().find('\0'), std::string::npos);
}

TEST(Host, TellsTheTimeOfDay) {
  const std::time_t before = std::time(nullptr);
  const int64_t ms = milliseconds_since_1970();
  const double seconds = seconds_since_1970();
  const std::time_t after = std::time(nullptr);
  EXPECT_GE(ms, (before - 1) * 1000);
  EXPECT_LE(ms, (after + 1) * 1000);
  EXPECT_GE(seconds, static_cast<double>(ms) / 1000);
  EXPECT_LE(seconds, static_cast<double>(after) + 1);
}

}  // namespace
}  // namespace lockstep
