#include "ops/image/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/simd.h"
#include "ops/image/resample_cpu_simd.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

// Fewer elements behind the axis than a vector has, and more.
const Shape kShapes[] = {{3, 9, 1}, {35, 9, 1}, {17, 9, 3}, {2, 9, 15}, {2, 9, 16}, {2, 9, 17}, {1, 9, 133}};

TEST(Resample, ResultsDoNotDependOnThreads) {
  for (const bool nearest : {false, true})
    for (const int64_t inner : {1, 3, 40}) {
      const ResampleAttrs attrs{.axis = 1, .input = 9, .output = 14, .nearest = nearest};
      const Tensor x = random_tensor(DType::float32, {6000 / inner, 9, inner}, 1),
                   dy = random_tensor(DType::float32, {6000 / inner, 14, inner}, 2);
      EXPECT_TRUE(
          same_bits(run_kernel(kResample, {x}, attrs, 3)[0], run_kernel(kResample, {x}, attrs, 1)[0]));
      EXPECT_TRUE(same_bits(run_kernel(kResampleGrad, {dy}, attrs, 3)[0],
                            run_kernel(kResampleGrad, {dy}, attrs, 1)[0]));
    }
}

// Pixels of weight 0 are not read: an infinity among them would be a NaN.
TEST(Resample, NearestPixelsAreCopies) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const ResampleAttrs attrs{.axis = 1, .input = 9, .output = 9 * 2, .nearest = true};
  for (const DType dtype : kFloats)
    for (const Shape& shape : kShapes) {
      Tensor x = random_tensor(dtype, shape, 1);
      std::vector<double> numbers = values(x);
      numbers[0] = -0.0, numbers[1] = kInf;
      x = tensor_of(dtype, shape, numbers);
      const std::vector<double> y = values(run_kernel(kResample, {x}, attrs, 1)[0]);
      const int64_t inner = shape[2];
      for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
        const int64_t row = i / inner;
        const auto from = static_cast<size_t>(row / 2 * inner + i % inner);
        ASSERT_EQ(y[static_cast<size_t>(i)], numbers[from]) << dtype << " " << shape << " at " << i;
        ASSERT_EQ(std::signbit(y[static_cast<size_t>(i)]), std::signbit(numbers[from]));
      }
    }
}

TEST(Resample, BilinearPixelsOfWeightZeroAreNotRead) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const ResampleAttrs attrs{.axis = 1, .input = 3, .output = 9};
  for (const Shape& shape : {Shape{2, 3, 1}, Shape{2, 3, 20}}) {
    std::vector<double> numbers(static_cast<size_t>(shape.size()), 1.0);
    for (int64_t k = 0; k < shape[2]; ++k) numbers[static_cast<size_t>(shape[2] + k)] = kInf;
    const Tensor x = tensor_of(DType::float32, shape, numbers);
    const std::vector<double> y = values(run_kernel(kResample, {x}, attrs, 1)[0]);
    // The centre of row 1 is that of the first pixel, the centre of row 7 that of the last one.
    for (const int64_t row : {0, 1, 7, 8}) EXPECT_EQ(y[static_cast<size_t>(row * shape[2])], 1.0) << row;
    for (const int64_t row : {2, 3, 4, 5, 6}) EXPECT_EQ(y[static_cast<size_t>(row * shape[2])], kInf) << row;
  }
}

// Every level of instructions that this machine has computes the same.
TEST(Resample, LevelsAgree) {
  std::vector<const cpu::ResampleTable*> tables = {&simd_v2::kResampleTable};
  if (cpu::simd_level() >= cpu::SimdLevel::v3) tables.push_back(&simd_v3::kResampleTable);
  if (cpu::simd_level() >= cpu::SimdLevel::v4) tables.push_back(&simd_v4::kResampleTable);
  cpu::ResampleGeometry geometry{.outer = 18, .from_rows = 3, .inner = 7};
  geometry.terms = {{0, 1, 1}, {0, 0.25, 0.25f}, {1, 0.75, 0.75f}, {2, 0.3, 0.3f}};
  geometry.first_term = {0, 1, 3, 4, 4};
  for (const int64_t inner : {7, 70}) {
    geometry.inner = inner;
    const Tensor x = random_tensor(DType::float32, {18, 3, inner}, 1);
    std::vector<float> expected;
    for (const cpu::ResampleTable* table : tables) {
      std::vector<float> y(static_cast<size_t>(18 * 4 * inner), 7.0f);
      if (inner < cpu::kResampleLanes) {
        std::vector<float> scratch(static_cast<size_t>(3 * inner * cpu::kResampleLanes));
        table->float32.short_rows(geometry, x.impl()->data(), y.data(), 0, 18, scratch.data());
      } else {
        table->float32.rows(geometry, x.impl()->data(), y.data(), 0, 18 * 4);
      }
      if (expected.empty()) expected = y;
      EXPECT_EQ(y, expected);
    }
  }
}

}  // namespace
}  // namespace lockstep
