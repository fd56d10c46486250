#include "ops/nn/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cpu/simd.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/nn/softmax_cpu_simd.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

// Relative, and absolute below 1.
double tolerance(DType dtype) {
  return dtype == DType::float32    ? 1e-6
         : dtype == DType::float64  ? 1e-13
         : dtype == DType::bfloat16 ? 0x1p-8
                                    : 0x1p-11;
}

std::vector<double> reference(const Tensor& x, bool log) {
  const auto v = values(x);
  const auto n = static_cast<size_t>(x.shape()[-1]);
  std::vector<double> result;
  for (size_t row = 0; row < v.size() / n; ++row) {
    const double max = *std::max_element(v.begin() + static_cast<long>(row * n),
                                         v.begin() + static_cast<long>((row + 1) * n));
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += std::exp(v[row * n + i] - max);
    for (size_t i = 0; i < n; ++i) {
      const double shifted = v[row * n + i] - max;
      result.push_back(log ? shifted - std::log(sum) : std::exp(shifted) / sum);
    }
  }
  return result;
}

TEST(Softmax, EveryDtypeAndLengthAgreesWithDoublePrecision) {
  for (const bool log : {false, true})
    for (const DType dtype : kFloats)
      for (const int64_t n : {1, 3, 10, 16, 31, 100, 1025, 4000, 5000})
        for (const int64_t rows : {1, 17}) {
          const Tensor x = random_tensor(dtype, {rows, n}) * 4.0;
          const auto got = values(log ? log_softmax(x) : softmax(x));
          const auto expected = reference(x, log);
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], expected[i],
                        tolerance(dtype) * std::max(std::abs(expected[i]), log ? 1.0 : 1e-4))
                << (log ? "log_" : "") << "softmax " << x.spec() << " at " << i;
        }
}

