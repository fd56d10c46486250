// Cases that pass, fail, skip, crash and hang, for the tests of run_tests.py.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

namespace {

int started = 0;  // cases of this process so far

TEST(Passes, First) { ++started; }
TEST(Passes, Second) { ++started; }
TEST(Passes, PrintsWithoutANewline) { std::printf("half a line"); }
TEST(Passes, LongOne) {}

TEST(PassesOwnProcess, First) { EXPECT_EQ(started++, 0); }
TEST(PassesOwnProcess, Second) { EXPECT_EQ(started++, 0); }

class Numbers : public testing::TestWithParam<int> {};
TEST_P(Numbers, AreBelowTwo) { EXPECT_LT(GetParam(), 2) << "what the number was compared with"; }
INSTANTIATE_TEST_SUITE_P(All, Numbers, testing::Range(0, 3));

TEST(Skips, WithoutADevice) { GTEST_SKIP() << "there is no\nsuch device"; }
TEST(Skips, WithoutADeviceEither) { GTEST_SKIP() << "there is no such device"; }

TEST(Crashes, Before) { ++started; }
TEST(Crashes, Here) {
  std::printf("the last words\n");
  std::fflush(stdout);
  std::raise(SIGKILL);
}
TEST(Crashes, HereToo) { std::raise(SIGABRT); }
TEST(Crashes, Behind) {}

TEST(Leaves, WithStatusZero) { _exit(0); }
TEST(Leaves, Behind) {}

TEST(Hangs, Forever) { std::this_thread::sleep_for(std::chrono::hours(1)); }
TEST(Hangs, Behind) {}

class FailsAfterwards : public testing::Environment {
  void TearDown() override {
    if (testing::GTEST_FLAG(filter).find("Afterwards") != std::string::npos) _exit(7);
  }
};
const auto* const fails_afterwards = testing::AddGlobalTestEnvironment(new FailsAfterwards);
TEST(Afterwards, TheProcessFails) {}

}  // namespace
