#include "execute/device_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "execute/compile_test.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::one_thread_devices;

TEST(DeviceThreads, EveryDeviceHasItsOwn) {
  const StepObserver observer;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> arrived{0};
  DeviceThreads work(
      one_thread_devices(3),
      [&](int) {
        {
          const std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
        }
        // All are at work at once.
        ++arrived;
        while (arrived % 3 != 0) std::this_thread::yield();
      },
      [] {}, observer);
  for (int run = 0; run < 5; ++run) work.run();
  EXPECT_EQ(arrived, 15);
  EXPECT_EQ(threads.size(), 3) << "the same ones in every run";
  EXPECT_TRUE(threads.contains(std::this_thread::get_id())) << "the first device's is the caller's";
}

TEST(DeviceThreads, WhatTheFirstOfThoseThatFailedThrewIsThrownWhenAllAreBack) {
  const StepObserver observer;
  std::atomic<bool> released{false};
  std::atomic<int> back{0};
  bool fail = true;
  DeviceThreads work(
      one_thread_devices(4),
      [&](int d) {
        if (fail && (d == 1 || d == 3)) throw std::runtime_error("device " + std::to_string(d));
        while (fail && !released) std::this_thread::yield();
        ++back;
      },
      [&] { released = true; }, observer);
  try {
    work.run();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "device 1");
  }
  EXPECT_EQ(back, 2);
  fail = false;
  work.run();
  EXPECT_EQ(back, 6) << "a failure is forgotten with the next run";
}

TEST(DeviceThreads, AreObservedWhileTheyWait) {
  observe::StepClock clock({.replicas = 2});
  StepObserver observer;
  DeviceThreads work(
      one_thread_devices(2),
      [&](int d) {
        const auto scope = observer.time(d, observe::Category::compute);
        if (d == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      },
      [] {}, observer);
  observer.listen(&clock);
  clock.begin_step();
  work.run();
  clock.end_step();
  const observe::StepRecord first = clock.replica(0).recent().back(),
                            second = clock.replica(1).recent().back();
  EXPECT_GT(first.times[observe::Category::compute], 0);
  EXPECT_GT(second.times[observe::Category::waiting_for_others], 0) << "it had less to do";
}

}  // namespace
}  // namespace lockstep::execute
