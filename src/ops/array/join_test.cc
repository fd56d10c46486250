#include "ops/array/join.h"

#include <gtest/gtest.h>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "ops/array/strided_slice_grad.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::values;

constexpr DType kAll[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                          DType::int32,   DType::int64,   DType::uint8,    DType::boolean};

TEST(Concat, EveryDtypeAndAxis) {
  for (const DType dtype : kAll)
    for (const int axis : {0, 1, 2, -1}) {
      const int position = axis < 0 ? axis + 3 : axis;
      TensorList parts;
      Shape shape = {2, 3, 4};
      for (const int64_t size : {3, 0, 1, 5}) {
        shape[position] = size;
        parts.push_back(random_tensor(dtype, shape, static_cast<unsigned>(size) + 1));
      }
      const Tensor joined = concat(parts, axis);
      shape[position] = 9;
      ASSERT_EQ(joined.shape(), shape);
      Dims begin = {0, 0, 0};
      for (const Tensor& part : parts) {
        EXPECT_TRUE(same_bits(slice(joined, begin, part.shape()), part)) << dtype << axis;
        begin[position] += part.shape()[position];
      }
    }
}

TEST(Concat, StridedPartsAndThreads) {
  const Tensor a = transpose(random_tensor(DType::float32, {200, 300}));
  const Tensor b =
      strided_slice(random_tensor(DType::float32, {600, 200}, 2), {599, 0}, {-601, 200}, {-2, 1});
  const Tensor one = run_kernel(kConcat, {a, b}, ConcatAttrs{1}, 1).front();
  EXPECT_TRUE(same_bits(one, run_kernel(kConcat, {a, b}, ConcatAttrs{1}, 2).front()));
  EXPECT_TRUE(same_bits(slice(one, {0, 200}, {300, 200}), b));
}

TEST(Concat, RefusesPartsThatDoNotFit) {
  const Tensor a = random_tensor(DType::float32, {2, 3});
  EXPECT_THROW(concat({}, 0), Error);
  EXPECT_THROW(concat(TensorList{a, random_tensor(DType::float32, {2, 4})}, 0), Error);
  EXPECT_THROW(concat(TensorList{a, random_tensor(DType::float64, {2, 3})}, 0), Error);
  EXPECT_THROW(concat(TensorList{a, random_tensor(DType::float32, {2})}, 0), Error);
  EXPECT_THROW(concat(TensorList{a, a}, 2), Error);
}

TEST(Concat, GradientsAreSlices) {
  const Tensor a = random_tensor(DType::float32, {2, 3}), b = random_tensor(DType::float32, {2, 2}, 2);
  const Tensor weight = random_tensor(DType::float32, {2, 5}, 3);
  GradientTape tape({.persistent = true});
  tape.watch(a);
  tape.watch(b);
  const Tensor y = concat(TensorList{a, b}, 1) * weight;
  EXPECT_TRUE(same_bits(tape.gradient(y, a), slice(weight, {0, 0}, {2, 3})));
  EXPECT_TRUE(same_bits(tape.gradient(y, b), slice(weight, {0, 3}, {2, 2})));
}

TEST(Split, EqualParts) {
  const Tensor x = random_tensor(DType::float32, {2, 6});
  const TensorList parts = split(x, 3, 1);
  ASSERT_EQ(parts.size(), 3u);
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_TRUE(same_bits(parts[static_cast<size_t>(i)], slice(x, {0, 2 * i}, {2, 2})));
  EXPECT_TRUE(same_bits(concat(parts, 1), x));
  EXPECT_THROW(split(x, 4, 1), Error);
  EXPECT_THROW(split(x, 0, 1), Error);
}

TEST(Pad, ZerosAroundEveryDtype) {
  for (const DType dtype : kAll) {
    const Tensor x = random_tensor(dtype, {2, 3});
    const Tensor y = pad(x, {1, 0}, {2, 4});
    ASSERT_EQ(y.shape(), (Shape{5, 7}));
    EXPECT_TRUE(same_bits(slice(y, {1, 0}, {2, 3}), x));
    double rest = 0;
    for (const double v : values(y)) rest += v != 0;
    for (const double v : values(x)) rest -= v != 0;
    EXPECT_EQ(rest, 0) << dtype;
  }
  EXPECT_EQ(values(pad(Tensor::empty(DType::float32, {0}), {1}, {1})), (std::vector<double>{0, 0}));
  EXPECT_THROW(pad(random_tensor(DType::float32, {2}), {-1}, {0}), Error);
  EXPECT_THROW(pad(random_tensor(DType::float32, {2}), {1, 1}, {0}), Error);
}

TEST(Pad, GradientIsASlice) {
  const Tensor x = random_tensor(DType::float32, {2, 3});
  const Tensor weight = random_tensor(DType::float32, {4, 4}, 2);
  GradientTape tape;
  tape.watch(x);
  const Tensor y = pad(x, {1, 0}, {1, 1}) * weight;
  EXPECT_TRUE(same_bits(tape.gradient(y, x), slice(weight, {1, 0}, {2, 3})));
}

TEST(StridedSliceGrad, PutsTheGradientInItsPlace) {
  for (const DType dtype : kAll) {
    const Tensor d = random_tensor(dtype, {3, 2});
    const StridedSliceAttrs where{{4, 1}, {3, 2}, {-2, 3}};
    const Tensor whole = strided_slice_grad(d, {5, 6}, where);
    ASSERT_EQ(whole.shape(), (Shape{5, 6}));
    EXPECT_TRUE(same_bits(strided_slice(whole, {4, 1}, {-6, 6}, {-2, 3}), d));
    double others = 0;
    for (const double v : values(whole)) others += v != 0;
    for (const double v : values(d)) others -= v != 0;
    EXPECT_EQ(others, 0) << dtype;
  }
}

TEST(StridedSliceGrad, OfAllIsWhatArrives) {
  const Tensor d = random_tensor(DType::float32, {3, 2});
  EXPECT_EQ(strided_slice_grad(d, {3, 2}, {{0, 0}, {3, 2}, {1, 1}}).impl(), d.impl());
  const Tensor backwards = strided_slice_grad(d, {3, 2}, {{2, 0}, {3, 2}, {-1, 1}});
  EXPECT_TRUE(same_bits(strided_slice(backwards, {2, 0}, {-4, 2}, {-1, 1}), d));
}

TEST(StridedSliceGrad, IsTheGradientOfSlicesAndBack) {
  const Tensor x = random_tensor(DType::float32, {5, 6});
  const Tensor weight = random_tensor(DType::float32, {3, 2}, 4);
  GradientTape outer;
  outer.watch(weight);
  Tensor dx;
  {
    GradientTape tape;
    tape.watch(x);
    dx = tape.gradient(strided_slice(x, {4, 1}, {-6, 6}, {-2, 3}) * weight, x);
  }
  EXPECT_TRUE(same_bits(strided_slice(dx, {4, 1}, {-6, 6}, {-2, 3}), weight));
  // The gradient of the gradient with respect to what was sliced with.
  const Tensor ones = ones_like(weight);
  EXPECT_TRUE(same_bits(outer.gradient(dx, weight), ones));
}

}  // namespace
}  // namespace lockstep
