#include "ops/nn/normalize.h"

#include <gtest/gtest.h>

#include "backends/cpu/simd.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

double tolerance(DType dtype) {
  return dtype == DType::float32    ? 5e-6
         : dtype == DType::float64  ? 1e-12
         : dtype == DType::bfloat16 ? 2e-2
                                    : 3e-3;
}

struct Reference {
  std::vector<double> y, dx, dgamma, dbeta;
};

Reference reference(const Tensor& x_, const Tensor& gamma_, const Tensor& beta_, const Tensor& dy_,
                    double epsilon) {
  const auto x = values(x_), gamma = values(gamma_), beta = values(beta_), dy = values(dy_);
  const auto n = gamma.size();
  Reference r;
  r.dgamma.assign(n, 0);
  r.dbeta.assign(n, 0);
  for (size_t row = 0; row * n < x.size(); ++row) {
    const double* v = x.data() + row * n;
    const double* d = dy.data() + row * n;
    double mean = 0, variance = 0, ma = 0, mha = 0;
    for (size_t i = 0; i < n; ++i) mean += v[i] / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) variance += (v[i] - mean) * (v[i] - mean) / static_cast<double>(n);
    const double rstd = 1 / std::sqrt(variance + epsilon);
    for (size_t i = 0; i < n; ++i) {
      const double h = (v[i] - mean) * rstd;
      r.y.push_back(h * gamma[i] + beta[i]);
      r.dgamma[i] += d[i] * h;
      r.dbeta[i] += d[i];
      ma += d[i] * gamma[i] / static_cast<double>(n);
      mha += d[i] * gamma[i] * h / static_cast<double>(n);
    }
    for (size_t i = 0; i < n; ++i) r.dx.push_back(rstd * (d[i] * gamma[i] - ma - (v[i] - mean) * rstd * mha));
  }
  return r;
}

void expect_near(const Tensor& got, const std::vector<double>& expected, double slack, const char* what) {
  const auto v = values(got);
  ASSERT_EQ(v.size(), expected.size());
  for (size_t i = 0; i < v.size(); ++i)
    ASSERT_NEAR(v[i], expected[i], slack * (1 + std::abs(expected[i])))
        << what << " " << got.spec() << " at " << i;
}

TEST(LayerNorm, ForwardAndBackwardAgreeWithDoublePrecision) {
  for (const DType dtype : kFloats)
    for (const int64_t n : {1, 3, 16, 50, 768})
      for (const int64_t rows : {1, 5, 70}) {
        const Tensor x = random_tensor(dtype, {rows, n}) + 3.0;
        const Tensor gamma = random_tensor(dtype, {n}, 2), beta = random_tensor(dtype, {n}, 3),
                     dy = random_tensor(dtype, {rows, n}, 4);
        const Reference expected = reference(x, gamma, beta, dy, 1e-3);
        const TensorList forward = run_kernel(kLayerNorm, {x, gamma, beta}, LayerNormAttrs{1e-3}, 1);
        expect_near(forward[0], expected.y, tolerance(dtype), "y");
        const TensorList back =
            run_kernel(kLayerNormGrad, {x, gamma, forward[1], forward[2], dy}, LayerNormAttrs{1e-3}, 1);
        expect_near(back[0], expected.dx, tolerance(dtype) * 4, "dx");
        expect_near(back[1], expected.dgamma, tolerance(dtype) * 4, "dgamma");
        expect_near(back[2], expected.dbeta, tolerance(dtype) * 4, "dbeta");
      }
}

TEST(LayerNorm, AFarMeanDoesNotSpoilTheVariance) {
  const Tensor x = random_tensor(DType::float32, {4, 256}) + 1000.0;
  const Tensor ones = Tensor::full(DType::float32, {256}, 1), zeros = Tensor::full(DType::float32, {256}, 0);
  expect_near(layer_norm(x, ones, zeros), reference(x, ones, zeros, x, 1e-3).y, 1e-4, "y");
}

