// Large products and convolutions in float32 on a GPU, which its tensor cores make of TF32 halves, against
// float64.
#include <cmath>
#include <limits>

#include "gpu/gpu.h"
#include "gpu/numbers.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::testing {
namespace {

// Of all elements together; plain float32 sums of some thousand products reach 3e-7 to 6e-7.
constexpr double kAllowed = 6e-7;

class GpuProducts : public Gpu {
 protected:
  // f of float32 operands against f of float64 ones.
  template <class F>
  static void expect_accurate(const Tensor& a, const Tensor& b, F f) {
    const Tensor got = f(a, b);
    EXPECT_EQ(got.dtype(), DType::float32);
    EXPECT_LT(relative_error(got, f(cast(a, DType::float64), cast(b, DType::float64))), kAllowed);
    EXPECT_EQ(got.to_vector<float>(), f(a, b).template to_vector<float>()) << "another call gave other bits";
  }
};

TEST_F(GpuProducts, MatricesHaveTheAccuracyOfFloat32) {
  const DeviceScope scope(gpu());
  struct Size {
    int64_t m, n, k;
  };
  // Whole tiles, ends of tiles in every dimension, rows that are no multiple of four, long sums, thin
  // results.
  for (const Size s : {Size{512, 384, 768}, Size{333, 217, 555}, Size{1000, 99, 1001}, Size{128, 130, 20000},
                       Size{4096, 65, 384}, Size{64, 4096, 64}, Size{17, 9000, 31}})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        SCOPED_TRACE(::testing::Message() << s.m << " x " << s.n << " x " << s.k
                                          << (transpose_a ? " T" : " N") << (transpose_b ? "T" : "N"));
        expect_accurate(numbers(transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1),
                        numbers(transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2),
                        [&](const Tensor& a, const Tensor& b) {
                          return matmul(a, b, {.transpose_a = transpose_a, .transpose_b = transpose_b});
                        });
      }
}

TEST_F(GpuProducts, BatchesOfMatricesToo) {
  const DeviceScope scope(gpu());
  const auto product = [](const Tensor& a, const Tensor& b) { return matmul(a, b); };
  expect_accurate(numbers({6, 200, 96}, 1), numbers({6, 96, 136}, 2), product);
  expect_accurate(numbers({3, 1, 200, 96}, 1), numbers({4, 96, 136}, 2), product);
  // Heads of attention: matrices with others between their rows.
  expect_accurate(numbers({4, 100, 8, 64}, 1), numbers({4, 100, 8, 64}, 2),
                  [](const Tensor& q, const Tensor& k) {
                    return matmul(transpose(q, {0, 2, 1, 3}), transpose(k, {0, 2, 3, 1}));
                  });
}

