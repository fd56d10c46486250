#include "graph/eager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "device/cpu_device.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Devices are never destroyed: tensors may outlive the test.
Device& far() {
  static auto* device = new CpuDevice(50, 1);
  return *device;
}

Tensor pair(float a, float b) { return Tensor::from<float>({a, b}, {2}); }

template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::internal, "", std::source_location::current());
}

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

TEST(Eager, InputsOnTwoDevicesAreRefused) {
  const Tensor here = pair(1, 2), there = pair(1, 2).to(far());
  const uint32_t line = std::source_location::current().line() + 1;
  const Error error = error_of([&] { here + there; });
  EXPECT_EQ(error.code(), ErrorCode::device_mismatch);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("add"), HasSubstr("/CPU:0"), HasSubstr("/CPU:50"),
                                     HasSubstr("tensor.to(device)")));
  EXPECT_EQ(error.where().line(), line);
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
