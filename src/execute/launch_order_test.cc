#include "execute/launch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::execute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Launch = LaunchOrder::Launch;

// Bytes [begin, end) of some memory.
std::vector<MemoryRange> bytes(int begin, int end) {
  static const char memory[256] = {};
  return {{memory + begin, memory + end}};
}

TEST(LaunchOrder, WaitsForThoseThatWroteWhatIsRead) {
  LaunchOrder order(8);
  EXPECT_THAT(order.add({.writes = bytes(0, 10)}), IsEmpty());
  EXPECT_THAT(order.add({.writes = bytes(10, 20)}), IsEmpty());
  EXPECT_THAT(order.add({.reads = bytes(9, 10), .writes = bytes(20, 30)}), ElementsAre(0));
  EXPECT_THAT(order.add({.reads = bytes(10, 11), .writes = bytes(30, 40)}), ElementsAre(1));
  EXPECT_THAT(order.add({.reads = bytes(20, 40)}), ElementsAre(3, 2));
}

TEST(LaunchOrder, OverwritesNothingThatIsStillRead) {
  LaunchOrder order(8);
  order.add({.reads = bytes(0, 10), .writes = bytes(10, 20)});
  EXPECT_THAT(order.add({.writes = bytes(5, 6)}), ElementsAre(0));
  EXPECT_THAT(order.add({.writes = bytes(15, 16)}), ElementsAre(0));
}

TEST(LaunchOrder, ReadersOfTheSameMemoryNeedNotWait) {
  LaunchOrder order(8);
  order.add({.reads = bytes(0, 10), .writes = bytes(10, 20)});
  EXPECT_THAT(order.add({.reads = bytes(0, 10), .writes = bytes(20, 30)}), IsEmpty());
}

TEST(LaunchOrder, NamesNoneThatAnAwaitedOneHasWaitedFor) {
  LaunchOrder order(8);
  order.add({.writes = bytes(0, 10)});
  order.add({.reads = bytes(0, 10), .writes = bytes(10, 20)});
  EXPECT_THAT(order.add({.reads = bytes(0, 20)}), ElementsAre(1));
}

TEST(LaunchOrder, ThoseThatAreNotPureKeepTheirOrder) {
  LaunchOrder order(8);
  order.add({.pure = false});
  EXPECT_THAT(order.add({}), IsEmpty());
  EXPECT_THAT(order.add({.pure = false}), ElementsAre(0));
}

TEST(LaunchOrder, HasSoManyBranchesAndNoMore) {
  LaunchOrder order(2);
  EXPECT_THAT(order.add({.writes = bytes(0, 1)}), IsEmpty());
  EXPECT_THAT(order.add({.writes = bytes(1, 2)}), IsEmpty());
  EXPECT_THAT(order.add({.writes = bytes(2, 3)}), ElementsAre(0)) << "the branch that has rested longest";
  EXPECT_THAT(order.add({.writes = bytes(3, 4)}), ElementsAre(1));
  EXPECT_THAT(order.add({.reads = bytes(2, 3), .writes = bytes(4, 5)}), ElementsAre(2))
      << "the branch whose last launch it waits for anyhow";
  LaunchOrder in_a_row(1);
  in_a_row.add({.writes = bytes(0, 1)});
  EXPECT_THAT(in_a_row.add({.writes = bytes(1, 2)}), ElementsAre(0));
}

TEST(LaunchOrder, WhatCrossesToAnotherStreamIsInNoBranch) {
  LaunchOrder order(1);
  order.add({.writes = bytes(0, 1)});
  EXPECT_THAT(order.add({.writes = bytes(1, 2), .crosses = true}), IsEmpty());
  EXPECT_THAT(order.add({.reads = bytes(1, 2)}), ElementsAre(1, 0)) << "and takes no branch from others";
}

TEST(LaunchOrder, TheLastIsBehindAll) {
  LaunchOrder order(8);
  order.add({.writes = bytes(0, 1)});
  order.add({.writes = bytes(1, 2)});
  EXPECT_THAT(order.add({.crosses = true, .last = true}), ElementsAre(1, 0));
  EXPECT_THAT(order.add({.writes = bytes(2, 3)}), IsEmpty()) << "those behind it need not wait";
}

}  // namespace
}  // namespace lockstep::execute
