#include "lockstep/observe/step_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/observe/span.h"
#include "observe/fake_clock.h"
#include "observe/thread_times.h"

namespace lockstep::observe {
namespace {

using testing::HasSubstr;

int64_t sum(const Times& times) {
  return std::accumulate(times.values.begin(), times.values.end(), int64_t{0});
}

class StepClockTest : public testing::Test {
 protected:
  FakeClock time_;
  StepClock clock_{{.replicas = 2, .recent = 3, .measure_descheduled_every = 1, .clock = &time_}};
  ReplicaClock& replica_ = clock_.replica(0);
};

TEST_F(StepClockTest, ScopesExcludeEachOtherAndTheRestIsUnattributed) {
  time_.run(99);
  replica_.begin_step();
  time_.run(5);
  {
    TimeScope compute(&replica_, Category::compute);
    time_.run(10);
    {
      TimeScope copy(&replica_, Category::copy);
      time_.run(3);
      TimeScope inner(&replica_, Category::compute);
      time_.run(1);
    }
    time_.run(20);
  }
  {
    TimeScope host(&replica_, Category::host);
    time_.run(2);
  }
  const StepRecord step = replica_.end_step();
  EXPECT_EQ(step.index, 0);
  EXPECT_EQ(step.wall_ns, 41);
  EXPECT_EQ(step.times[Category::compute], 31);
  EXPECT_EQ(step.times[Category::copy], 3);
  EXPECT_EQ(step.times[Category::host], 2);
  EXPECT_EQ(step.times[Category::unattributed], 5);
  EXPECT_EQ(step.times[Category::idle], 0);
  EXPECT_EQ(sum(step.times), step.wall_ns);
}

TEST_F(StepClockTest, TimeOffTheProcessorIsDescheduledOnlyWhereTheThreadRuns) {
  replica_.begin_step();
  {
    TimeScope compute(&replica_, Category::compute);
    time_.run(4);
    time_.sleep(6);
    {
      TimeScope wait(&replica_, Category::input_wait);
      time_.sleep(7);
    }
    time_.run(1);
  }
  {
    TimeScope device(&replica_, Category::compute, ThreadState::blocks);
    time_.sleep(30);
  }
  {
    TimeScope barrier(&replica_, Category::waiting_for_others);  // a spinning wait is still a wait
    time_.run(8);
  }
  const StepRecord step = replica_.end_step();
  EXPECT_TRUE(step.measured_descheduled);
  EXPECT_EQ(step.times[Category::compute], 35);
  EXPECT_EQ(step.times[Category::descheduled], 6);
  EXPECT_EQ(step.times[Category::input_wait], 7);
  EXPECT_EQ(step.times[Category::waiting_for_others], 8);
  EXPECT_EQ(sum(step.times), step.wall_ns);
}

TEST_F(StepClockTest, ASegmentHandedToAnotherThreadIsNotTakenForDescheduled) {
  replica_.begin_step();
  replica_.enter(Category::host);
  time_.run(10);
  std::thread([&] {
    time_.run(10);
    replica_.leave();  // its processor time started at zero: no statement about the 20 ns
    TimeScope compute(&replica_, Category::compute);
    time_.run(5);
    time_.sleep(2);
  }).join();
  const StepRecord step = replica_.end_step();
  EXPECT_EQ(step.times[Category::host], 20);
  EXPECT_EQ(step.times[Category::compute], 5);
  EXPECT_EQ(step.times[Category::descheduled], 2);
}

TEST_F(StepClockTest, ScopesMayStayOpenAcrossStepsAndTimeBetweenStepsIsKeptApart) {
  {
    TimeScope host(&replica_, Category::host);
    time_.run(1000);  // before the first step: belongs to no run
    replica_.begin_step();
    time_.run(10);
    EXPECT_EQ(replica_.end_step().times[Category::host], 10);
    time_.run(4);
    {
      TimeScope wait(&replica_, Category::input_wait);
      time_.sleep(6);
    }
    replica_.begin_step();
    time_.run(20);
    EXPECT_EQ(replica_.end_step().times[Category::host], 20);
  }
  const ReplicaSummary summary = clock_.summary().replicas[0];
  EXPECT_EQ(summary.outside_ns, 10);
  EXPECT_EQ(summary.outside[Category::host], 4);
  EXPECT_EQ(summary.outside[Category::input_wait], 6);
  EXPECT_EQ(summary.wall.total, 30);
}

TEST_F(StepClockTest, MoveGivesAwayNoMoreThanTheOpenScopesOwnTime) {
  replica_.begin_step();
  {
    TimeScope idle(&replica_, Category::idle);
    time_.sleep(50);
    {
      TimeScope wait(&replica_, Category::idle);
      time_.sleep(100);
      EXPECT_EQ(replica_.move(Category::compute, 70), 70);
      EXPECT_EQ(replica_.move(Category::exposed_communication, 40), 30);
      EXPECT_EQ(replica_.move(Category::compute, 1), 0);
      EXPECT_EQ(replica_.move(Category::compute, -5), 0);
    }
  }
  const StepRecord step = replica_.end_step();
  EXPECT_EQ(step.times[Category::idle], 50);
  EXPECT_EQ(step.times[Category::compute], 70);
  EXPECT_EQ(step.times[Category::exposed_communication], 30);
  EXPECT_EQ(sum(step.times), step.wall_ns);
}

TEST_F(StepClockTest, MoveGivesAwayNoTimeOfAnEarlierStep) {
  replica_.begin_step();
  TimeScope idle(&replica_, Category::idle);
  time_.sleep(100);
  replica_.end_step();
  replica_.begin_step();
  time_.sleep(10);
  EXPECT_EQ(replica_.move(Category::compute, 50), 10);
  const StepRecord step = replica_.end_step();
  EXPECT_EQ(step.times[Category::compute], 10);
  EXPECT_EQ(step.times[Category::idle], 0);
}

TEST_F(StepClockTest, CountsBelongToTheStepTheyEndIn) {
  replica_.count(Counter::traces);
  for (const int64_t examples : {8, 5, 0}) {
    replica_.begin_step();
    replica_.count(Counter::slots, 8);
    replica_.count(Counter::examples, examples);
    time_.run(1);
    const StepRecord step = replica_.end_step();
    EXPECT_EQ(step.counts[Counter::examples], examples);
    EXPECT_EQ(step.counts[Counter::traces], step.index == 0 ? 1 : 0);
  }
  const ReplicaSummary summary = clock_.summary().replicas[0];
  EXPECT_EQ(summary.counts[Counter::examples], 13);
  EXPECT_EQ(summary.counts[Counter::slots], 24);
  EXPECT_EQ(summary.partial_steps, 1);
  EXPECT_EQ(summary.empty_steps, 1);
  EXPECT_EQ(summary.first.counts[Counter::traces], 1);
}

TEST_F(StepClockTest, SummaryAggregatesAllStepsAndRecentKeepsTheLast) {
  for (int64_t i = 1; i <= 20; ++i) {
    replica_.begin_step();
    TimeScope compute(&replica_, Category::compute);
    time_.run(i);
    replica_.end_step();
  }
  const RunSummary summary = clock_.summary();
  ASSERT_EQ(summary.replicas.size(), 2u);
  const Distribution& compute = summary.replicas[0][Category::compute];
  EXPECT_EQ(compute.count, 20);
  EXPECT_EQ(compute.total, 210);
  EXPECT_EQ(compute.mean, 10.5);
  EXPECT_EQ(compute.median, 10);
  EXPECT_EQ(compute.p95, 19);
  EXPECT_EQ(compute.max, 20);
  EXPECT_EQ(summary.replicas[0].wall.total, 210);
  EXPECT_EQ(summary.replicas[0].first.wall_ns, 1);
  EXPECT_EQ(summary.replicas[1].wall.count, 0);
  std::vector<int64_t> indices;
  for (const StepRecord& record : replica_.recent()) indices.push_back(record.index);
  EXPECT_THAT(indices, testing::ElementsAre(17, 18, 19));
}

TEST_F(StepClockTest, StepsMadeTogetherShareTheirTime) {
  for (const int64_t steps : {1, 64, 3}) {
    replica_.begin_step();
    TimeScope compute(&replica_, Category::compute);
    time_.run(10 * steps);
    replica_.count(Counter::examples, 32 * steps);
    const StepRecord record = replica_.end_step(steps);
    EXPECT_EQ(record.steps, steps);
    EXPECT_EQ(record.wall_ns, 10 * steps);
  }
  const ReplicaSummary summary = clock_.summary().replicas[0];
  EXPECT_EQ(summary.wall.count, 68);
  EXPECT_EQ(summary.wall.total, 680);
  EXPECT_EQ(summary.wall.max, 10);
  EXPECT_EQ(summary[Category::compute].median, 10);
  EXPECT_EQ(summary.counts[Counter::examples], 32 * 68);
  std::vector<int64_t> indices;
  for (const StepRecord& record : replica_.recent()) indices.push_back(record.index);
  EXPECT_THAT(indices, testing::ElementsAre(0, 1, 65));
}

TEST_F(StepClockTest, WhatADeviceStillDidIsOfTheLastStep) {
  for (int i = 0; i < 4; ++i) {
    replica_.begin_step();
    const TimeScope compute(&replica_, Category::compute);
    time_.run(10);
    replica_.end_step();
  }
  replica_.begin_next_step();
  {
    const TimeScope compute(&replica_, Category::compute);
    time_.sleep(20);
  }
  replica_.end_rest();
  time_.run(7);
  replica_.begin_step();
  replica_.abandon_step();
  const ReplicaSummary summary = clock_.summary().replicas[0];
  EXPECT_EQ(summary.wall.count, 4);
  EXPECT_EQ(summary.wall.total, 60);
  EXPECT_EQ(summary.wall.mean, 15);
  EXPECT_EQ(summary.wall.median, 10);
  EXPECT_EQ(summary[Category::compute].total + summary[Category::descheduled].total, 60);
  EXPECT_EQ(summary.outside_ns, 7);
  EXPECT_THROW(replica_.end_rest(), Error);
}

TEST_F(StepClockTest, ThereIsNoRestBeforeTheFirstStep) {
  replica_.begin_next_step();
  time_.run(5);
  replica_.end_rest();
  EXPECT_FALSE(replica_.in_step());
  EXPECT_EQ(clock_.summary().replicas[0].wall.total, 0);
}

TEST_F(StepClockTest, AnAbandonedStepCountsAsOutside) {
  replica_.begin_step();
  replica_.end_step();
  replica_.begin_step();
  replica_.count(Counter::examples, 8);
  time_.run(5);
  replica_.abandon_step();
  replica_.abandon_step();  // nothing left to abandon
  replica_.begin_step();
  time_.run(2);
  const StepRecord step = replica_.end_step();
  EXPECT_EQ(step.index, 1);
  EXPECT_EQ(step.wall_ns, 2);
  EXPECT_EQ(step.counts[Counter::examples], 0);
  EXPECT_EQ(clock_.summary().replicas[0].outside_ns, 5);
}

TEST_F(StepClockTest, ALoopsStepsFollowEachOtherWithoutAGap) {
  clock_.begin_next_step();
  time_.run(4);
  clock_.end_step();
  thread_times().times[Category::input_wait] += 20;  // as whoever makes a program wait says
  thread_times().value_reads += 2;
  time_.run(30);
  clock_.begin_next_step();
  {
    TimeScopeOfAll compute(clock_, Category::compute);
    time_.run(5);
  }
  clock_.end_step();
  for (const ReplicaSummary& replica : clock_.summary().replicas) {
    EXPECT_EQ(replica.wall.count, 2);
    EXPECT_EQ(replica.wall.total, 4 + 30 + 5);
    EXPECT_EQ(replica.outside_ns, 0);
    EXPECT_EQ(replica[Category::compute].total, 5);
    EXPECT_EQ(replica[Category::input_wait].total, 20);
    EXPECT_EQ(replica[Category::loop].total, 10);
    EXPECT_EQ(replica.counts[Counter::value_reads], 2);
  }
}

TEST_F(StepClockTest, WhatMakesAThreadWaitIsEnteredOnceAndOnlyOutsideOfSteps) {
  const auto entered = [] { return thread_times().times[Category::input_wait]; };
  clock_.begin_step();
  clock_.end_step();
  const int64_t before = entered();
  {
    const ThreadTimeScope waits(Category::input_wait);
    const ThreadTimeScope inside(Category::compute);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const int64_t after = entered();
  EXPECT_GE(after - before, 2'000'000);
  clock_.begin_step();
  { const ThreadTimeScope waits(Category::input_wait); }
  clock_.end_step();
  EXPECT_EQ(entered(), after);
}

TEST_F(StepClockTest, TheStepsOfAnotherLoopAreNoWorkOfThisOne) {
  StepClock other({.clock = &time_});
  const auto step = [&](StepClock& clock, int64_t ns) {
    clock.begin_next_step();
    {
      TimeScopeOfAll compute(clock, Category::compute);
      time_.run(ns);
    }
    clock.end_step();
  };
  for (int i = 0; i < 3; ++i) {
    step(clock_, 10);
    step(other, 30);
    time_.run(1);
  }
  step(clock_, 10);
  const ReplicaSummary own = clock_.summary().replicas[1];
  EXPECT_EQ(own.wall.total, 4 * 10 + 3 * 31);
  EXPECT_EQ(own[Category::compute].total, 4 * 10 + 3 * 30);
  EXPECT_EQ(own[Category::loop].total, 3);
}

TEST_F(StepClockTest, APauseIsNoPartOfALoop) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto step = [&](int64_t before) {
    time_.sleep(before);
    clock_.begin_next_step();
    time_.run(kSecond / 10);
    clock_.end_step();
  };
  for (int i = 0; i < 10; ++i) step(0);
  step(kSecond / 2);  // ten steps take longer
  EXPECT_EQ(clock_.summary().replicas[0].outside_ns, 0);
  step(30 * kSecond);
  const ReplicaSummary replica = clock_.summary().replicas[0];
  EXPECT_EQ(replica.outside_ns, 30 * kSecond);
  EXPECT_EQ(replica[Category::loop].total, kSecond / 2);
  EXPECT_EQ(replica.wall.total, 12 * kSecond / 10 + kSecond / 2);
}

TEST_F(StepClockTest, CompilingIsKeptApart) {
  const auto compile = [&] {
    const CompileScope compiling(&clock_);
    time_.run(1000);
  };
  compile();  // before the first step
  for (int i = 0; i < 4; ++i) {
    clock_.begin_step();
    if (i % 2 == 0) compile();
    time_.run(7);
    clock_.end_step();
    if (i == 3) compile();
    time_.run(2);
  }
  clock_.begin_step();
  clock_.abandon_step();
  const ReplicaSummary replica = clock_.summary().replicas[1];
  EXPECT_EQ(replica.compiling_ns, 4000);
  EXPECT_EQ(replica.late_compiling_ns, 2000);
  EXPECT_EQ(replica.wall.total, 4 * 7);
  EXPECT_EQ(replica.wall.max, 7);
  EXPECT_EQ(replica.first.wall_ns, 7);
  EXPECT_EQ(replica.outside_ns, 4 * 2);
  EXPECT_EQ(replica[Category::compiling].total, 0);
  EXPECT_EQ(clock_.replica(1).recent()[1].times[Category::compiling], 1000) << "a record is what was";
  EXPECT_THAT(to_text(clock_.summary()),
              HasSubstr("\n  compiling: 0.004 ms for 3 programs, beside the steps\n"));
  CompileScope nobody(nullptr);
}

TEST_F(StepClockTest, RefusesWhatMakesNoSense) {
  replica_.begin_step();
  EXPECT_THROW(replica_.end_step(0), Error);
  replica_.abandon_step();
  EXPECT_THROW(replica_.end_step(), Error);
  EXPECT_THROW(replica_.leave(), Error);
  replica_.begin_step();
  EXPECT_THROW(replica_.begin_step(), Error);
  for (int i = 0; i < ReplicaClock::kMaxDepth; ++i) replica_.enter(Category::host);
  EXPECT_THROW(replica_.enter(Category::host), Error);
  EXPECT_THROW(clock_.replica(2), Error);
  EXPECT_THROW(clock_.replica(-1), Error);
  EXPECT_THROW(StepClock({.replicas = 0}), Error);
}

TEST_F(StepClockTest, ScopesFindTheReplicaOfTheirThread) {
  EXPECT_EQ(current_replica(), nullptr);
  { TimeScope nobody(Category::compute); }
  clock_.begin_step();
  {
    BindReplica first(replica_);
    {
      BindReplica second(clock_.replica(1));
      EXPECT_EQ(current_replica()->replica(), 1);
      TimeScope compute(Category::compute);
      time_.run(3);
    }
    EXPECT_EQ(current_replica(), &replica_);
    std::thread([] { EXPECT_EQ(current_replica(), nullptr); }).join();
  }
  EXPECT_EQ(current_replica(), nullptr);
  EXPECT_EQ(replica_.end_step().times[Category::compute], 0);
  EXPECT_EQ(clock_.replica(1).end_step().times[Category::compute], 3);
}

TEST_F(StepClockTest, OneThreadMayDriveAllReplicas) {
  clock_.begin_step();
  {
    TimeScopeOfAll wait(clock_, Category::input_wait);
    time_.sleep(9);
  }
  clock_.end_step();
  clock_.begin_step();
  clock_.abandon_step();
  EXPECT_FALSE(replica_.in_step());
  for (const ReplicaSummary& replica : clock_.summary().replicas) {
    EXPECT_EQ(replica.wall.count, 1);
    EXPECT_EQ(replica[Category::input_wait].total, 9);
  }
}

TEST_F(StepClockTest, StepsAndScopesAreSpansOfATrace) {
  start_tracing();
  clock_.replica(1).begin_step();
  {
    TimeScope compute(&clock_.replica(1), Category::compute);
    time_.run(10);
  }
  time_.run(5);
  clock_.replica(1).end_step();
  stop_tracing();
  const Trace trace = take_trace();
  ASSERT_EQ(trace.events.size(), 2u);
  EXPECT_STREQ(trace.events[0].name.c_str(), "step");
  EXPECT_EQ(trace.events[0].end_ns - trace.events[0].start_ns, 15);
  EXPECT_STREQ(trace.events[1].name.c_str(), "compute");
  EXPECT_EQ(trace.events[1].end_ns - trace.events[1].start_ns, 10);
  EXPECT_EQ(trace.events[1].replica, 1);
  ASSERT_EQ(trace.tracks.size(), 1u);
  EXPECT_EQ(trace.tracks[0].row, "replica 1");
}

TEST(StepClock, MeasuresDescheduledInSomeStepsFromTheSecondOn) {
  FakeClock time;
  StepClock clock({.measure_descheduled_every = 3, .clock = &time});
  ReplicaClock& replica = clock.replica(0);
  std::vector<int64_t> measured;
  for (int i = 0; i < 7; ++i) {
    replica.begin_step();
    {
      TimeScope compute(&replica, Category::compute);
      time.run(1);
      time.sleep(1);
    }
    const StepRecord step = replica.end_step();
    EXPECT_EQ(step.times[Category::compute], step.measured_descheduled ? 1 : 2);
    if (step.measured_descheduled) measured.push_back(step.index);
  }
  EXPECT_THAT(measured, testing::ElementsAre(1, 4));
  const ReplicaSummary summary = clock.summary().replicas[0];
  EXPECT_EQ(summary[Category::descheduled].count, 2);
  EXPECT_EQ(summary[Category::descheduled].total, 2);
  EXPECT_EQ(summary.measured_wall_ns, 4);
  EXPECT_THAT(to_text(clock.summary()), HasSubstr("descheduled 50.0% of 2 steps"));
}

TEST(StepClock, SaysThatACoarseClockCannotMeasureDescheduled) {
  std::vector<std::string> messages;
  const LogSink previous = set_log_sink([&](const LogMessage& m) { messages.emplace_back(m.text); });
  FakeClock time(false);
  StepClock clock({.measure_descheduled_every = 1, .clock = &time});
  set_log_sink(previous);
  EXPECT_THAT(messages, testing::ElementsAre(HasSubstr("descheduled is not measured")));
  ReplicaClock& replica = clock.replica(0);
  replica.begin_step();
  {
    TimeScope compute(&replica, Category::compute);
    time.sleep(10);
  }
  EXPECT_EQ(replica.end_step().times[Category::compute], 10);
  EXPECT_FALSE(clock.summary().measures_descheduled);
  EXPECT_THAT(to_text(clock.summary()), HasSubstr("descheduled not measured"));
}

TEST(StepClock, AccountsForEveryNanosecondOfReplicasThatRunAtOnce) {
  constexpr int kReplicas = 4, kSteps = 200;
  StepClock clock({.replicas = kReplicas, .recent = kSteps, .measure_descheduled_every = 2});
  std::atomic<int> running{kReplicas};
  std::vector<std::thread> threads;
  for (int r = 0; r < kReplicas; ++r)
    threads.emplace_back([&, r] {
      BindReplica bind(clock.replica(r));
      for (int i = 0; i < kSteps; ++i) {
        clock.replica(r).begin_step();
        {
          TimeScope compute(Category::compute);
          TimeScope copy(Category::copy);
          clock.replica(0).count(Counter::host_copies);  // from any thread
        }
        TimeScope host(Category::host);
        clock.replica(r).end_step();
      }
      --running;
    });
  while (running > 0) clock.summary();
  for (std::thread& thread : threads) thread.join();
  // What was counted after replica 0's last step belongs to its next one.
  clock.replica(0).begin_step();
  clock.replica(0).end_step();
  const RunSummary summary = clock.summary();
  for (int r = 0; r < kReplicas; ++r) {
    const ReplicaSummary& replica = summary.replicas[static_cast<size_t>(r)];
    EXPECT_EQ(replica.wall.count, kSteps + (r == 0));
    int64_t total = 0;
    for (const Distribution& d : replica.times) total += d.total;
    EXPECT_EQ(total, replica.wall.total);
    for (const StepRecord& step : clock.replica(r).recent()) EXPECT_EQ(sum(step.times), step.wall_ns);
  }
  EXPECT_EQ(summary.replicas[0].counts[Counter::host_copies], kReplicas * kSteps);
}

TEST(StepClock, RestartForgetsStepsAndOpenScopesAndKeepsItsAddress) {
  FakeClock time;
  StepClock clock({.replicas = 2, .recent = 4, .measure_descheduled_every = 0, .clock = &time});
  ReplicaClock& replica = clock.replica(1);
  for (int i = 0; i < 3; ++i) {
    clock.begin_step();
    time.sleep(1000);
    clock.end_step();
  }
  clock.begin_step();
  clock.enter(Category::compute);
  replica.count(Counter::examples, 7);

  clock.restart();
  EXPECT_EQ(&clock.replica(1), &replica);
  EXPECT_FALSE(replica.in_step());
  EXPECT_TRUE(replica.recent().empty());
  EXPECT_EQ(clock.summary().replicas[1].wall.count, 0);
  clock.begin_step();
  time.sleep(500);
  clock.end_step();
  const ReplicaSummary summary = clock.summary().replicas[1];
  EXPECT_EQ(summary.wall.count, 1);
  EXPECT_EQ(summary.wall.total, 500);
  EXPECT_EQ(summary[Category::unattributed].total, 500) << "no scope is open any more";
  EXPECT_EQ(summary.counts[Counter::examples], 0);
  EXPECT_EQ(summary.first.wall_ns, 500);
  EXPECT_EQ(replica.recent().size(), 1U);
}

}  // namespace
}  // namespace lockstep::observe
