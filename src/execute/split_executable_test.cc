// Functions whose ops run on several devices.
#include "execute/split_executable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/passes/transfers.h"
#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/log.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/device/config.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::counting;
using lockstep::testing::error_of;
using lockstep::testing::Floats;
using lockstep::testing::one_thread_devices;
using lockstep::testing::read;
using lockstep::testing::two_thread_device;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Split : public ::testing::Test {
 protected:
  static constexpr int kDevices = 3;
  void SetUp() override {
    for (Device* device : devices_) device->reset_counters();
  }
  Device& device(int i) { return *devices_[static_cast<size_t>(i)]; }
  // Something of `shape` on device i.
  Tensor on(int i, const Shape& shape, float first = 0) {
    const DeviceScope scope(device(i));
    return counting(shape, first);
  }
  // Bytes that came into each device since the last call.
  std::vector<int64_t> bytes_in() {
    std::vector<int64_t> bytes;
    for (Device* each : devices_) {
      bytes.push_back(each->counters().bytes_copied_in);
      each->reset_counters();
    }
    return bytes;
  }
  const std::vector<Device*> devices_ = one_thread_devices(kDevices);
};

TEST_F(Split, OpsRunWhereTheirScopesSayAndValuesCross) {
  auto f = function([&](const Tensor& x) {
    Tensor h, y;
    {
      const DeviceScope scope(device(0));
      h = matmul(x, x);
    }
    {
      const DeviceScope scope(device(1));
      y = matmul(h, h) + h;
    }
    const DeviceScope scope(device(2));
    return std::pair(h * y, y);
  });
  const Tensor x = on(0, {4, 4});
  const Tensor h = matmul(x, x), y = matmul(h, h) + h;
  bytes_in();
  for (int run = 0; run < 3; ++run) {
    const auto [product, sum] = f(x);
    EXPECT_EQ(read(product), read(h * y));
    EXPECT_EQ(read(sum), read(y));
    EXPECT_EQ(&product.device(), &device(2));
    EXPECT_EQ(&sum.device(), &device(1));
    for (const int i : {0, 1}) EXPECT_GE(device(i).counters().flops, 2 * 4 * 4 * 4) << i;
    EXPECT_GT(device(2).counters().kernels, 0);
    EXPECT_EQ(device(0).counters().bytes_copied_out, 2 * 64);
    EXPECT_EQ(device(1).counters().bytes_copied_out, 64);
    EXPECT_THAT(bytes_in(), ElementsAre(0, 64, 128)) << "h to two devices, y to one";
  }
  EXPECT_EQ(f.traces(), 1);
}

