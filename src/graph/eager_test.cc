#include "graph/eager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "device/cpu_device.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/device/config.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

// Devices are never destroyed: tensors may outlive the test.
Device& far() {
  static auto* device = new Device(std::make_unique<CpuDevice>(50, 1));
  return *device;
}

Tensor pair(float a, float b) { return Tensor::from<float>({a, b}, {2}); }

TEST(Eager, RunsOnTheDeviceOfItsInputs) {
  const Tensor x = pair(1, 2).to(far());
  far().reset_counters();
  const Tensor y = matmul(reshape(x, {1, 2}), reshape(x, {2, 1}));
  EXPECT_EQ(&y.device(), &far());
  EXPECT_EQ(far().counters().kernels, 1);
  EXPECT_EQ(far().counters().flops, 2 * 2);
  EXPECT_THAT(y.to_vector<float>(), ElementsAre(5));
}

TEST(Eager, NumbersComeToTheTensor) {
  const Tensor x = pair(1, 4).to(far());
  EXPECT_EQ(&(x * 2.0).device(), &far());
  EXPECT_THAT((1.0 - x).to_vector<float>(), ElementsAre(0, -3));
  EXPECT_THAT(where(x > 2.0, x, 0.0).to_vector<float>(), ElementsAre(0, 4));
  EXPECT_THAT(clip_by_value(x, 2, 3).to_vector<float>(), ElementsAre(2, 3));
  EXPECT_EQ(&ones_like(x).device(), &far());
  EXPECT_EQ(&zeros_like(x).device(), &far());
}

TEST(Eager, GradientsAreOnTheDeviceOfTheirSource) {
  const Tensor x = pair(1, 4).to(far());
  const Variable w(pair(3, 3).to(far()));
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor y = reduce_mean(relu(x * w) + softmax(x));
  const Tensor dx = tape.gradient(y, x), dw = tape.gradient(y, w);
  EXPECT_EQ(&dx.device(), &far());
  EXPECT_EQ(&dw.device(), &far());
  EXPECT_EQ(
      &tape.gradient(y, pair(1, 1).to(far()), {.unconnected_gradients = UnconnectedGradients::zero}).device(),
      &far());
}

TEST(Eager, ScopesDecideWhereNoInputDoes) {
  const DeviceScope scope(far());
  EXPECT_EQ(&zeros({2}).device(), &far());
  EXPECT_EQ(&pair(1, 2).device(), &far());
  EXPECT_EQ(&random::uniform({2}).device(), &far());
}

// --- placement ---------------------------------------------------------------------------------------------

TEST(EagerPlacement, AnOpRunsWithItsFirstInputThatIsNoScalarAndTheOthersAreCopied) {
  const Tensor here = pair(1, 2), there = pair(10, 20).to(far()), scalar = Tensor::scalar(3.0f),
               far_scalar = scalar.to(far());
  far().reset_counters();
  current_device().reset_counters();
  const Tensor first = here + there, second = there + here, third = scalar * there;
  EXPECT_EQ(&first.device(), &here.device());
  EXPECT_EQ(&second.device(), &far());
  EXPECT_EQ(&third.device(), &far());
  EXPECT_EQ(&(scalar + far_scalar).device(), &here.device());
  EXPECT_THAT(first.to_vector<float>(), ElementsAre(11, 22));
  EXPECT_THAT(second.to_vector<float>(), ElementsAre(11, 22));
  EXPECT_THAT(third.to_vector<float>(), ElementsAre(30, 60));
  EXPECT_EQ(far().counters().kernels, 2);
  EXPECT_EQ(far().counters().bytes_copied_out, 8 + 4);
  EXPECT_EQ(far().counters().bytes_copied_in, 8 + 4);
  EXPECT_EQ(current_device().counters().bytes_copied_in, 8 + 4);
}

TEST(EagerPlacement, AScopeWins) {
  const Tensor x = pair(1, 2), shared = pair(3, 4).to(far());
  const DeviceScope scope(far());
  far().reset_counters();
  for (const Tensor& y : {x * 2.0, x + shared, reduce_sum(x), reshape(x, {2, 1}), zeros_like(x)})
    EXPECT_EQ(&y.device(), &far());
  EXPECT_EQ(far().counters().bytes_copied_in, 4 * 8) << "zeros are made there, numbers as well";
  EXPECT_THAT((x + shared).to_vector<float>(), ElementsAre(4, 6));
  const DeviceScope inner(x.device());
  EXPECT_EQ(&(x + shared).device(), &x.device());
}

