#include "compile/planning/kernel_pool.h"

#include <gtest/gtest.h>

#include <thread>

#include "execute/compile_test.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::one_thread_devices;
using lockstep::testing::traced;

Plan small_plan(const PlanOptions& options = {}) {
  return make_plan(traced({{DType::float32, {4, 4}}},
                          [](const TensorList& x) { return TensorList{matmul(x[0], relu(x[0]))}; }),
                   options);
}

TEST(KernelPool, GivesWhatPlanningHasPrepared) {
  const Plan plan = small_plan();
  const Kernel* first = nullptr;
  {
    const auto set = plan.kernels->borrow({});
    first = set->launch(plan.calls, 0).kernel.get();
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(set->launch(plan.calls, 0).kernel.get(), first) << "prepared once";
  }
  EXPECT_EQ(plan.kernels->borrow({})->launch(plan.calls, 0).kernel.get(), first)
      << "a set that is given back is used again";
}

TEST(KernelPool, RunsThatMayOverlapHaveKernelsOfTheirOwn) {
  const Plan plan = small_plan();
  const auto one = plan.kernels->borrow({}), other = plan.kernels->borrow({});
  EXPECT_NE(one, other);
  EXPECT_NE(one->launch(plan.calls, 0).kernel.get(), other->launch(plan.calls, 0).kernel.get());
}

TEST(KernelPool, KernelsAreForTheOptionsTheyWerePreparedWith) {
  PlanOptions options;
  const Plan plan = small_plan(options);
  const KernelSet* const planned = plan.kernels->borrow(options).get();
  PlanOptions other = options;
  other.device_threads = 2;
  EXPECT_NE(plan.kernels->borrow(other).get(), planned);
  other = options;
  other.device = one_thread_devices(1)[0];
  EXPECT_EQ(plan.kernels->borrow(other).get(), planned) << "all CPU devices of as many threads are alike";
  EXPECT_TRUE(same_kernels(options, other));
  options.kind = other.kind = DeviceKind::gpu;
  EXPECT_FALSE(same_kernels(options, other)) << "a GPU's kernels belong to their device";
}

TEST(KernelPool, MayOutliveThePlan) {
  std::shared_ptr<KernelSet> set;
  {
    const Plan plan = small_plan();
    set = plan.kernels->borrow({});
  }
  set = nullptr;
}

TEST(KernelPool, IsSharedByThreads) {
  const Plan plan = small_plan();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto set = plan.kernels->borrow({});
        for (size_t s = 0; s < plan.calls.size(); ++s) EXPECT_NE(set->launch(plan.calls, s).kernel, nullptr);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep::compile
