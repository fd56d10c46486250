#include "execute/run_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "execute/asynchronous_device_test.h"

namespace lockstep::execute {
namespace {

using ::testing::ElementsAre;

class RunAheadTest : public ::testing::Test {
 protected:
  static void run(RunAhead& ahead, int64_t runs = 1) {
    if (ahead.must_wait()) ahead.wait();
    ahead.queued(runs);
  }
  lockstep::testing::AsynchronousDevice device_{90};
};

TEST_F(RunAheadTest, TheRunBeforeTheLastIsWaitedFor) {
  RunAhead ahead(device_.compute_stream(), {.depth = 2});
  for (int i = 0; i < 5; ++i) run(ahead);
  EXPECT_EQ(device_.recorded, 5);
  EXPECT_THAT(device_.waited, ElementsAre(1, 2, 3));
}

TEST_F(RunAheadTest, OrTheLastOne) {
  RunAhead ahead(device_.compute_stream(), {.depth = 1});
  for (int i = 0; i < 4; ++i) run(ahead);
  EXPECT_THAT(device_.waited, ElementsAre(1, 2, 3));
}

TEST_F(RunAheadTest, SeveralShortRunsCountAsOne) {
  RunAhead ahead(device_.compute_stream(), {.depth = 2, .runs_per_mark = 4});
  for (int i = 0; i < 12; ++i) run(ahead);
  EXPECT_THAT(device_.waited, ElementsAre(1))
      << "marks behind 4, 8 and 12 runs; the ninth waits for the first";
  run(ahead, 100);
  EXPECT_THAT(device_.waited, ElementsAre(1, 2)) << "a launch of many runs is marked at once";
}

TEST(RunAhead, NobodyIsAheadOfADeviceWhoseLaunchesAreOverWhenTheyReturn) {
  CpuDevice cpu(91, 1);
  RunAhead ahead(cpu.compute_stream(), {.depth = 1});
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(ahead.must_wait());
    ahead.queued(1);
  }
}

}  // namespace
}  // namespace lockstep::execute
