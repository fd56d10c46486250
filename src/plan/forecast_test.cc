#include "lockstep/plan/forecast.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

// A product whose operations grow with the batch, and an update that does not; one sum between them.
StepSchedule schedule(int64_t examples) {
  const auto n = static_cast<double>(examples);
  StepSchedule made{.function = "step", .examples = examples, .launches = {}, .sums = {}};
  made.launches.push_back({.op = "matmul", .phase = 0, .per_replica = true, .flops = 1e9 * n, .bytes = 1e6});
  made.launches.push_back({.op = "update", .phase = 1, .per_replica = false, .flops = 10, .bytes = 12e6});
  made.sums.push_back({.name = "kernel", .bytes = 4e6, .phase = 1, .ready = 1});
  made.variable_bytes = 12'000'000;
  made.arena_bytes = 1000 * examples;
  made.batch_bytes = 500 * examples;
  return made;
}

const Gpu kGpu{
    .name = "g", .float32_flops = 1e12, .bfloat16_flops = 1e13, .bytes_per_s = 1e12, .memory_bytes = 13e6};
constexpr Achieved kAll{.matmul = 1, .convolution = 1, .memory = 1, .launch_s = 0};

ForecastOptions options() {
  ForecastOptions made{.gpu = kGpu, .achieved = kAll, .devices = {1, 2}, .batch_per_replica = 8};
  made.surroundings.network.inside = {.name = "l", .bytes_per_s = 1e9, .latency_s = 0};
  return made;
}

TEST(StepModel, IsALineThroughTwoBatches) {
  const StepModel model = step_model({schedule(2), {}, 0}, {schedule(8), {}, 0});
  EXPECT_DOUBLE_EQ(model.launches[0].flops(100), 1e11);
  EXPECT_DOUBLE_EQ(model.launches[1].bytes(100), 12e6);
  EXPECT_DOUBLE_EQ(model.memory(100), 12e6 + 150'000);
  EXPECT_FALSE(model.measured);
  EXPECT_THROW(step_at(model, 8, 1, {}), Error) << "neither measured nor computed";
  EXPECT_THROW(step_model({schedule(8), {}, 0}, {schedule(2), {}, 0}), Error);
}

TEST(StepModel, KeepsWhatWasMeasured) {
  const StepModel model = step_model({schedule(2), {0.2, 0.5}, 0.8}, {schedule(8), {0.8, 0.5}, 1.4});
  const Step step = step_at(model, 4, 1, {});
  EXPECT_DOUBLE_EQ(step.launches[0].seconds, 0.4);
  EXPECT_DOUBLE_EQ(step.launches[1].seconds, 0.5);
  EXPECT_NEAR(step.host_s, 0.1, 1e-12) << "what is no launch's";
}

TEST(StepModel, OfUnlikeSchedulesGrowsWithTheLargerOne) {
  StepSchedule other = schedule(2);
  other.launches[0].op = "gemv";
  const StepModel model = step_model({other, {}, 0}, {schedule(8), {}, 0});
  EXPECT_DOUBLE_EQ(model.launches[0].bytes(4), 0.5e6);
  EXPECT_DOUBLE_EQ(model.launches[1].bytes(4), 12e6) << "updates do not grow";
}

TEST(Forecast, ComputesLaunchesFromCeilings) {
  const StepModel model = step_model({schedule(2), {}, 0}, {schedule(8), {}, 0});
  EXPECT_DOUBLE_EQ(launch_s(model.launches[0], 8, kGpu, kAll), 8e-3) << "operations take longer";
  EXPECT_DOUBLE_EQ(launch_s(model.launches[1], 8, kGpu, kAll), 12e-6) << "bytes take longer";
  ModelLaunch half = model.launches[0];
  half.dtype = DType::bfloat16;
  EXPECT_DOUBLE_EQ(launch_s(half, 8, kGpu, kAll), 8e-4);
}

TEST(Forecast, SaysWhatTwoDevicesReach) {
  const Forecast made = forecast(step_model({schedule(2), {}, 0}, {schedule(8), {}, 0}), options());
  ASSERT_EQ(made.rows.size(), 2u);
  const double alone = 8e-3 + 12e-6, together = alone + 4e-3;
  EXPECT_DOUBLE_EQ(made.rows[0].efficiency, 1);
  EXPECT_NEAR(made.rows[1].step.step_s, together, 1e-12);
  EXPECT_NEAR(made.rows[1].efficiency, alone / together, 1e-12);
  EXPECT_NEAR(made.rows[1].examples_per_s, 16 / together, 1e-6);
  EXPECT_TRUE(made.rows[1].fits);
  // step / (step + 4 ms) >= 0.9 from a step of 36 ms on: 36 examples of a millisecond and the update.
  EXPECT_EQ(made.rows[1].smallest_batch, 36);
  EXPECT_EQ(made.rows[0].smallest_batch, 1);
}

TEST(Forecast, DividesTheBatchWhereScalingIsStrong) {
  ForecastOptions strong = options();
  strong.strong = true;
  const Forecast made = forecast(step_model({schedule(2), {}, 0}, {schedule(8), {}, 0}), strong);
  EXPECT_DOUBLE_EQ(made.rows[1].batch_per_replica, 4);
  EXPECT_NEAR(made.rows[1].efficiency, (8e-3 + 12e-6) / 2 / (4e-3 + 12e-6 + 4e-3), 1e-12);
}

TEST(Forecast, SaysWhatDoesNotFit) {
  ForecastOptions large = options();
  large.batch_per_replica = 1000;
  EXPECT_FALSE(forecast(step_model({schedule(2), {}, 0}, {schedule(8), {}, 0}), large).rows[0].fits);
}

TEST(Forecast, AProcessWorksForAllOfItsDevices) {
  // A step takes 2 ms and 1 ms per example longer than its launches.
  const auto measured = [](int64_t examples) {
    MeasuredSchedule made{schedule(examples), {}, 0};
    made.launch_s.assign(made.schedule.launches.size(), 1e-3);
    made.step_s =
        1e-3 * static_cast<double>(made.launch_s.size()) + 2e-3 + 1e-3 * static_cast<double>(examples);
    return made;
  };
  const StepModel model = step_model(measured(2), measured(8));
  ForecastOptions here = options();
  here.gpu.reset();
  EXPECT_NEAR(step_at(model, 8, 4, here).host_s, 2e-3 + 8e-3, 1e-9) << "a process per device";
  here.surroundings.devices_per_process = 4;
  EXPECT_NEAR(step_at(model, 8, 4, here).host_s, 2e-3 + 4 * 8e-3, 1e-9);
  EXPECT_NEAR(step_at(model, 8, 2, here).host_s, 2e-3 + 2 * 8e-3, 1e-9) << "it has no more than there are";
}

}  // namespace
}  // namespace lockstep::plan
