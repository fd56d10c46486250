#include "keras/training/run_observer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/device_backend.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {
namespace {

TEST(RunObserver, SeesTheTimeAndMemoryOfItsRunAlone) {
  Device& device = device_by_name("/CPU:0");
  observe::StepClock clock;
  const auto step = [&] {
    clock.begin_step();
    clock.end_step();
  };
  step();
  clock.begin_step();  // a run that an exception ended
  clock.enter(observe::Category::host);

  constexpr int64_t kBytes = 4 << 20;
  const MemoryLedger::Use use = memory_use("run observer test");
  const auto held = [&] {
    const MemoryUseScope scope(use);
    return Tensor::empty(DType::uint8, {kBytes}, device);
  };
  const Tensor before = held();
  const RunObserver observer(clock, {&device});
  EXPECT_EQ(&observer.clock(), &clock);
  step();
  step();
  const Tensor needed = held();
  observer.end_epoch();
  const Tensor grown = held();
  observer.end_epoch();

  const observe::RunSummary summary = observer.summary();
  ASSERT_EQ(summary.replicas.size(), 1U);
  EXPECT_EQ(summary.replicas[0].wall.count, 2) << "the steps of the run before do not count";
  ASSERT_EQ(summary.memory.size(), 1U);
  EXPECT_EQ(summary.memory[0].device, device.name());
  const auto& uses = summary.memory[0].uses;
  const auto found =
      std::find_if(uses.begin(), uses.end(), [](const auto& u) { return u.name == "run observer test"; });
  ASSERT_NE(found, uses.end());
  EXPECT_EQ(found->before, kBytes);
  EXPECT_EQ(found->after, 3 * kBytes);
  EXPECT_EQ(found->grown, kBytes) << "what the first epoch needed is no growth";
}

TEST(RunObserver, WaitsForTheDevicesAsAPartOfTheSteps) {
  Device& device = device_by_name("/CPU:0");
  observe::StepClock clock;
  const RunObserver observer(clock, {&device});
  observer.finish_steps();  // no step was made
  EXPECT_EQ(observer.summary().replicas[0].wall.total, 0);
  clock.begin_step();
  clock.end_step();
  const int64_t made = observer.summary().replicas[0].wall.total;
  observer.finish_steps();
  const observe::ReplicaSummary summary = observer.summary().replicas[0];
  EXPECT_EQ(summary.wall.count, 1);
  EXPECT_GT(summary.wall.total, made);
}

}  // namespace
}  // namespace lockstep::keras
