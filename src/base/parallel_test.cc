#include "base/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using testing::Each;

// Not where clang compiles: see cmake/openmp_for_clang.cmake.
bool teams_have_threads() {
  std::thread::id other;
  parallel(2, [&](int index) {
    if (index == 1) other = std::this_thread::get_id();
  });
  return other != std::this_thread::get_id();
}

TEST(Parallel, RunsEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(threads));
    parallel(threads, [&](int index) { ++runs[static_cast<size_t>(index)]; });
    for (const auto& count : runs) EXPECT_EQ(count.load(), 1) << threads << " threads";
  }
}

TEST(Parallel, RunsIndicesAtTheSameTimeOnThreadsOfTheirOwn) {
  if (!teams_have_threads()) GTEST_SKIP() << "compiled without parallel regions";
  const TeamScope team(2);
  // Each waits for the other: one thread alone would never get through.
  std::atomic<int> arrived{0};
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel(2, [&](int) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), 2u);
  EXPECT_TRUE(threads.contains(std::this_thread::get_id())) << "the caller takes part";
}

TEST(Parallel, OneThreadIsTheCallersOwn) {
  std::thread::id id;
  parallel(1, [&](int index) {
    EXPECT_EQ(index, 0);
    id = std::this_thread::get_id();
  });
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(Parallel, AnExceptionReachesTheCallerAndTheOthersFinish) {
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> finished{0};
    try {
      parallel(4, [&](int index) {
        if (index == thrower) throw std::runtime_error("index " + std::to_string(index));
        ++finished;
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()), "index " + std::to_string(thrower));
    }
    EXPECT_EQ(finished.load(), 3);
  }
  // The team works on.
  std::atomic<int> runs{0};
  parallel(4, [&](int) { ++runs; });
  EXPECT_EQ(runs.load(), 4);
}

TEST(Parallel, AllThrowAndOneIsHeard) {
  EXPECT_THROW(parallel(3, [](int) { throw std::logic_error("each"); }), std::logic_error);
  EXPECT_THROW(parallel(1, [](int) { throw std::logic_error("alone"); }), std::logic_error);
}

TEST(Parallel, InsideARegionThereIsOneThread) {
  if (!teams_have_threads()) GTEST_SKIP() << "compiled without parallel regions";
  const TeamScope team(2);
  EXPECT_EQ(team_size(), 2);
  std::vector<int> sizes(2);
  parallel(2, [&](int index) { sizes[static_cast<size_t>(index)] = team_size(); });
  EXPECT_THAT(sizes, Each(1));
}

TEST(Parallel, NestedRegionsRunEveryIndexOnTheCallingThread) {
  const TeamScope team(2);
  std::atomic<int> runs{0};
  std::atomic<bool> same_thread{true};
  parallel(2, [&](int) {
    const auto outer = std::this_thread::get_id();
    parallel(3, [&](int) {
      ++runs;
      if (std::this_thread::get_id() != outer) same_thread = false;
    });
  });
  EXPECT_EQ(runs.load(), 6);
  EXPECT_TRUE(same_thread.load());
}

TEST(TeamScope, SetsAndRestoresTheSizeOfThisThreadsTeam) {
  const int before = team_size();
  {
    const TeamScope outer(3);
    EXPECT_EQ(team_size(), 3);
    {
      const TeamScope inner(1);
      EXPECT_EQ(team_size(), 1);
    }
    EXPECT_EQ(team_size(), 3);
    int elsewhere = 0;
    std::thread([&] {
      const TeamScope other(5);
      elsewhere = team_size();
    }).join();
    EXPECT_EQ(elsewhere, 5);
    EXPECT_EQ(team_size(), 3) << "every thread has a team of its own";
  }
  EXPECT_EQ(team_size(), before);
}

TEST(TeamScope, RestoresWhenLeftByAnException) {
  const int before = team_size();
  try {
    const TeamScope scope(before + 2);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(team_size(), before);
}

TEST(TeamScope, SubnormalResultsAreFlushedToZeroOnEveryThreadAndOnlyInTheScope) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "this processor's mode is not set";
#endif
  volatile float smallest = std::numeric_limits<float>::min();
  std::vector<float> halves(2, -1.0f);
  const auto halve = [&](int index) { halves[static_cast<size_t>(index)] = smallest * 0.5f; };
  {
    const TeamScope team(2);
    parallel(2, halve);
    EXPECT_THAT(halves, Each(0.0f));
    volatile float subnormal = std::numeric_limits<float>::denorm_min();
    EXPECT_EQ(subnormal * 0x1p100f, 0x1p-49f) << "operands are what they are";
  }
  halve(0);
  EXPECT_GT(halves[0], 0.0f);
}

