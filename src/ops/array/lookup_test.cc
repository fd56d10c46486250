#include "ops/array/lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

constexpr DType kAll[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                          DType::int32,   DType::int64,   DType::uint8,    DType::boolean};

TEST(Gather, EveryDtypeAxisAndIndexType) {
  for (const DType dtype : kAll)
    for (const DType index_type : {DType::int32, DType::int64})
      for (int axis = 0; axis < 3; ++axis) {
        const Tensor table = random_tensor(dtype, {4, 4, 4});
        const Tensor indices = tensor_of(index_type, {2, 3}, {3, 0, 0, 2, 1, 3});
        const Tensor y = gather(table, indices, axis);
        ASSERT_EQ(y.rank(), 4);
        for (int64_t i = 0; i < 6; ++i) {
          Dims from = {0, 0, 0}, size = {4, 4, 4};
          from[axis] = static_cast<int64_t>(values(indices)[static_cast<size_t>(i)]);
          size[axis] = 1;
          Dims begin = {0, 0, 0, 0}, extent = y.shape();
          begin[axis] = i / 3;
          begin[axis + 1] = i % 3;
          extent[axis] = extent[axis + 1] = 1;
          EXPECT_EQ(values(slice(y, begin, extent)), values(slice(table, from, size))) << dtype << axis;
        }
      }
}

TEST(Gather, ScalarsEmptyAndStrided) {
  const Tensor table = random_tensor(DType::float32, {5, 3});
  EXPECT_EQ(values(gather(table, Tensor::scalar<int32_t>(4))), values(slice(table, {4, 0}, {1, 3})));
  EXPECT_EQ(gather(table, Tensor::empty(DType::int64, {0})).shape(), (Shape{0, 3}));
  EXPECT_EQ(gather(Tensor::empty(DType::float32, {5, 0}), Tensor::from<int32_t>({9}, {1})).shape(),
            (Shape{1, 0}));
  const Tensor turned = transpose(table);
  EXPECT_EQ(values(gather(turned, Tensor::from<int32_t>({1, 1}, {2}), 1)),
            values(gather(identity(turned), Tensor::from<int32_t>({1, 1}, {2}), 1)));
  const Tensor big = random_tensor(DType::float32, {100, 64});
  const Tensor many = broadcast_to(Tensor::from<int64_t>({7}, {1}), {5000});
  EXPECT_TRUE(same_bits(run_kernel(kGather, {big, many}, GatherAttrs{0}, 1).front(),
                        run_kernel(kGather, {big, many}, GatherAttrs{0}, 3).front()));
}

TEST(Gather, AnIndexThatDoesNotExistIsNamed) {
  const Tensor table = random_tensor(DType::float32, {5, 3});
  for (const int64_t wrong : {-1, 5}) {
    try {
      gather(table, Tensor::from<int64_t>({0, 1, 2, wrong}, {2, 2}));
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(e.message(), HasSubstr("gather: the index at position (1, 1) is " + std::to_string(wrong)));
      EXPECT_THAT(e.message(), HasSubstr("5 rows"));
    }
  }
  EXPECT_THROW(gather(table, random_tensor(DType::float32, {2})), Error);
  EXPECT_THROW(gather(table, Tensor::from<int64_t>({0}, {1}), 2), Error);
}

TEST(ScatterAdd, AddsRowsInEveryDtype) {
  for (const DType dtype : kAll) {
    if (dtype == DType::boolean) continue;
    for (const int64_t width : {1, 5, 200}) {
      const Tensor rows = random_tensor(dtype, {7, width});
      const std::vector<double> index = {2, 0, 2, 5, 2, 0, 3};
      const Tensor sum = scatter_add(rows, tensor_of(DType::int32, {7}, index), 6);
      std::vector<double> expected(static_cast<size_t>(6 * width), 0);
      for (size_t i = 0; i < 7; ++i)
        for (size_t k = 0; k < static_cast<size_t>(width); ++k)
          expected[static_cast<size_t>(index[i]) * static_cast<size_t>(width) + k] +=
              values(rows)[i * static_cast<size_t>(width) + k];
      const auto got = values(sum);
      const double tolerance = dtype == DType::bfloat16 ? 2e-2 : dtype == DType::float16 ? 3e-3 : 1e-5;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << dtype;
    }
  }
}

