// A kernel is prepared once for all runs that follow one another, planning included.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "execute/compile_test.h"
#include "graph/emit.h"
#include "graph/kernel.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/device/config.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

using lockstep::testing::counting;
using lockstep::testing::one_thread_devices;
using lockstep::testing::read;
using lockstep::testing::two_thread_device;

std::atomic<int> prepared{0};

// A copy of its input that counts how often its kernel is prepared.
constinit const OpDef kCounted{
    .name = "test_counted",
    .infer = [](const InferContext& c) -> SpecList { return {c.inputs[0]}; },
};
const RegisterOp registered_op(kCounted);

class CountedKernel final : public Kernel {
 public:
  explicit CountedKernel(const KernelRequest& request) : bytes_(request.inputs[0].spec.bytes()) {
    ++prepared;
  }
  void launch(const LaunchArgs& args) const override {
    EXPECT_FALSE(busy_.exchange(true)) << "one launch at a time";
    if (bytes_ > 0) std::memcpy(args.outputs[0], args.inputs[0], bytes_);
    busy_ = false;
  }

 private:
  size_t bytes_;
  mutable std::atomic<bool> busy_{false};
};

const RegisterKernel registered_kernel(
    DeviceKind::cpu, kCounted, {.prepare = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
      return std::make_unique<CountedKernel>(request);
    }});

Tensor counted(const Tensor& x) { return emit_one(kCounted, {x}, {}, std::source_location::current()); }

class PreparedOnce : public ::testing::Test {
 protected:
  void SetUp() override { prepared = 0; }

  // Prepared in a function of one such op that is run a few times on a batch of 16.
  static int prepared_with(const ReplicaOptions& replicas) {
    auto f = function([](const Tensor& x) { return counted(x) * 2.0; }, {.replicas = replicas});
    const Tensor x = counting({16, 2});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(read(f(x)), read(x * 2.0));
    return prepared.exchange(0);
  }
};

// Kernels go by settings of the process, and whoever changes one wants other kernels from then on.
class PreparedForEachSetting : public PreparedOnce {
 protected:
  void TearDown() override {
    config::enable_tensor_float_32_execution(false);
    config::enable_op_determinism();
  }

  // A call with each of the settings, and once more with the first: how many kernels these were in all.
  template <class F>
  static int prepared_by(const F& call) {
    call();
    config::enable_tensor_float_32_execution(true);
    call();
    config::enable_tensor_float_32_execution(false);
    config::enable_op_determinism(false);
    call();
    config::enable_op_determinism();
    call();
    return prepared.exchange(0);
  }
};

TEST_F(PreparedForEachSetting, OpByOp) {
  EXPECT_EQ(prepared_by([] { counted(counting({16, 2})); }), 3);
}

TEST_F(PreparedForEachSetting, InAFunction) {
  auto f = function(counted);
  EXPECT_EQ(prepared_by([&] { f(counting({16, 2})); }), 3);
}

TEST_F(PreparedForEachSetting, InTheBodyOfALoop) {
  auto f = function([](const Tensor& x) {
    return while_loop([](std::span<const Tensor> s) { return reduce_sum(s[0]) < 1e3; },
                      [](std::span<const Tensor> s) { return TensorList{counted(s[0] * 2.0)}; }, {x})[0];
  });
  EXPECT_EQ(prepared_by([&] { f(counting({4}, 1)); }), 3);
}

TEST_F(PreparedForEachSetting, InReplicas) {
  const distribute::MirroredStrategy strategy({"/cpu:0"}, {.report = false});
  EXPECT_EQ(prepared_by([&] { strategy.run(counted, strategy.distribute(counting({16, 2}))); }), 3);
}

TEST_F(PreparedOnce, OnOneDevice) { EXPECT_EQ(prepared_with({}), 1); }

TEST_F(PreparedOnce, ForReplicasThatRunOneAfterTheOther) {
  EXPECT_EQ(prepared_with({.devices = one_thread_devices(1), .reproducible = true, .virtual_replicas = 8}),
            1);
}

TEST_F(PreparedOnce, ForEachThreadWhereReplicasRunAtOnce) {
  EXPECT_EQ(prepared_with({.devices = {&two_thread_device()}, .reproducible = true, .virtual_replicas = 8}),
            2);
}

TEST_F(PreparedOnce, ForEachDevice) {
  EXPECT_EQ(prepared_with({.devices = one_thread_devices(2)}), 2);
  EXPECT_EQ(prepared_with({.devices = one_thread_devices(3)}), 3) << "with slices of 6, 6 and 4 examples";
}

TEST_F(PreparedOnce, OncePerDeviceOfWhatReplicasHaveInCommon) {
  const Tensor scale = counting({1});
  auto f =
      function([&](const Tensor& x) { return all_reduce_sum(reduce_sum(x)) * counted(scale + 1.0); },
               {.replicas = {.devices = one_thread_devices(1), .reproducible = true, .virtual_replicas = 8}});
  f(counting({16, 2}));
  EXPECT_EQ(prepared, 1);
}

TEST_F(PreparedOnce, InTheBodyOfALoop) {
  auto f = function([](const Tensor& x) {
    return while_loop([](std::span<const Tensor> s) { return reduce_sum(s[0]) < 1e3; },
                      [](std::span<const Tensor> s) { return TensorList{counted(s[0] * 2.0)}; }, {x})[0];
  });
  f(counting({4}, 1));
  f(counting({4}, 2));
  EXPECT_EQ(prepared, 1);
}

}  // namespace
}  // namespace lockstep
