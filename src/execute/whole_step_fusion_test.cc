#include "execute/whole_step_fusion.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/saved_environment_test.h"
#include "execute/asynchronous_device_test.h"
#include "execute/bound_plan.h"
#include "execute/compile_test.h"
#include "execute/graph_replay.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::AsynchronousDevice;
using lockstep::testing::counting;
using lockstep::testing::Floats;
using lockstep::testing::traced;

// Writes nines instead of what the calls compute, so that it shows who ran.
class Nines final : public WholeStepKernel {
 public:
  Nines(int& launches, bool takes_memory) : launches_(launches), takes_memory_(takes_memory) {}

  bool launch(std::span<void* const> pointers, Stream&) override {
    if (!takes_memory_) return false;
    ++launches_;
    std::fill_n(static_cast<float*>(pointers.back()), 2, 9.0F);
    return true;
  }
  bool launch(std::span<void* const>, const FunctionCore::RowRuns&, Stream&) override { return false; }

 private:
  int& launches_;
  const bool takes_memory_;
};

std::unique_ptr<WholeStepKernel> fuse_to_nines(std::span<const compile::KernelCall> calls,
                                               std::span<const TensorSpec> parameters, Device&) {
  static int nobody_asks = 0;
  if (calls.empty() || parameters.size() != 1) return nullptr;
  return std::make_unique<Nines>(nobody_asks, true);
}

// The kind that no other test has a rule for.
class NullKind final : public AsynchronousDevice {
 public:
  NullKind() : AsynchronousDevice(98, DeviceKind::null) {}
};

class WholeStepFusion : public ::testing::Test {
 protected:
  WholeStepFusion() { RegisterWholeStepFusion(DeviceKind::null, fuse_to_nines); }
  ~WholeStepFusion() override { RegisterWholeStepFusion(DeviceKind::null, nullptr); }

  static Graph graph() {
    return traced({{DType::float32, {2}}}, [](const TensorList& x) { return TensorList{relu(x[0])}; });
  }
  static bool fused(const Plan& plan, Device& device) { return fuse_whole_step(plan, device) != nullptr; }

  Device device_{std::make_unique<NullKind>()};
};

TEST_F(WholeStepFusion, IsAskedOfTheKindOfDevice) {
  const Plan plan = compile::make_plan(graph(), {});
  EXPECT_TRUE(fused(plan, device_));
  EXPECT_FALSE(fused(plan, current_device())) << "CPUs have no rule";
}

TEST_F(WholeStepFusion, IsForPlansOfOnePhaseInOnePlace) {
  PlanOptions replica;
  replica.split_parameters = {true};
  replica.local_batch = 2;
  const Plan summed = compile::make_plan(
      traced({{DType::float32, {2}}},
             [](const TensorList& x) { return TensorList{all_reduce_sum(reduce_sum(x[0]))}; },
             {.global_batch = 4, .local_batch = 2}),
      replica);
  ASSERT_GT(summed.phases, 1);
  EXPECT_FALSE(fused(summed, device_));
  Plan split = compile::make_plan(graph(), {});
  split.devices = {&current_device(), &device_};
  EXPECT_FALSE(fused(split, device_));
}

TEST_F(WholeStepFusion, CanBeForbidden) {
  const Plan plan = compile::make_plan(graph(), {});
  const lockstep::testing::SavedEnvironment environment({"LOCKSTEP_WHOLE_STEP_FUSION"});
  EXPECT_TRUE(fused(plan, device_));
  setenv("LOCKSTEP_WHOLE_STEP_FUSION", "0", 1);
  EXPECT_FALSE(fused(plan, device_));
}

// relu(x) of two numbers on a device that captures graphs, by a replay with such a kernel.
class FusedReplay : public ::testing::Test {
 protected:
  void fuse(bool takes_memory) {
    replay_.fuse(std::make_unique<Nines>(launches_, takes_memory));
    replay_.before_calls([this] { ++prepared_; });
  }
  Floats run() {
    memory_.parameters = {x_.impl()->data()};
    memory_.outputs = {y_.impl()->data()};
    bound_.bind(memory_);
    replay_.run(bound_, 0, backend_of(device_).compute_stream());
    return y_.to_vector<float>();
  }

  Device device_{std::make_unique<AsynchronousDevice>(99)};
  const Plan plan_ = compile::make_plan(
      traced({{DType::float32, {2}}}, [](const TensorList& x) { return TensorList{relu(x[0])}; }), {});
  Memory memory_{plan_, device_};
  BoundPlan bound_{plan_, Part::per_device, plan_.kernels->borrow({}), memory_, LaunchPlace{0, -1}};
  GraphReplay replay_;
  const Tensor x_ = Tensor::from<float>({-1, 2}, {2});
  const Tensor y_ = counting({2});
  int launches_ = 0;
  int prepared_ = 0;
};

TEST_F(FusedReplay, LaunchesTheKernelInsteadOfTheCalls) {
  fuse(true);
  for (int run_number = 1; run_number <= 4; ++run_number) {
    EXPECT_EQ(run(), (Floats{9, 9}));
    EXPECT_EQ(launches_, run_number) << "the replays of a graph launch it, too";
  }
  EXPECT_EQ(prepared_, 0) << "the calls need no memory";
}

TEST_F(FusedReplay, MakesTheCallsWhereTheKernelDoesNotTakeTheMemory) {
  fuse(false);
  for (int run_number = 1; run_number <= 4; ++run_number) EXPECT_EQ(run(), (Floats{0, 2}));
  EXPECT_EQ(launches_, 0);
  EXPECT_EQ(prepared_, 1) << "once, before the first of them";
}

}  // namespace
}  // namespace lockstep::execute