TEST(ScatterAdd, BitsDoNotDependOnThreads) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const int64_t width : {1, 100}) {
      const Tensor rows = random_tensor(dtype, {4000, width});
      std::vector<double> index;
      std::mt19937 engine(3);
      for (int i = 0; i < 4000; ++i) index.push_back(engine() % 50);
      const Tensor indices = tensor_of(DType::int64, {4000}, index);
      const Tensor one = run_kernel(kScatterAdd, {rows, indices}, ScatterAddAttrs{50}, 1).front();
      EXPECT_TRUE(same_bits(one, run_kernel(kScatterAdd, {rows, indices}, ScatterAddAttrs{50}, 2).front()));
      EXPECT_TRUE(same_bits(one, run_kernel(kScatterAdd, {rows, indices}, ScatterAddAttrs{50}, 3).front()));
    }
}

TEST(ScatterAdd, EdgesAndErrors) {
  const Tensor none = Tensor::empty(DType::float32, {0, 2});
  EXPECT_EQ(values(scatter_add(none, Tensor::empty(DType::int32, {0}), 2)), std::vector<double>(4, 0));
  const Tensor rows = random_tensor(DType::float32, {2, 2});
  EXPECT_THROW(scatter_add(rows, Tensor::from<int32_t>({0, 3}, {2}), 3), Error);
  EXPECT_THROW(scatter_add(rows, Tensor::from<int32_t>({0, 1, 2}, {3}), 3), Error);
  EXPECT_THROW(scatter_add(random_tensor(DType::boolean, {2}), Tensor::from<int32_t>({0, 1}, {2}), 3), Error);
}

TEST(GatherAndScatterAdd, AreEachOthersGradients) {
  const Tensor table = random_tensor(DType::float64, {3, 4, 2});
  const Tensor indices = Tensor::from<int32_t>({1, 0, 1, 3}, {2, 2});
  for (int axis = 0; axis < 2; ++axis) {
    const Tensor inside = axis == 0 ? floormod(indices, 3) : indices;
    GradientTape tape;
    tape.watch(table);
    const Tensor y = gather(table, inside, axis);
    const Tensor weight = random_tensor(DType::float64, y.shape(), 5);
    const Tensor d = tape.gradient(y * weight, table);
    ASSERT_EQ(d.shape(), table.shape());
    // <gather(t), w> = <t, gather'(w)> for every t.
    double left = 0, right = 0;
    const auto yv = values(y), wv = values(weight), tv = values(table), dv = values(d);
    for (size_t i = 0; i < yv.size(); ++i) left += yv[i] * wv[i];
    for (size_t i = 0; i < tv.size(); ++i) right += tv[i] * dv[i];
    EXPECT_NEAR(left, right, 1e-12) << axis;
  }
  const Tensor rows = random_tensor(DType::float64, {2, 2, 3});
  const Tensor weight = random_tensor(DType::float64, {4, 3}, 6);
  GradientTape tape;
  tape.watch(rows);
  EXPECT_TRUE(
      same_bits(tape.gradient(scatter_add(rows, indices, 4) * weight, rows), gather(weight, indices)));
}

TEST(OneHot, EveryDtypeAndRowsOfZeros) {
  for (const DType dtype : kAll) {
    const Tensor y = one_hot(Tensor::from<int32_t>({2, -1, 0, 3}, {2, 2}), 3, dtype);
    EXPECT_EQ(y.spec(), (TensorSpec{dtype, {2, 2, 3}}));
    EXPECT_EQ(values(y), (std::vector<double>{0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0})) << dtype;
  }
  EXPECT_EQ(values(one_hot(Tensor::scalar<int64_t>(1), 2)), (std::vector<double>{0, 1}));
  EXPECT_EQ(one_hot(Tensor::from<int64_t>({1, 2}, {2}), 0).shape(), (Shape{2, 0}));
  EXPECT_THROW(one_hot(random_tensor(DType::float32, {2}), 3), Error);
}

}  // namespace
}  // namespace lockstep
