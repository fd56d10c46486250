#include "lockstep/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

TEST(Tensor, HoldsACopyOfItsElements) {
  std::vector<float> v = {1, 2, 3, 4, 5, 6};
  const Tensor x = Tensor::from(v, {2, 3});
  v[0] = 9;
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.dtype(), DType::float32);
  EXPECT_EQ(x.rank(), 2);
  EXPECT_EQ(x.size(), 6);
  EXPECT_FALSE(x.symbolic());
  EXPECT_EQ(x.data<float>()[5], 6);
  EXPECT_THROW(Tensor::from(v, {7}), Error);
}

TEST(Tensor, ScalarsBooleansAndFills) {
  EXPECT_EQ(Tensor::scalar(2.5).item<double>(), 2.5);
  EXPECT_EQ(Tensor::scalar(2.5).dtype(), DType::float64);
  EXPECT_EQ(Tensor::scalar<int64_t>(-3).item<int64_t>(), -3);
  EXPECT_EQ(Tensor::from(std::vector<bool>{true, false, true}, {3}).to_vector<bool>(),
            (std::vector<bool>{true, false, true}));
  EXPECT_EQ(Tensor::full(DType::int32, {2}, 7).to_vector<int32_t>(), (std::vector<int32_t>{7, 7}));
  EXPECT_EQ(static_cast<float>(Tensor::full(DType::bfloat16, {2}, 1.5).to_vector<BFloat16>()[1]), 1.5f);
  EXPECT_EQ(Tensor::empty(DType::float32, {0, 4}).size(), 0);
  EXPECT_THROW(Tensor::empty(DType::float32, {-1}), Error);
}

TEST(Tensor, ReadingChecksTypeAndSize) {
  const Tensor x = Tensor::from<float>({1, 2}, {2});
  EXPECT_THROW(x.to_vector<double>(), Error);
  EXPECT_THROW(x.item<float>(), Error);
  EXPECT_THROW(x.data<int32_t>(), Error);
  EXPECT_EQ(Tensor::from<float>({4}, {1, 1}).item<float>(), 4);
}

TEST(Tensor, NoneSaysSo) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_FALSE(none.symbolic());
  EXPECT_THROW(none.shape(), Error);
  EXPECT_THROW(none.to_vector<float>(), Error);
}

TEST(Tensor, CopiesShareTheStorage) {
  const Tensor x = Tensor::from<float>({1, 2}, {2});
  Tensor y;
  y = x;
  EXPECT_EQ(x.data<float>().data(), y.data<float>().data());
}

TEST(Tensor, ViewsReadThroughStrides) {
  const Tensor x = Tensor::from<int32_t>({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor turned = make_view(*x.impl(), {DType::int32, {3, 2}}, {1, 3}, 0);
  EXPECT_EQ(turned.to_vector<int32_t>(), (std::vector<int32_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_THROW(turned.data<int32_t>(), Error);
  const Tensor last = make_view(*x.impl(), {DType::int32, {2}}, {-3}, 5);
  EXPECT_EQ(last.to_vector<int32_t>(), (std::vector<int32_t>{5, 2}));
}

TEST(Tensor, SymbolicTensorsHaveNoElements) {
  const Tensor x = make_symbolic({DType::float32, {2}}, {.trace = 1, .node = 0, .output = 0});
  EXPECT_TRUE(x.symbolic());
  EXPECT_EQ(x.shape(), Shape{2});
  EXPECT_THROW(x.to_vector<float>(), Error);
  EXPECT_THROW(x.data<float>(), Error);
  EXPECT_THROW(x.device(), Error);
}

// Says which line made the devices.
void change_devices_after(void (*first_use)()) {
  first_use();
  try {
    set_logical_cpus({.count = 3});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.message().c_str());
    std::exit(1);
  }
  std::exit(0);
}

TEST(TensorDeathTest, TheFirstTensorMakesTheDevices) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  void (*const uses[])() = {[] { Tensor::scalar(1); }, [] { Tensor::full(DType::float32, {2}, 1); }};
  for (const auto use : uses)
    EXPECT_EXIT(change_devices_after(use), testing::ExitedWithCode(1),
                "initialized by the first use of a device in .*tensor_test.cc:[0-9]+");
}

TEST(CopyStrided, BetweenLayoutsOfEveryWidth) {
  for (const DType dtype : {DType::uint8, DType::bfloat16, DType::int32, DType::int64}) {
    const size_t width = size_of(dtype);
    std::vector<char> from(6 * width), to(6 * width);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i);
    copy_strided(dtype, {2, 3}, from.data(), {1, 2}, to.data(), {3, 1});
    for (size_t i = 0; i < 2; ++i)
      for (size_t j = 0; j < 3; ++j)
        for (size_t b = 0; b < width; ++b)
          EXPECT_EQ(to[(i * 3 + j) * width + b], from[(j * 2 + i) * width + b]);
  }
}

}  // namespace
}  // namespace lockstep