TEST_F(Split, WithoutScopesOpsRunWithTheirInputs) {
  auto f = function([](const Tensor& x, const Tensor& y) { return std::pair(x + y, matmul(y, y)); });
  const Tensor x = on(0, {2, 2}), y = on(1, {2, 2}, 1);
  bytes_in();
  const auto [sum, product] = f(x, y);
  EXPECT_EQ(&sum.device(), &device(0));
  EXPECT_EQ(&product.device(), &device(1));
  EXPECT_THAT(read(sum), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(read(product), ElementsAre(7, 10, 15, 22));
  EXPECT_THAT(bytes_in(), ElementsAre(16, 0, 0));
  // Arguments elsewhere make another program; a scope around the call makes one of its device alone.
  EXPECT_EQ(&f(y, x).first.device(), &device(1));
  EXPECT_EQ(f.traces(), 2);
  const DeviceScope scope(device(2));
  EXPECT_EQ(&f(x, y).second.device(), &device(2));
  EXPECT_EQ(&f(y, x).second.device(), &device(2));
  EXPECT_EQ(f.traces(), 3);
}

TEST_F(Split, AValueCrossesOnceForEachDevice) {
  auto f = function([&](const Tensor& x) {
    const Tensor h = exp(x);
    const DeviceScope scope(device(1));
    return std::tuple(reduce_sum(h), reduce_max(h), matmul(h, h));
  });
  const Tensor x = on(0, {2, 2});
  bytes_in();
  f(x);
  EXPECT_THAT(bytes_in(), ElementsAre(0, 16, 0));
}

TEST_F(Split, ViewsOfOtherDevicesAreMadeContiguous) {
  auto f = function([&](const Tensor& x) {
    const Tensor turned = transpose(exp(x)), argument = transpose(x);
    const DeviceScope scope(device(1));
    return std::pair(turned + 1.0, slice(argument, {0, 1}, {3, 1}));
  });
  const Tensor x = on(0, {2, 3});
  const auto [turned, part] = f(x);
  EXPECT_EQ(read(turned), read(transpose(exp(x)) + 1.0));
  EXPECT_THAT(read(part), ElementsAre(3, 4, 5));
}

TEST_F(Split, CapturesAndConstantsAreWhereTheyAreRead) {
  const Tensor captured = on(2, {2}, 5);
  auto f = function([&](const Tensor& x) {
    const Tensor h = x * 2.0 + captured;
    const DeviceScope scope(device(1));
    return h * 3.0 - captured;
  });
  EXPECT_THAT(read(f(on(0, {2}, 1))), ElementsAre((2 + 5) * 3 - 5, (4 + 6) * 3 - 6));
  bytes_in();
  f(on(0, {2}, 1));
  EXPECT_THAT(bytes_in(), ElementsAre(0, 8, 0)) << "captured tensors were copied when the program was made";
}

TEST_F(Split, VariablesAreUpdatedWhereTheyLive) {
  const Variable a(on(0, {2}, 1)), b(on(1, {2}, 10)), still(on(1, {2}, 100));
  auto f = function([&](const Tensor& x) {
    const DeviceScope scope(device(0));
    const Tensor sum = a + b + still;
    b.assign_add(x);  // runs on b's device
    a.assign(sum);    // is computed here
    return sum;
  });
  Floats want_a = {1, 2}, want_b = {10, 11};
  const Tensor x = on(0, {2}, 3);
  bytes_in();
  for (int run = 0; run < 3; ++run) {
    const Tensor sum = f(x);
    for (size_t i = 0; i < 2; ++i) {
      want_a[i] += want_b[i] + 100 + static_cast<float>(i);
      want_b[i] += 3 + static_cast<float>(i);
    }
    EXPECT_EQ(read(sum), want_a);
    EXPECT_EQ(read(a), want_a);
    EXPECT_EQ(read(b), want_b);
    EXPECT_EQ(&a.value().device(), &device(0));
    EXPECT_EQ(&b.value().device(), &device(1));
    EXPECT_THAT(bytes_in(), ElementsAre(run == 0 ? 16 : 8, 8, 0))
        << "b every time, what does not change once; x to where b lives";
  }
  // Written outside: the copy is out of date.
  b.assign(on(2, {2}, 0));
  still.assign(on(1, {2}, 0));
  f(x);
  EXPECT_THAT(read(a), ElementsAre(want_a[0], want_a[1] + 2));
}

TEST_F(Split, AssignedArgumentsOtherVariablesAndOldValues) {
  const Variable a(on(0, {2}, 1)), b(on(1, {2}, 10)), c(on(2, {2}, 50));
  auto f = function([&](const Tensor& x) {
    const Tensor old = b.value();
    b.assign(x);          // an argument that lives elsewhere
    c.assign(a.value());  // another variable
    a.assign(old);
    const DeviceScope scope(device(1));
    return std::pair(old + b, c.value());
  });
  const auto [sum, assigned] = f(on(0, {2}, 7));
  EXPECT_THAT(read(sum), ElementsAre(17, 19));
  EXPECT_THAT(read(assigned), ElementsAre(1, 2));
  EXPECT_THAT(read(a), ElementsAre(10, 11));
  EXPECT_THAT(read(b), ElementsAre(7, 8));
  EXPECT_THAT(read(c), ElementsAre(1, 2));
}

TEST_F(Split, ReturnsArgumentsAndVariablesAsTheyAre) {
  const Variable v(on(1, {2}, 4));
  auto f = function([&](const Tensor& x) {
    const DeviceScope scope(device(2));
    return std::tuple(x, v.value(), exp(x), v * 1.5);
  });
  const auto [x, value, a, b] = f(on(0, {2}, 1));
  EXPECT_THAT(read(x), ElementsAre(1, 2));
  EXPECT_THAT(read(value), ElementsAre(4, 5));
}

TEST_F(Split, LoopsAndBranchesRunOnOneDeviceEach) {
  auto f = function([&](const Tensor& x) {
    Tensor h;
    {
      const DeviceScope scope(device(1));
      h = fori_loop(0, 3,
                    [&](const Tensor&, std::span<const Tensor> v) { return TensorList{matmul(v[0], x)}; },
                    {x})[0];
    }
    const DeviceScope scope(device(0));
    return cond(
        reduce_sum(h) > 0.0, [&] { return h + x; }, [&] { return h - x; });
  });
  const Tensor x = on(0, {2, 2}, 1);
  const Tensor power = matmul(matmul(matmul(x, x), x), x);
  EXPECT_EQ(read(f(x)), read(power + x));
  EXPECT_GE(device(1).counters().flops, 3 * 2 * 8);
}

TEST_F(Split, GradientsRunWhereTheirOpRan) {
  const auto loss = [&](const Tensor& x, const Variable& w, const Variable& v, Device& first,
                        Device& second) {
    Tensor h;
    {
      const DeviceScope scope(first);
      h = tanh(matmul(x, w));
    }
    const DeviceScope scope(second);
    return reduce_sum(square(matmul(h, v)));
  };
  const Tensor x = on(0, {4, 4}, -1);
  const Variable w(on(0, {4, 4}, -8) * 0.1), v(on(1, {4, 4}, -7) * 0.1);
  const auto gradients = [&](Device& first, Device& second) {
    auto f = function([&](const Tensor& in) {
      GradientTape tape;
      const Tensor y = loss(in, w, v, first, second);
      return tape.gradient(y, std::vector<Variable>{w, v});
    });
    return f(x);
  };
  const TensorList one = gradients(device(0), device(0));
  for (Device* each : devices_) each->reset_counters();
  const TensorList two = gradients(device(0), device(1));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(read(one[i]), read(two[i])) << i;
  EXPECT_EQ(&two[0].device(), &device(0));
  EXPECT_EQ(&two[1].device(), &device(1));
  // Two products here (forward, dw), three there (forward, dv, dh).
  EXPECT_GE(device(0).counters().flops, 2 * 128);
  EXPECT_LT(device(0).counters().flops, 3 * 128);
  EXPECT_GE(device(1).counters().flops, 3 * 128);
  EXPECT_LT(device(1).counters().flops, 4 * 128);
  // h forward, dh backward.
  EXPECT_THAT(bytes_in(), ElementsAre(64, 64, 0));
}

TEST_F(Split, KernelsHaveTheThreadsOfTheirDevice) {
  auto f = function([&](const Tensor& x) {
    const Tensor h = matmul(x, x);
    const DeviceScope scope(two_thread_device());
    return matmul(h, h);
  });
  const Tensor x = on(0, {64, 64}) * 1e-4;
  const Tensor h = matmul(x, x);
  const Floats want = [&] {
    const DeviceScope scope(two_thread_device());
    return read(matmul(h, h));
  }();
  EXPECT_EQ(read(f(x)), want);
}

TEST_F(Split, EachDeviceHasItsOwnArena) {
  const auto body = [&](Device& second) {
    return [this, &second](const Tensor& x) {
      Tensor h;
      {
        const DeviceScope scope(device(0));
        h = matmul(matmul(x, x), x);
      }
      const DeviceScope scope(second);
      return matmul(matmul(h, h), h);
    };
  };
  const Tensor x = on(0, {32, 32});
  Graph graph;
  {
    Trace trace;
    const Tensor parameter = trace.parameter(0, x.spec(), std::source_location::current(), &device(0));
    trace.graph().outputs.push_back(
        trace.value_of(body(device(1))(parameter), std::source_location::current()));
    graph = std::move(trace.graph());
  }
  EXPECT_THAT(compile::devices_of(graph), ElementsAre(&device(0), &device(1)));
  PlanOptions options;
  options.devices = compile::devices_of(graph);
  const Plan plan = make_plan(graph, options);
  ASSERT_EQ(plan.device_arenas.size(), 2u);
  EXPECT_GE(plan.device_arenas[0].bytes, 2 * x.spec().bytes());
  EXPECT_GE(plan.device_arenas[1].bytes, 2 * x.spec().bytes());
  EXPECT_THAT(plan.to_string(),
              AllOf(HasSubstr("copy_to_device on /CPU:101"), HasSubstr("matmul on /CPU:100")));
  int copies = 0;
  for (const KernelCall& call : plan.calls) copies += call.copies ? 1 : 0;
  EXPECT_EQ(copies, 1);
}

TEST_F(Split, PlacementIsLoggedOnRequest) {
  std::vector<std::string> texts;
  auto f = function(
      [&](const Tensor& x) {
        const Tensor h = matmul(x, x);
        const DeviceScope scope(device(1));
        return matmul(h, h);
      },
      {.name = "placed"});
  const Tensor x = on(0, {2, 2});
  const LogSink previous = set_log_sink([&](const LogMessage& message) { texts.emplace_back(message.text); });
  config::set_log_device_placement(true);
  f(x);
  const size_t lines = texts.size();
  f(x);
  config::set_log_device_placement(false);
  set_log_sink(previous);
  EXPECT_EQ(texts.size(), lines) << "once, when it is compiled";
  EXPECT_THAT(texts, Contains(AllOf(HasSubstr("\"placed\""), HasSubstr("matmul -> /CPU:100"),
                                    HasSubstr("split_executable_test.cc"))));
  EXPECT_THAT(texts, Contains(HasSubstr("copy_to_device -> /CPU:101")));
}

TEST_F(Split, ReplicasAndBodiesRefuseScopes) {
  auto replicated = function(
      [&](const Tensor& x) {
        const DeviceScope scope(device(2));
        return x * 2.0;
      },
      {.replicas = {.devices = {&device(0), &device(1)}}});
  const Error error = error_of([&] { replicated(on(0, {4})); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("mul"), HasSubstr("/CPU:102"), HasSubstr("replicas")));

  auto loop = function([&](const Tensor& x) {
    return map_fn(
        [&](std::span<const Tensor> rows) {
          const DeviceScope scope(device(1));
          return TensorList{rows[0] * 2.0};
        },
        {x})[0];
  });
  EXPECT_THAT(error_of([&] { loop(on(0, {4})); }).message(), HasSubstr("body of cond, while_loop or scan"));

  // What holds around the call is no scope inside.
  const DeviceScope around(device(2));
  auto plain =
      function([&](const Tensor& x) { return x * 2.0; }, {.replicas = {.devices = {&device(0), &device(1)}}});
  EXPECT_THAT(read(plain(on(0, {4}))), ElementsAre(0, 2, 4, 6));
}

}  // namespace
}  // namespace lockstep::execute
