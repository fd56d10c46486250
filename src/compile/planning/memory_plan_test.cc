#include "compile/planning/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep::compile {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

size_t in_whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

bool alive_together(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

// The largest sum of buffers alive at one step, counted step by step.
size_t peak_of(const std::vector<Lifetime>& buffers) {
  int last = 0;
  for (const Lifetime& b : buffers) last = std::max(last, b.last);
  size_t peak = 0;
  for (int step = 0; step <= last; ++step) {
    size_t alive = 0;
    for (const Lifetime& b : buffers)
      if (b.first <= step && step <= b.last) alive += in_whole_lines(b.bytes);
    peak = std::max(peak, alive);
  }
  return peak;
}

// What every plan must satisfy, whatever the buffers.
void check(const std::vector<Lifetime>& buffers, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), buffers.size());
  EXPECT_EQ(plan.peak, peak_of(buffers));
  EXPECT_GE(plan.size, plan.peak);
  for (size_t i = 0; i < buffers.size(); ++i) {
    ASSERT_EQ(plan.offsets[i] % 64, 0u);
    ASSERT_LE(plan.offsets[i] + buffers[i].bytes, plan.size);
    for (size_t j = 0; j < i; ++j) {
      if (!alive_together(buffers[i], buffers[j])) continue;
      const bool apart = plan.offsets[i] + buffers[i].bytes <= plan.offsets[j] ||
                         plan.offsets[j] + buffers[j].bytes <= plan.offsets[i];
      ASSERT_TRUE(apart) << "buffers " << i << " and " << j << " are alive together and overlap";
    }
  }
}

TEST(MemoryPlan, NothingNeedsNoMemory) {
  const MemoryPlan plan = plan_memory({});
  EXPECT_THAT(plan.offsets, IsEmpty());
  EXPECT_EQ(plan.size, 0u);
  EXPECT_EQ(plan.peak, 0u);
}

TEST(MemoryPlan, BuffersThatNeverMeetShareMemory) {
  const std::vector<Lifetime> buffers = {{100, 0, 1}, {128, 2, 3}, {1, 4, 9}};
  const MemoryPlan plan = plan_memory(buffers);
  check(buffers, plan);
  EXPECT_THAT(plan.offsets, Each(0u));
  EXPECT_EQ(plan.size, 128u);
}

TEST(MemoryPlan, TheLastStepOfOneAndTheFirstOfAnotherMeet) {
  const std::vector<Lifetime> buffers = {{64, 0, 3}, {64, 3, 5}};
  const MemoryPlan plan = plan_memory(buffers);
  check(buffers, plan);
  EXPECT_EQ(plan.size, 128u);
}

TEST(MemoryPlan, SizesAreRoundedUpToWholeLines) {
  const std::vector<Lifetime> buffers = {{1, 0, 0}, {65, 0, 0}, {64, 0, 0}};
  const MemoryPlan plan = plan_memory(buffers);
  check(buffers, plan);
  EXPECT_EQ(plan.size, 64u + 128 + 64);
}

TEST(MemoryPlan, EmptyBuffersTakeNoRoom) {
  const std::vector<Lifetime> buffers = {{0, 0, 9}, {64, 0, 9}, {0, 4, 4}};
  const MemoryPlan plan = plan_memory(buffers);
  check(buffers, plan);
  EXPECT_EQ(plan.size, 64u);
}

TEST(MemoryPlan, RandomBuffersNeverOverlap) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int steps = 1 + static_cast<int>(random() % 60);
    std::vector<Lifetime> buffers(random() % 80);
    for (Lifetime& b : buffers) {
      b.bytes = random() % 5 == 0 ? 0 : random() % 3 == 0 ? random() % 100000 : random() % 300;
      b.first = static_cast<int>(random() % static_cast<unsigned>(steps));
      b.last = b.first + static_cast<int>(random() % static_cast<unsigned>(steps - b.first));
    }
    check(buffers, plan_memory(buffers));
    if (::testing::Test::HasFatalFailure()) FAIL() << "trial " << trial;
  }
}

// What training a network looks like: activations that wait for the way back, gradients that pass each other,
// workspaces of one step.
TEST(MemoryPlan, TrainingNeedsLittleMoreThanItsPeak) {
  std::mt19937 random(2);
  for (const int layers : {2, 5, 12, 30}) {
    for (int trial = 0; trial < 10; ++trial) {
      std::vector<Lifetime> buffers;
      std::vector<size_t> sizes;
      for (int i = 0; i < layers; ++i) sizes.push_back((1 + random() % 64) * 4096);
      const int steps = 4 * layers;
      for (int i = 0; i < layers; ++i) {
        const auto size = sizes[static_cast<size_t>(i)];
        buffers.push_back({size, 2 * i, steps - 2 * i - 1});                       // activation
        buffers.push_back({size, 2 * i, 2 * i + 1});                               // before its nonlinearity
        buffers.push_back({size, steps - 2 * i - 2, steps - 2 * i});               // its gradient
        buffers.push_back({size / 2 + 64, steps - 2 * i - 1, steps - 2 * i - 1});  // a workspace
      }
      const MemoryPlan plan = plan_memory(buffers);
      check(buffers, plan);
      EXPECT_LE(static_cast<double>(plan.size), 1.1 * static_cast<double>(plan.peak)) << layers << " layers";
    }
  }
}

TEST(MemoryPlan, AChainNeedsTwoLinks) {
  std::vector<Lifetime> buffers;
  for (int i = 0; i < 50; ++i) buffers.push_back({4096, i, i + 1});
  const MemoryPlan plan = plan_memory(buffers);
  check(buffers, plan);
  EXPECT_EQ(plan.size, 8192u);
}

TEST(MemoryPlan, IsTheSameEveryTime) {
  std::mt19937 random(3);
  std::vector<Lifetime> buffers(50);
  for (Lifetime& b : buffers) b = {random() % 1000, static_cast<int>(random() % 20), 20};
  EXPECT_EQ(plan_memory(buffers).offsets, plan_memory(buffers).offsets);
}

}  // namespace
}  // namespace lockstep::compile
