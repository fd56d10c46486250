#include "lockstep/base/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

TEST(Clock, NeverGoesBackAcrossThreads) {
  const int64_t before = monotonic_ns();
  int64_t between = 0;
  std::thread([&] { between = Clock::system().now_ns(); }).join();
  const int64_t after = monotonic_ns();
  EXPECT_LE(before, between);
  EXPECT_LE(between, after);
}

TEST(Clock, ThreadCpuTimeBelongsToTheCallingThread) {
  // The other thread burns processor time; its own clock starts near zero and this thread's clock
  // must not include what it burnt.
  const int64_t mine_before = thread_cpu_ns();
  int64_t burnt = 0;
  std::thread([&] {
    volatile uint64_t sink = 0;
    const int64_t start = thread_cpu_ns();
    while (thread_cpu_ns() - start < 20'000'000) sink = sink + 1;
    burnt = thread_cpu_ns() - start;
  }).join();
  const int64_t mine = thread_cpu_ns() - mine_before;
  EXPECT_GE(mine, 0);
  EXPECT_LT(mine, burnt);
}

TEST(Clock, SystemIsOneObject) {
  EXPECT_EQ(&Clock::system(), &Clock::system());
  EXPECT_EQ(Clock::system().has_fine_thread_cpu(), Clock::system().has_fine_thread_cpu());
}

}  // namespace
}  // namespace lockstep
