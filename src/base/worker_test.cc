#include "base/worker.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <vector>

namespace lockstep {
namespace {

class Waits : public testing::TestWithParam<Waiting> {};

TEST_P(Waits, AWorkerRunsOneTaskAfterAnother) {
  Worker worker(GetParam());
  struct Context {
    int runs = 0;
    std::thread::id thread;
  } context;
  for (int i = 1; i <= 1000; ++i) {
    worker.start(
        [](void* c) {
          auto* own = static_cast<Context*>(c);
          ++own->runs;
          own->thread = std::this_thread::get_id();
        },
        &context);
    worker.wait();
    ASSERT_EQ(context.runs, i);
  }
  EXPECT_NE(context.thread, std::this_thread::get_id());
}

TEST_P(Waits, WaitingForNothingReturns) {
  Worker worker(GetParam());
  worker.wait();
  worker.wait();
}

TEST_P(Waits, AWorkerFinishesItsTaskBeforeItGoes) {
  std::atomic<bool> done{false};
  {
    Worker worker(GetParam());
    worker.start(
        [](void* c) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          static_cast<std::atomic<bool>*>(c)->store(true);
        },
        &done);
  }
  EXPECT_TRUE(done.load());
}

TEST_P(Waits, ATaskThatTakesLongerThanTheSpinIsWaitedFor) {
  Worker worker(GetParam());
  for (int i = 0; i < 3; ++i) {
    int result = 0;
    worker.start(
        [](void* c) {
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
          *static_cast<int*>(c) = 7;
        },
        &result);
    worker.wait();
    ASSERT_EQ(result, 7);
  }
}

// Threads that meet `rounds` times, counting between the meetings.
struct Meeting {
  Meeting(int count, Waiting waiting) : barrier(count, waiting), arrivals(1000) {}
  Barrier barrier;
  std::vector<std::atomic<int>> arrivals;
};

TEST_P(Waits, NobodyPassesABarrierBeforeAllAreThere) {
  constexpr int kThreads = 4, kRounds = 200;
  Meeting meeting(kThreads, GetParam());
  std::atomic<int> early{0}, aborted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (size_t round = 0; round < kRounds; ++round) {
        ++meeting.arrivals[round];
        if (!meeting.barrier.meet()) ++aborted;
        if (meeting.arrivals[round].load() != kThreads) ++early;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(early.load(), 0);
  EXPECT_EQ(aborted.load(), 0);
}

TEST_P(Waits, ABarrierOfOneNeverWaits) {
  Barrier barrier(1, GetParam());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(barrier.meet());
  barrier.abort();
  EXPECT_FALSE(barrier.meet());
}

TEST_P(Waits, AbortLetsEverybodyGo) {
  Barrier barrier(3, GetParam());
  std::vector<std::thread> threads;
  std::atomic<int> sent_away{0};
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      if (!barrier.meet()) ++sent_away;
      // Later meetings are aborted too, so that nobody waits for those who have gone.
      if (!barrier.meet()) ++sent_away;
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  barrier.abort();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sent_away.load(), 4);
}

TEST_P(Waits, AfterAResetTheBarrierWorksAgain) {
  Barrier barrier(2, GetParam());
  for (int run = 0; run < 20; ++run) {
    // One thread arrives and is sent away, so that an arrival is left over.
    std::thread first([&] { EXPECT_FALSE(barrier.meet()); });
    barrier.abort();
    first.join();
    barrier.reset();
    std::atomic<int> met{0};
    std::thread second([&] { met += barrier.meet(); });
    met += barrier.meet();
    second.join();
    ASSERT_EQ(met.load(), 2) << run;
  }
}

TEST_P(Waits, ACounterLetsThoseGoWhoseNumberItHasReached) {
  constexpr uint32_t kMost = 6;
  WaitableCounter counter;
  counter.wait(0, GetParam());
  std::atomic<uint32_t> raised{0}, early{0}, gone{0};
  std::vector<std::thread> threads;
  for (uint32_t wanted = 1; wanted <= kMost; ++wanted)
    threads.emplace_back([&, wanted] {
      counter.wait(wanted, GetParam());
      early += raised.load() < wanted ? 1 : 0;
      ++gone;
    });
  for (uint32_t i = 1; i <= kMost; ++i) {
    // Sometimes late enough for all to sleep.
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    raised = i;
    counter.raise();
    while (gone.load() < i) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), kMost);
  EXPECT_EQ(early.load(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, Waits, testing::Values(Waiting::spins_first, Waiting::sleeps),
                         [](const auto& info) {
                           return info.param == Waiting::sleeps ? "sleeps" : "spins_first";
                         });

TEST(WaitingOf, SpinsOnlyWhereEveryThreadHasACore) {
  EXPECT_EQ(waiting_of(1), Waiting::spins_first);
  EXPECT_EQ(waiting_of(static_cast<int>(std::thread::hardware_concurrency()) + 1), Waiting::sleeps);
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(getpid(), sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(getpid(), sizeof one, &one), 0);
  EXPECT_EQ(waiting_of(2), Waiting::sleeps) << "the process has one core, whatever the machine has";
  sched_setaffinity(getpid(), sizeof before, &before);
}

}  // namespace
}  // namespace lockstep