TEST(LayerNorm, BitsDoNotDependOnThreadsOrOtherRows) {
  const Tensor x = random_tensor(DType::float32, {333, 70}), dy = random_tensor(DType::float32, {333, 70}, 5);
  const Tensor gamma = random_tensor(DType::float32, {70}, 2), beta = random_tensor(DType::float32, {70}, 3);
  const TensorList one = run_kernel(kLayerNorm, {x, gamma, beta}, LayerNormAttrs{}, 1);
  const TensorList back = run_kernel(kLayerNormGrad, {x, gamma, one[1], one[2], dy}, LayerNormAttrs{}, 1);
  for (const int threads : {2, 3}) {
    const TensorList many = run_kernel(kLayerNorm, {x, gamma, beta}, LayerNormAttrs{}, threads);
    const TensorList many_back =
        run_kernel(kLayerNormGrad, {x, gamma, one[1], one[2], dy}, LayerNormAttrs{}, threads);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(same_bits(one[i], many[i]) && same_bits(back[i], many_back[i])) << i;
  }
  EXPECT_TRUE(
      same_bits(layer_norm(slice(x, {40, 0}, {9, 70}), gamma, beta), slice(one[0], {40, 0}, {9, 70})));
}

TEST(LayerNorm, AnyAxisEmptyBatchesAndErrors) {
  const Tensor x = random_tensor(DType::float32, {2, 3, 4});
  const Tensor gamma = random_tensor(DType::float32, {3}, 2), beta = random_tensor(DType::float32, {3}, 3);
  const Tensor turned = layer_norm(transpose(x, {0, 2, 1}), gamma, beta);
  EXPECT_TRUE(same_bits(layer_norm(x, gamma, beta, {.axis = {1}}), transpose(turned, {0, 2, 1})));
  EXPECT_THROW(layer_norm(x, gamma, beta), Error);
  EXPECT_THROW(layer_norm(random_tensor(DType::int32, {2, 3}), gamma, beta), Error);
  EXPECT_EQ(layer_norm(Tensor::empty(DType::float32, {0, 3}), gamma, beta).shape(), (Shape{0, 3}));
  const Tensor none = Tensor::empty(DType::float32, {0, 3});
  const Tensor no_stats = Tensor::empty(DType::float32, {0});
  const TensorList back =
      run_kernel(kLayerNormGrad, {none, gamma, no_stats, no_stats, none}, LayerNormAttrs{}, 1);
  EXPECT_EQ(values(back[1]), std::vector<double>(3, 0));
  EXPECT_EQ(values(back[2]), std::vector<double>(3, 0));
}

TEST(LayerNorm, FirstAndSecondDerivatives) {
  const Shape shape = {3, 4};
  const TensorList at = {random_tensor(DType::float64, shape), random_tensor(DType::float64, {4}, 2),
                         random_tensor(DType::float64, {4}, 3)};
  const Tensor a = random_tensor(DType::float64, shape, 4);
  const TensorList weights = {random_tensor(DType::float64, shape, 5), random_tensor(DType::float64, {4}, 6),
                              random_tensor(DType::float64, {4}, 7)};
  const auto f = [&](const TensorList& p) {
    return reduce_sum(square(layer_norm(p[0], p[1], p[2], {.epsilon = 0.1})) * a);
  };
  const auto df = [&](const TensorList& p) {
    GradientTape tape;
    for (const Tensor& t : p) tape.watch(t);
    const GradientSource sources[] = {p[0], p[1], p[2]};
    return tape.gradient(f(p), sources);
  };
  const auto g = [&](const TensorList& p) {
    const TensorList d = df(p);
    return reduce_sum(d[0] * weights[0]) + reduce_sum(d[1] * weights[1]) + reduce_sum(d[2] * weights[2]);
  };
  GradientTape outer;
  for (const Tensor& t : at) outer.watch(t);
  const TensorList first = df(at);
  const Tensor value = g(at);
  const GradientSource sources[] = {at[0], at[1], at[2]};
  const TensorList second = outer.gradient(value, sources);
  for (size_t k = 0; k < 3; ++k)
    for (int64_t i = 0; i < at[k].size(); ++i) {
      const auto moved = [&](double by) {
        auto v = values(at[k]);
        v[static_cast<size_t>(i)] += by;
        TensorList p = at;
        p[k] = tensor_of(DType::float64, at[k].shape(), v);
        return p;
      };
      const double h = 1e-5;
      const double df_slope = (f(moved(h)).item<double>() - f(moved(-h)).item<double>()) / (2 * h);
      const double dg_slope = (g(moved(h)).item<double>() - g(moved(-h)).item<double>()) / (2 * h);
      EXPECT_NEAR(values(first[k])[static_cast<size_t>(i)], df_slope, 1e-6 * (1 + std::abs(df_slope))) << k;
      EXPECT_NEAR(values(second[k])[static_cast<size_t>(i)], dg_slope, 1e-6 * (1 + std::abs(dg_slope))) << k;
    }
}

}  // namespace
}  // namespace lockstep