TEST_F(GpuProducts, ConvolutionsHaveTheAccuracyOfFloat32) {
  const DeviceScope scope(gpu());
  struct Case {
    Shape x, filter;
    ConvOptions options = {};
  };
  for (const Case& c :
       {Case{{32, 28, 28, 64}, {3, 3, 64, 64}, {.padding = "same"}},
        Case{{64, 28, 28, 1}, {5, 5, 1, 6}, {.padding = "same"}}, Case{{64, 14, 14, 6}, {5, 5, 6, 16}},
        Case{{16, 29, 31, 12}, {3, 2, 12, 20}, {.strides = {2, 3}, .padding = "same"}},
        Case{{8, 28, 28, 64}, {1, 1, 64, 128}, {.strides = {2}}},
        Case{{8, 30, 30, 16}, {3, 3, 16, 24}, {.padding = "same", .dilations = {2, 3}}},
        Case{{4, 57, 56, 3}, {7, 7, 3, 64}, {.strides = {2}, .padding = "same"}},
        Case{{300, 9, 10, 2}, {3, 4, 2, 5}, {.strides = {2, 1}, .padding = "same"}},
        Case{{3, 20, 21, 12}, {3, 3, 12, 1}, {.padding = "same", .dilations = {2, 3}}},
        Case{{5, 7, 8, 9, 1}, {3, 2, 3, 1, 10}, {.strides = {1, 2, 2}, .padding = "same"}},
        Case{{2, 16, 17, 18, 8}, {3, 3, 3, 8, 16}, {.padding = "same"}},
        Case{{2, 16, 16, 16, 4}, {2, 3, 3, 4, 10}, {.strides = {2, 1, 2}}}}) {
    SCOPED_TRACE(::testing::Message() << c.x << " under " << c.filter);
    const bool volumes = c.x.rank() == 5;
    const Tensor x = numbers(c.x, 1), filter = numbers(c.filter, 2);
    const auto forward = [&](const Tensor& a, const Tensor& b) {
      return volumes ? conv3d(a, b, c.options) : conv2d(a, b, c.options);
    };
    expect_accurate(x, filter, forward);
    const Tensor dy = numbers(forward(x, filter).shape(), 3);
    expect_accurate(filter, dy, [&](const Tensor& a, const Tensor& b) {
      return volumes ? conv3d_backprop_input(c.x, a, b, c.options)
                     : conv2d_backprop_input(c.x, a, b, c.options);
    });
    expect_accurate(x, dy, [&](const Tensor& a, const Tensor& b) {
      return volumes ? conv3d_backprop_filter(a, c.filter, b, c.options)
                     : conv2d_backprop_filter(a, c.filter, b, c.options);
    });
  }
}

// Those of one tap are products of matrices in 16 bits.
TEST_F(GpuProducts, ConvolutionsOfOneTapInSixteenBitsAreThoseOfFloat32) {
  const DeviceScope scope(gpu());
  struct Case {
    Shape x, filter;
    int64_t first = 0;  // where operands begin in the memory that they are a part of
  };
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const Case& c : {Case{{64, 56, 56, 64}, {1, 1, 64, 256}}, Case{{3, 7, 5, 40}, {1, 1, 40, 24}},
                          Case{{3, 7, 5, 40}, {1, 1, 40, 24}, 1}, Case{{2, 5, 6, 7, 16}, {1, 1, 1, 16, 8}}}) {
      SCOPED_TRACE(::testing::Message()
                   << name(dtype) << ", " << c.x << " under " << c.filter << ", from element " << c.first);
      const bool volumes = c.x.rank() == 5;
      const auto all = [&](DType computed) {
        const auto made = [&](const Shape& shape, uint64_t seed) {
          const Tensor whole = cast(cast(numbers({c.first + shape.size()}, seed), dtype), computed);
          return reshape(slice(whole, {c.first}, {shape.size()}), shape);
        };
        const Tensor x = made(c.x, 1), filter = made(c.filter, 2), bias = made({c.filter[-1]}, 3);
        auto layer = function([&](const Tensor& in) {
          return relu((volumes ? conv3d(in, filter) : conv2d(in, filter)) + bias);
        });
        const Tensor y = layer(x), dy = made(y.shape(), 4);
        return volumes ? TensorList{y, conv3d_backprop_input(c.x, filter, dy),
                                    conv3d_backprop_filter(x, c.filter, dy)}
                       : TensorList{y, conv2d_backprop_input(c.x, filter, dy),
                                    conv2d_backprop_filter(x, c.filter, dy)};
      };
      const TensorList got = all(dtype), again = all(dtype), want = all(DType::float32);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_LT(relative_error(got[i], want[i]), 4e-3) << "result " << i;
        EXPECT_EQ(relative_error(got[i], again[i]), 0) << "another call gave other bits, result " << i;
      }
    }
}

