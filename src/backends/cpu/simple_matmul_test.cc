#include <gtest/gtest.h>

#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "ops/matmul/matmul.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

constexpr DType kTypes[] = {DType::float64, DType::float16, DType::int32,
                            DType::int64,   DType::float32, DType::bfloat16};

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::float64: return 1e-12;
    case DType::float32: return 1e-4;
    case DType::float16: return 2e-2;
    case DType::bfloat16: return 1e-1;
    default: return 0;
  }
}

// [M, K] x [K, N] in double precision.
std::vector<double> reference(const Tensor& a, const Tensor& b) {
  const int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
  const auto x = values(a), y = values(b);
  std::vector<double> c(static_cast<size_t>(m * n), 0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j)
        c[static_cast<size_t>(i * n + j)] +=
            x[static_cast<size_t>(i * k + p)] * y[static_cast<size_t>(p * n + j)];
  return c;
}

void expect_near(const Tensor& got, const std::vector<double>& expected, const char* what) {
  const auto v = values(got);
  ASSERT_EQ(v.size(), expected.size());
  for (size_t i = 0; i < v.size(); ++i) {
    // Stored results are rounded to the dtype.
    const double slack = tolerance(got.dtype()) * (1 + std::abs(expected[i]) / 8);
    ASSERT_NEAR(v[i], expected[i], slack) << what << " " << got.spec() << " at " << i;
  }
}

// Every second column of a wider tensor: no dimension of stride 1, so oneDNN cannot take it.
Tensor with_odd_strides(const Tensor& x) {
  const Tensor wide = reshape(broadcast_to(expand_dims(x, -1), {x.shape()[0], x.shape()[1], 2}),
                              {x.shape()[0], 2 * x.shape()[1]});
  return strided_slice(wide, {0, 0}, {wide.shape()[0], wide.shape()[1]}, {1, 2});
}

TEST(SimpleMatmul, EveryDtypeAgreesWithDoublePrecision) {
  struct Size {
    int64_t m, k, n;
  };
  for (const DType dtype : kTypes)
    for (const auto& [m, k, n] :
         {Size{1, 1, 1}, {3, 5, 7}, {8, 16, 16}, {97, 130, 30}, {20, 300, 270}, {1, 64, 33}, {50, 7, 1}}) {
      const Tensor a = with_odd_strides(random_tensor(dtype, {m, k}, 1));
      const Tensor b = with_odd_strides(random_tensor(dtype, {k, n}, 2));
      expect_near(matmul(a, b), reference(a, b), "plain");
      expect_near(matmul(transpose(a), b, {.transpose_a = true}), reference(a, b), "a transposed");
      expect_near(matmul(a, transpose(b), {.transpose_b = true}), reference(a, b), "b transposed");
    }
}

TEST(SimpleMatmul, BitsDoNotDependOnThreadsOrOtherRows) {
  const Tensor a = random_tensor(DType::float64, {200, 300}, 1);
  const Tensor b = random_tensor(DType::float64, {300, 400}, 2);
  const Tensor one = run_kernel(kMatmul, {a, b}, MatmulAttrs{}, 1).front();
  EXPECT_TRUE(same_bits(one, run_kernel(kMatmul, {a, b}, MatmulAttrs{}, 2).front()));
  EXPECT_TRUE(same_bits(one, run_kernel(kMatmul, {a, b}, MatmulAttrs{}, 5).front()));
  EXPECT_TRUE(same_bits(matmul(slice(a, {31, 0}, {7, 300}), b), slice(one, {31, 0}, {7, 400})));
  EXPECT_TRUE(same_bits(matmul(a, slice(b, {0, 131}, {300, 5})), slice(one, {0, 131}, {200, 5})));
}

TEST(SimpleMatmul, BatchDimensionsBroadcast) {
  const Tensor a = random_tensor(DType::float64, {2, 1, 3, 4}, 1);
  const Tensor b = random_tensor(DType::float64, {5, 4, 6}, 2);
  const Tensor c = matmul(a, b);
  ASSERT_EQ(c.shape(), (Shape{2, 5, 3, 6}));
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 5; ++j) {
      const Tensor ai = reshape(slice(a, {i, 0, 0, 0}, {1, 1, 3, 4}), {3, 4});
      const Tensor bj = reshape(slice(b, {j, 0, 0}, {1, 4, 6}), {4, 6});
      expect_near(reshape(slice(c, {i, j, 0, 0}, {1, 1, 3, 6}), {3, 6}), reference(ai, bj), "batch");
    }
}

TEST(SimpleMatmul, EmptySumsAreZeroOrTheBias) {
  for (const DType dtype : kTypes) {
    const Tensor a = Tensor::empty(dtype, {2, 0}), b = Tensor::empty(dtype, {0, 3});
    EXPECT_EQ(values(matmul(a, b)), std::vector<double>(6, 0));
    const Tensor bias = tensor_of(dtype, {3}, {1, 2, 3});
    EXPECT_EQ(values(run_kernel(kMatmul, {a, b, bias}, MatmulAttrs{.bias = true}, 1).front()),
              (std::vector<double>{1, 2, 3, 1, 2, 3}));
  }
  EXPECT_EQ(matmul(Tensor::empty(DType::float64, {0, 4}), Tensor::empty(DType::float64, {4, 3})).shape(),
            (Shape{0, 3}));
}

TEST(SimpleMatmul, BiasAndEpilogue) {
  const Tensor a = random_tensor(DType::float64, {4, 5}, 1), b = random_tensor(DType::float64, {5, 6}, 2);
  const Tensor bias = random_tensor(DType::float64, {6}, 3);
  const auto plain = reference(a, b);
  const auto shift = values(bias);
  const auto gelu = [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); };
  const auto gelu_tanh = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  const std::pair<Epilogue, std::function<double(double)>> cases[] = {
      {Epilogue::none, [](double x) { return x; }},
      {Epilogue::relu, [](double x) { return std::max(x, 0.0); }},
      {Epilogue::tanh, [](double x) { return std::tanh(x); }},
      {Epilogue::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {Epilogue::gelu_erf, gelu},
      {Epilogue::gelu_tanh, gelu_tanh}};
  for (const auto& [epilogue, f] : cases) {
    std::vector<double> expected;
    for (size_t i = 0; i < plain.size(); ++i) expected.push_back(f(plain[i] + shift[i % 6]));
    expect_near(run_kernel(kMatmul, {a, b, bias}, MatmulAttrs{.bias = true, .epilogue = epilogue}, 1).front(),
                expected, "epilogue");
  }
}

TEST(SimpleMatmul, IntegersWrapAround) {
  const Tensor a = Tensor::from<int32_t>({INT32_MAX, 1}, {1, 2}), b = Tensor::from<int32_t>({2, 5}, {2, 1});
  EXPECT_EQ(matmul(a, b).to_vector<int32_t>().front(), 3);
}

}  // namespace
}  // namespace lockstep
