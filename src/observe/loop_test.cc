#include "observe/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

namespace lockstep::observe {
namespace {

using testing::HasSubstr;

void make_steps(Loop& loop, int steps, int ms) {
  for (int i = 0; i < steps; ++i) {
    TimedStep step(&loop.clock());
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    step.made();
    loop.look();
  }
}

Loop::Complete with_sums(std::string sums) {
  return [sums = std::move(sums)](RunSummary& summary) { summary.sums = sums; };
}

// Times of this process count, whatever other cases have run in it.
TEST(LoopsOfOwnProcess, TheOneThatTakesLongestIsReportedAlsoWhenItHasGone) {
  EXPECT_EQ(steps(report().summary), 0);
  Loop shorter("the shorter", 1, with_sums("a"));
  make_steps(shorter, 4, 1);
  EXPECT_EQ(report().title, "the shorter");
  auto longer = std::make_unique<Loop>("the longer", 2, with_sums("b"));
  make_steps(*longer, 4, 50);
  EXPECT_EQ(report().title, "the longer");
  EXPECT_EQ(report().summary.replicas.size(), 2U);
  longer.reset();
  const RunReport gone = report();
  EXPECT_EQ(gone.title, "the longer");
  EXPECT_EQ(gone.summary.sums, "b");
  EXPECT_THAT(to_text(gone), HasSubstr("the longer\n4 steps on 2 replicas"));
  RunReport fit = gone;
  fit.title = "fit";
  fit.summary.replicas[0].wall.total *= 2;
  remember(fit);
  EXPECT_EQ(report().title, "fit");
}

TEST(Loop, OfManyShortStepsSomeStandForAll) {
  Loop loop("short steps", 1, [](RunSummary&) {});
  int64_t made = 0, timed = 0;
  for (; made < 4000; ++made)
    if (StepClock* clock = loop.begin()) {
      clock->replica(0).count(Counter::examples, 8);
      loop.end();
      ++timed;
    }
  const RunSummary summary = loop.summary();
  EXPECT_LE(timed, made);
  EXPECT_GE(steps(summary), made - 15) << "those since the last that was timed are yet to come";
  EXPECT_EQ(summary.replicas[0].counts[Counter::examples], 8 * steps(summary));
}

TEST(Loop, AStepThatThrowsIsNone) {
  Loop loop("steps", 1, [](RunSummary&) {});
  const auto failing = [&] {
    TimedStep step(&loop.clock());
    throw std::runtime_error("no");
  };
  EXPECT_THROW(failing(), std::runtime_error);
  EXPECT_FALSE(loop.clock().replica(0).in_step());
  make_steps(loop, 2, 1);
  EXPECT_EQ(steps(loop.summary()), 2);
}

}  // namespace
}  // namespace lockstep::observe