// Whose caller is on `core`; the core of the thread it adds.
int core_of_the_other(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
  const TeamScope team(2);
  int other = -1;
  parallel(2, [&](int index) {
    if (index == 1) other = sched_getcpu();
  });
  return other;
}

std::vector<int> own_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

TEST(TeamScope, KeepsTheTeamOffTheCoreOfItsCaller) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "needs two cores";
  if (!teams_have_threads()) GTEST_SKIP() << "compiled without parallel regions";
  std::thread([&] {
    for (const int core : {cores[1], cores[0], cores[1]}) EXPECT_NE(core_of_the_other(core), core);
  }).join();
}

TEST(TeamScope, ATeamOfMoreThreadsThanCoresLeavesTheOthersTheirs) {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "needs two cores";
  if (!teams_have_threads()) GTEST_SKIP() << "compiled without parallel regions";
  std::thread([&] {
    EXPECT_NE(core_of_the_other(cores[1]), cores[1]);
    { const TeamScope large(static_cast<int>(cores.size()) + 1); }
    for (const int core : {cores[0], cores[1]}) EXPECT_NE(core_of_the_other(core), core);
  }).join();
}

TEST(TeamScope, AChildOfForkIsNotWaitedForByThreadsItDoesNotHave) {
  const TeamScope team(2);
  parallel(2, [](int) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    // Wherever the caller goes, its team is not called together.
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
        const TeamScope again(2);
      }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// OpenMP ends the threads that a smaller team does without.
TEST(TeamScope, FewerIndicesLeaveItsThreadsAlive) {
  if (!teams_have_threads()) GTEST_SKIP() << "OpenMP makes no threads here";
  std::thread([] {  // with a team of its own
    constexpr int kThreads = 4;
    const TeamScope team(kThreads);
    std::mutex mutex;
    std::set<pid_t> seen;
    for (int i = 0; i < 5; ++i)
      for (const int threads : {kThreads, 2, 3, 1})
        parallel(threads, [&](int) {
          const std::lock_guard lock(mutex);
          seen.insert(gettid());
        });
    EXPECT_EQ(seen.size(), static_cast<size_t>(kThreads));
  })
      .join();
}

// Every element once, whole grains, consecutive ranges.
TEST(ParallelFor, CoversTheRangeInWholeGrains) {
  for (const int64_t n : {0, 1, 63, 64, 65, 1000})
    for (const int64_t grain : {1, 64, 100})
      for (const int threads : {1, 2, 3, 8}) {
        std::vector<std::atomic<int>> touched(static_cast<size_t>(n));
        std::atomic<int> ranges{0};
        parallel_for(n, grain, threads, [&](int64_t begin, int64_t end) {
          ++ranges;
          EXPECT_LT(begin, end);
          EXPECT_EQ(begin % grain, 0);
          EXPECT_TRUE(end % grain == 0 || end == n);
          for (int64_t i = begin; i < end; ++i) ++touched[static_cast<size_t>(i)];
        });
        for (const auto& count : touched) ASSERT_EQ(count.load(), 1) << n << ' ' << grain << ' ' << threads;
        EXPECT_LE(ranges.load(), threads);
        if (n == 0) {
          EXPECT_EQ(ranges.load(), 0);
        }
      }
}

TEST(ParallelFor, UsesAllThreadsWhereThereIsWork) {
  std::atomic<int> ranges{0};
  parallel_for(1000, 10, 4, [&](int64_t, int64_t) { ++ranges; });
  EXPECT_EQ(ranges.load(), 4);
}

TEST(ParallelFor, ExceptionsReachTheCaller) {
  EXPECT_THROW(parallel_for(100, 1, 2,
                            [](int64_t begin, int64_t) {
                              if (begin > 0) throw std::runtime_error("late");
                            }),
               std::runtime_error);
}

}  // namespace
}  // namespace lockstep