TEST(EagerPlacement, VariablesLiveWhereTheyWereMadeAndAreUpdatedThere) {
  const Tensor initial = pair(1, 2);
  const Variable v = [&] {
    const DeviceScope scope(far());
    return Variable(initial);
  }();
  EXPECT_EQ(&v.value().device(), &far());
  far().reset_counters();
  v.assign_add(initial);
  EXPECT_EQ(far().counters().kernels, 1);
  EXPECT_EQ(far().counters().bytes_copied_in, 8);
  {
    const DeviceScope elsewhere(initial.device());
    v.assign_sub(initial);
    v.assign(transpose(v + initial));
  }
  EXPECT_EQ(&v.value().device(), &far());
  EXPECT_THAT(v.value().to_vector<float>(), ElementsAre(2, 4));
}

TEST(EagerPlacement, GradientsRunWhereTheirOpRan) {
  const Tensor x = pair(3, 5);
  const Variable w(pair(2, 7));
  GradientTape tape;
  Tensor y;
  {
    const DeviceScope scope(far());
    y = reduce_sum(square(x * w));
  }
  Device& near = current_device();
  near.reset_counters();
  const DeviceScope elsewhere(near);
  const Tensor dw = tape.gradient(y, w);
  EXPECT_EQ(&dw.device(), &far());
  EXPECT_EQ(near.counters().kernels, 0);
  EXPECT_THAT(dw.to_vector<float>(), ElementsAre(2 * 3 * 3 * 2, 2 * 5 * 5 * 7));
}

TEST(EagerPlacement, IsLoggedOnRequest) {
  std::vector<std::string> texts;
  const LogSink previous = set_log_sink([&](const LogMessage& message) { texts.emplace_back(message.text); });
  const Tensor x = pair(1, 2).to(far());
  x + x;
  config::set_log_device_placement(true);
  EXPECT_TRUE(config::get_log_device_placement());
  x* x;
  config::set_log_device_placement(false);
  x - x;
  set_log_sink(previous);
  EXPECT_THAT(texts, ElementsAre("mul -> /CPU:50"));
}

TEST(Eager, ViewsShareMemoryAndLaunchNothing) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  current_device().reset_counters();
  const Tensor views[] = {transpose(x), slice(x, {0, 1}, {2, 2}), reshape(x, {6}),
                          broadcast_to(slice(x, {0, 0}, {1, 3}), {4, 3})};
  for (const Tensor& view : views) EXPECT_EQ(view.impl()->storage, x.impl()->storage);
  EXPECT_EQ(current_device().counters().kernels, 0);
  const Tensor copy = reshape(transpose(x), {6});  // no strides could say that
  EXPECT_NE(copy.impl()->storage, x.impl()->storage);
  EXPECT_THAT(copy.to_vector<float>(), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(Eager, ContiguousCopiesOnlyWhatIsNot) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const auto where = std::source_location::current();
  EXPECT_EQ(contiguous(x, where).impl(), x.impl());
  const Tensor across = contiguous(transpose(x), where);
  EXPECT_EQ(across.impl()->strides, contiguous_strides({2, 2}));
  EXPECT_THAT(across.data<float>(), ElementsAre(1, 3, 2, 4));
}

// Kernels are prepared once per thread and layout; the results must not be mixed up.
TEST(Eager, PreparedKernelsServeTheirOwnLayoutAttributesAndThread) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const auto check = [&] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT((x + 1.0).to_vector<float>(), ElementsAre(2, 3, 4, 5));
      EXPECT_THAT((transpose(x) + 1.0).to_vector<float>(), ElementsAre(2, 4, 3, 5));
      EXPECT_THAT(matmul(x, x).to_vector<float>(), ElementsAre(7, 10, 15, 22));
      EXPECT_THAT(matmul(x, x, {.transpose_a = true}).to_vector<float>(), ElementsAre(10, 14, 14, 20));
      EXPECT_THAT(reduce_sum(x, {.axis = {0}}).to_vector<float>(), ElementsAre(4, 6));
      EXPECT_THAT(reduce_sum(x, {.axis = {1}}).to_vector<float>(), ElementsAre(3, 7));
    }
  };
  check();
  std::thread other(check);
  check();
  other.join();
}

TEST(Eager, ManyShapesDoNotFillMemory) {
  // More than the cache holds; the last must still be right.
  for (int64_t n = 1; n <= 5000; ++n) {
    const Tensor y = Tensor::full(DType::float32, {n}, 2) * Tensor::full(DType::float32, {n}, 3);
    if (n % 1000 == 0) {
      EXPECT_THAT(y.to_vector<float>(), testing::Each(6));
    }
  }
}

}  // namespace
}  // namespace lockstep
