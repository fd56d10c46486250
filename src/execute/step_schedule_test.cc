#include "execute/step_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::counting;
using lockstep::testing::error_of;
using lockstep::testing::one_thread_devices;
using lockstep::testing::traced;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(ScheduleOf, HasLaunchesWithTheirCostsAndTheSums) {
  const Variable w(Tensor::from<float>({1, 2}, {2}));
  compile::PlanOptions options;
  options.split_parameters = {true};
  options.local_batch = 4;
  const compile::Plan plan = compile::make_plan(traced({{DType::float32, {4, 2}}},
                                                       [&](const TensorList& x) {
                                                         w.assign_add(all_reduce_sum(reduce_sum(x[0], {0})));
                                                         return TensorList{};
                                                       },
                                                       {.global_batch = 8, .local_batch = 4}),
                                                options);
  const StepSchedule schedule = schedule_of(plan, "step", 4);
  EXPECT_EQ(schedule.function, "step");
  EXPECT_EQ(schedule.examples, 4);
  ASSERT_THAT(schedule.launches, SizeIs(2));
  EXPECT_EQ(schedule.launches[0].op, "reduce_sum");
  EXPECT_TRUE(schedule.launches[0].per_replica);
  EXPECT_EQ(schedule.launches[0].phase, 0);
  EXPECT_GT(schedule.launches[0].flops, 0);
  EXPECT_FALSE(schedule.launches[1].per_replica) << "an update runs once per device";
  EXPECT_EQ(schedule.launches[1].phase, plan.phases - 1) << "when no replica reads the old value any more";
  ASSERT_THAT(schedule.sums, SizeIs(1));
  EXPECT_EQ(schedule.sums[0].bytes, 2 * sizeof(float));
  EXPECT_EQ(schedule.sums[0].ready, 1);
  EXPECT_EQ(schedule.sums[0].phase, 1);
  EXPECT_EQ(schedule.variable_bytes, 2 * 4);
  EXPECT_EQ(schedule.batch_bytes, 4 * 2 * 4);
}

class ScheduleRecorderTest : public ::testing::Test {
 protected:
  // Compiles and runs a step of one replica.
  static void step() {
    auto f = function([](const Tensor& x) { return all_reduce_sum(reduce_sum(x)); },
                      {.name = "one replica", .replicas = {.devices = one_thread_devices(1)}});
    EXPECT_EQ(f(counting({4})).item<float>(), 0 + 1 + 2 + 3);
  }
};

TEST_F(ScheduleRecorderTest, KeepsTheStepsThatAreCompiledWhileItLives) {
  step();
  ScheduleRecorder recorder;
  EXPECT_THAT(recorder.take(), IsEmpty());
  step();
  const std::vector<StepSchedule> schedules = recorder.take();
  ASSERT_THAT(schedules, SizeIs(1));
  EXPECT_EQ(schedules[0].function, "one replica");
  EXPECT_EQ(schedules[0].examples, 4);
  EXPECT_THAT(schedules[0].sums, SizeIs(1)) << "as one replica of many would make it";
  EXPECT_THAT(recorder.take(), IsEmpty());
}

TEST_F(ScheduleRecorderTest, IsOneAtATime) {
  {
    const ScheduleRecorder recorder;
    EXPECT_TRUE(schedules_are_recorded());
    EXPECT_EQ(error_of([] { const ScheduleRecorder second; }).code(), ErrorCode::failed_precondition);
    EXPECT_TRUE(schedules_are_recorded()) << "by the first";
  }
  EXPECT_FALSE(schedules_are_recorded());
}

}  // namespace
}  // namespace lockstep::execute