TEST_F(GpuProducts, AttentionAndItsGradientsHaveTheAccuracyOfFloat32) {
  const DeviceScope scope(gpu());
  struct Case {
    int64_t tokens, heads, dim;
    bool causal;
  };
  // Sums in registers and, of wide heads, in shared memory; tiles of all sizes, and ends of tiles.
  for (const Case& c : {Case{256, 3, 64, true}, Case{200, 2, 40, false}, Case{130, 2, 96, true},
                        Case{16, 4, 16, false}, Case{25, 2, 64, true}}) {
    SCOPED_TRACE(::testing::Message() << c.tokens << " tokens, " << c.heads << " heads of " << c.dim);
    const Shape shape = {4, c.tokens, c.heads, c.dim};
    const TensorList operands = {numbers(shape, 1), numbers(shape, 2), numbers(shape, 3)};
    const Tensor weights = numbers(shape, 4);
    const auto all = [&](DType dtype) {
      GradientTape tape;
      TensorList in;
      for (const Tensor& operand : operands) tape.watch(in.emplace_back(cast(operand, dtype)));
      const Tensor result = scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = c.causal});
      const std::vector<GradientSource> sources(in.begin(), in.end());
      TensorList results = tape.gradient(reduce_sum(result * cast(weights, dtype)), sources);
      results.push_back(result);
      return results;
    };
    const TensorList got = all(DType::float32), want = all(DType::float64);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_LT(relative_error(got[i], want[i]), 2 * kAllowed) << "result " << i;
  }
}

// Halves of an infinity are no numbers; the sum of their products must be what it is without halves.
TEST_F(GpuProducts, InfinitiesAndTheLargestNumbersStay) {
  const DeviceScope scope(gpu());
  constexpr int64_t kSide = 256;
  constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                  kLargest = std::numeric_limits<float>::max();
  std::vector<float> a(kSide * kSide, 0.25F), b(kSide * kSide, 0.5F);
  a[0] = kInfinity;                                 // row 0: infinite
  a[kSide] = kInfinity, a[kSide + 1] = -kInfinity;  // row 1: NaN
  a[2 * kSide + 7] = std::numeric_limits<float>::quiet_NaN();
  a[3 * kSide] = kLargest;  // rounds up to infinity where it is cut in halves
  a[4 * kSide] = 1e-40F;    // subnormal
  const Tensor product = matmul(Tensor::from(a, {kSide, kSide}), Tensor::from(b, {kSide, kSide}));
  const std::vector<float> c = product.to_vector<float>();
  for (const int64_t column : {0, 100, 255}) {
    EXPECT_EQ(c[static_cast<size_t>(column)], kInfinity);
    EXPECT_TRUE(std::isnan(c[static_cast<size_t>(kSide + column)]));
    EXPECT_TRUE(std::isnan(c[static_cast<size_t>(2 * kSide + column)]));
    EXPECT_FLOAT_EQ(c[static_cast<size_t>(3 * kSide + column)], kLargest / 2);
    EXPECT_FLOAT_EQ(c[static_cast<size_t>(4 * kSide + column)], 255 * 0.125F);
    EXPECT_FLOAT_EQ(c[static_cast<size_t>(5 * kSide + column)], 256 * 0.125F);
  }
}

TEST_F(GpuProducts, BiasAddendAndActivationAreThoseOfTheOpsAlone) {
  const DeviceScope scope(gpu());
  const Tensor x = numbers({512, 300}, 1), w = numbers({300, 260}, 2), bias = numbers({260}, 3),
               more = numbers({512, 260}, 4);
  const auto layer = [&](const Tensor& in) { return relu(matmul(in, w) + bias); };
  EXPECT_EQ(function(layer)(x).to_vector<float>(), layer(x).to_vector<float>());
  const auto residual = [&](const Tensor& in) { return matmul(in, w) + more; };
  EXPECT_EQ(function(residual)(x).to_vector<float>(), residual(x).to_vector<float>());
  const Tensor images = numbers({16, 28, 28, 12}, 5), filter = numbers({3, 3, 12, 20}, 6),
               shift = numbers({20}, 7);
  const auto convolution = [&](const Tensor& in) { return relu(conv2d(in, filter) + shift); };
  EXPECT_EQ(function(convolution)(images).to_vector<float>(), convolution(images).to_vector<float>());
}

}  // namespace
}  // namespace lockstep::testing
