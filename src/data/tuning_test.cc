#include "data/tuning.h"

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

constexpr double kInterval = 100e6;
constexpr TuningLimits kFree{.threads = 8, .bytes = int64_t{1} << 30};

Setting tuned(const Load& load, const TuningLimits& limits = kFree) {
  return tune(std::span(&load, 1), kInterval, limits)[0];
}

// 100 ms of one thread's work of 10 ms per element, for a consumer that does nothing but wait.
Load starving() {
  return {.tunes_threads = true,
          .tunes_slots = true,
          .made = 10,
          .taken = 10,
          .work_ns = 100e6,
          .fetch_ns = 0.1e6,
          .consumer_wait_ns = 99e6,
          .ran_empty = true};
}

TEST(Tuning, AStarvingConsumerGetsAllThreadsAtOnce) {
  EXPECT_EQ(tuned(starving()).threads, 8);
  EXPECT_EQ(tuned(starving()).slots, 16) << "two for each thread";
  EXPECT_EQ(tuned(starving(), {.threads = 2, .bytes = 1 << 30}).threads, 2);
}

TEST(Tuning, AsManyThreadsAsTheConsumerNeeds) {
  Load load = starving();
  // The consumer's own work is 4 ms per element: 10 / 4 and some headroom.
  load.consumer_wait_ns = 60e6;
  EXPECT_EQ(tuned(load).threads, 3);
  // It keeps up.
  load.consumer_wait_ns = 0;
  load.work_ns = 80e6;
  EXPECT_EQ(tuned(load).threads, 1);
}

TEST(Tuning, FetchingByOneThreadSetsThePaceOfAll) {
  Load load = starving();
  load.work_ns = 50e6;
  load.fetch_ns = 50e6;
  EXPECT_EQ(tuned(load).threads, 3) << "two of them keep one fetching, and headroom";
  load.work_ns = 5e6;
  load.fetch_ns = 95e6;
  EXPECT_EQ(tuned(load).threads, 2);
}

TEST(Tuning, ThreadsThatMostlyWaitAreGivenBackOneByOne) {
  Load load = starving();
  load.threads = 8;
  load.consumer_wait_ns = 0;
  load.work_ns = 150e6;
  EXPECT_EQ(tuned(load).threads, 7);
  load.threads = 2;
  EXPECT_EQ(tuned(load).threads, 2);
  load.work_ns = 60e6;
  EXPECT_EQ(tuned(load).threads, 1);
  load.threads = 1;
  load.work_ns = 1e6;
  EXPECT_EQ(tuned(load).threads, 1);
}

TEST(Tuning, StagesShareTheCoresByTheirWork) {
  Load heavy = starving(), light = starving(), fixed = starving();
  light.work_ns = 30e6;
  fixed.tunes_threads = fixed.tunes_slots = false;
  fixed.threads = 3;
  const auto settings = tune(std::vector{heavy, light}, kInterval, kFree);
  EXPECT_EQ(settings[0].threads, 6);
  EXPECT_EQ(settings[1].threads, 2);
  const auto with_fixed = tune(std::vector{heavy, fixed}, kInterval, kFree);
  EXPECT_EQ(with_fixed[0].threads, 4);
  EXPECT_EQ(with_fixed[1], (Setting{.threads = 3, .slots = 2})) << "what the user said stays";
  light.work_ns = 1e6;
  EXPECT_EQ(tune(std::vector{heavy, light}, kInterval, {.threads = 2, .bytes = 1 << 30})[0].threads, 2)
      << "a stage that does next to nothing takes no core";
}

TEST(Tuning, NothingMadeNothingChanged) {
  Load load = starving();
  load.made = load.taken = 0;
  load.threads = 3;
  EXPECT_EQ(tuned(load).threads, 3);
}

Load buffer(int64_t slots) {
  return {.tunes_slots = true, .slots = slots, .made = 10, .taken = 10, .element_bytes = 1 << 20};
}

TEST(Tuning, ABufferThatWasFullAndRanEmptyDoublesUnderTheBudget) {
  Load load = buffer(4);
  load.ran_empty = true;
  EXPECT_EQ(tuned(load).slots, 4) << "never full: more room would stay empty";
  load.ran_full = true;
  EXPECT_EQ(tuned(load).slots, 8);
  EXPECT_EQ(tuned(load, {.threads = 8, .bytes = 8 << 20}).slots, 8);
  EXPECT_EQ(tuned(load, {.threads = 8, .bytes = 7 << 20}).slots, 4);
  const auto both = tune(std::vector{load, load}, kInterval, {.threads = 8, .bytes = 12 << 20});
  EXPECT_EQ(both[0].slots + both[1].slots, 12) << "one of them";
}

TEST(Tuning, ABufferOfWhichHalfIsNeverUsedShrinksAfterAWhile) {
  Load load = buffer(16);
  load.least_ready = 9;
  load.looks_with_half_empty = 3;
  EXPECT_EQ(tuned(load), (Setting{.threads = 1, .slots = 16, .looks_with_half_empty = 4}));
  load.looks_with_half_empty = kLooksBeforeShrinking - 1;
  EXPECT_EQ(tuned(load), (Setting{.threads = 1, .slots = 8, .looks_with_half_empty = 0}));
  load.least_ready = 8;
  EXPECT_EQ(tuned(load), (Setting{.threads = 1, .slots = 16, .looks_with_half_empty = 0})) << "it was used";
  load = buffer(2);
  load.least_ready = 2;
  load.looks_with_half_empty = kLooksBeforeShrinking;
  EXPECT_EQ(tuned(load).slots, 2);
}

TEST(Tuning, BuffersOfElementsThatGrewGiveWay) {
  const auto settings = tune(std::vector{buffer(16), buffer(4)}, kInterval, {.threads = 8, .bytes = 9 << 20});
  EXPECT_EQ(settings[0].slots, 4);
  EXPECT_EQ(settings[1].slots, 4);
  Load load = starving();
  load.element_bytes = 1 << 20;
  EXPECT_EQ(tuned(load, {.threads = 8, .bytes = 3 << 20}), (Setting{.threads = 2, .slots = 2}))
      << "a thread holds an element too";
  EXPECT_EQ(tuned(load, {.threads = 8, .bytes = 1}).slots, 1) << "one there must be";
}

}  // namespace
}  // namespace lockstep::data