TEST(Softmax, LargeInfiniteAndNaNLogits) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::float32, DType::float64}) {
    EXPECT_EQ(values(softmax(tensor_of(dtype, {3}, {1e30, -1e30, 1e30}))),
              (std::vector<double>{0.5, 0, 0.5}));
    EXPECT_EQ(values(softmax(tensor_of(dtype, {2}, {-infinity, 3}))), (std::vector<double>{0, 1}));
    EXPECT_EQ(values(log_softmax(tensor_of(dtype, {2}, {-infinity, 3}))),
              (std::vector<double>{-infinity, 0}));
    for (const double v : values(softmax(tensor_of(dtype, {20}, std::vector<double>(20, NAN)))))
      EXPECT_TRUE(std::isnan(v));
    std::vector<double> one_nan(20, 1.0);
    one_nan[18] = NAN;
    for (const double v : values(softmax(tensor_of(dtype, {20}, one_nan)))) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(Softmax, AnyAxis) {
  const Tensor x = random_tensor(DType::float32, {3, 4, 5});
  for (int axis = 0; axis < 3; ++axis) {
    Dims order = {0, 1, 2};
    std::swap(order[axis], order[2]);
    EXPECT_TRUE(same_bits(softmax(x, axis), transpose(softmax(identity(transpose(x, order))), order)));
    EXPECT_TRUE(same_bits(log_softmax(x, axis - 3), log_softmax(x, axis)));
  }
  EXPECT_THROW(softmax(x, 3), Error);
  EXPECT_THROW(softmax(Tensor::scalar(1.0f)), Error);
  EXPECT_THROW(softmax(random_tensor(DType::int32, {3})), Error);
  EXPECT_EQ(softmax(Tensor::empty(DType::float32, {2, 0})).shape(), (Shape{2, 0}));
}

TEST(Softmax, BitsDoNotDependOnThreadsOrOtherRows) {
  for (const DType dtype : kFloats) {
    const Tensor x = random_tensor(dtype, {301, 97});
    for (const OpDef* op : {&kSoftmax, &kLogSoftmax}) {
      const Tensor one = run_kernel(*op, {x}, {}, 1).front();
      EXPECT_TRUE(same_bits(one, run_kernel(*op, {x}, {}, 2).front()));
      EXPECT_TRUE(same_bits(one, run_kernel(*op, {x}, {}, 5).front()));
      EXPECT_TRUE(same_bits(run_kernel(*op, {slice(x, {100, 0}, {7, 97})}, {}, 1).front(),
                            slice(one, {100, 0}, {7, 97})));
    }
  }
}

// Exponentials are fused at v3 and v4: v2 may differ in the last bit.
TEST(Softmax, InstructionSetsAgree) {
  std::vector<int32_t> numbers;
  for (int i = 0; i < 20; ++i) numbers.push_back(i);
  const cpu::Labels labels{numbers.data(), false};
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor x = random_tensor(dtype, {20, 37}) * 8.0;
    const Tensor d = random_tensor(dtype, {20}, 3);
    const auto run = [&](const cpu::SoftmaxTable& table, int which) {
      const cpu::SoftmaxFunctions& f = dtype == DType::float64 ? table.float64 : table.float32;
      Tensor y = Tensor::empty(dtype, {20, 37}), loss = Tensor::empty(dtype, {20}),
             stats = Tensor::empty(dtype, {20, 2});
      void* s = stats.impl()->data();
      const void* in = x.impl()->data();
      if (which == 0) f.softmax(in, y.impl()->data(), 37, 0, 20);
      if (which == 1) f.log_softmax(in, y.impl()->data(), 37, 0, 20);
      if (which >= 2) f.cross_entropy(in, labels, loss.impl()->data(), s, 37, 0, 20);
      if (which == 3) f.cross_entropy_grad(in, labels, s, d.impl()->data(), y.impl()->data(), 37, 0, 20);
      return which == 2 ? loss : y;
    };
    for (int which = 0; which < 4; ++which) {
      if (cpu::simd_level() < cpu::SimdLevel::v3) continue;
      const Tensor v3 = run(simd_v3::kSoftmaxTable, which);
      const auto a = values(run(simd_v2::kSoftmaxTable, which)), b = values(v3);
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_NEAR(a[i], b[i], tolerance(dtype) * (1 + std::abs(b[i]))) << which;
      if (cpu::simd_level() < cpu::SimdLevel::v4) continue;
      EXPECT_TRUE(same_bits(v3, run(simd_v4::kSoftmaxTable, which))) << which;
    }
  }
}

// First and second derivatives against differences.
TEST(Softmax, Gradients) {
  const Shape shape = {2, 4};
  const Tensor x = random_tensor(DType::float64, shape), a = random_tensor(DType::float64, shape, 2),
               b = random_tensor(DType::float64, shape, 3);
  for (const bool log : {false, true}) {
    const auto f = [&](const Tensor& v) { return reduce_sum(square(log ? log_softmax(v) : softmax(v)) * a); };
    const auto df = [&](const Tensor& v) {
      GradientTape tape;
      tape.watch(v);
      return tape.gradient(f(v), v);
    };
    const auto g = [&](const Tensor& v) { return reduce_sum(df(v) * b); };
    GradientTape outer;
    outer.watch(x);
    const auto first = values(df(x));
    const Tensor value = g(x);
    const auto second = values(outer.gradient(value, x));
    for (size_t i = 0; i < first.size(); ++i) {
      const auto moved = [&](double by) {
        auto v = values(x);
        v[i] += by;
        return tensor_of(DType::float64, shape, v);
      };
      const double h = 1e-5;
      const double df_slope = (f(moved(h)).item<double>() - f(moved(-h)).item<double>()) / (2 * h);
      const double dg_slope = (g(moved(h)).item<double>() - g(moved(-h)).item<double>()) / (2 * h);
      EXPECT_NEAR(first[i], df_slope, 1e-7 * (1 + std::abs(df_slope)));
      EXPECT_NEAR(second[i], dg_slope, 1e-7 * (1 + std::abs(dg_slope)));
    }
  }
}

}  // namespace
}  // namespace lockstep
