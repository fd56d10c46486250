#include "ops/nn/pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/simd.h"
#include "graph/emit.h"
#include "lockstep/ops/conv.h"
#include "ops/nn/pool_cpu_simd.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

using Doubles = std::vector<double>;

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

struct Case {
  int64_t batch, height, width, channels;
  Pool2dOptions options = {};

  Shape x() const { return {batch, height, width, channels}; }
  PoolAttrs attrs() const {
    const Dims& strides = options.strides.empty() ? options.pool_size : options.strides;
    return {slide_window("pool", 2, x(), options.pool_size, strides, {1, 1}, options.padding,
                         std::source_location::current())};
  }
  Shape y() const { return {batch, attrs().window.output(0), attrs().window.output(1), channels}; }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.x() << " by " << c.options.pool_size << " strides " << c.options.strides
             << (c.options.padding.kind() == Padding::same ? " same" : " valid");
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {2, 6, 8, 32},
      {2, 7, 11, 17},                                          // the last row and column are left out
      {1, 5, 7, 16, {.padding = "same"}},                      // half windows at the end
      {2, 9, 8, 3, {.pool_size = {3, 3}, .strides = {2, 2}}},  // overlapping
      {1, 8, 8, 33, {.pool_size = {3, 3}, .strides = {2, 2}, .padding = "same"}},
      {2, 7, 6, 1, {.pool_size = {3, 3}, .strides = {1, 1}, .padding = "same"}},
      {1, 11, 13, 16, {.pool_size = {2, 2}, .strides = {3, 4}}},  // gaps between windows
      {3, 10, 9, 5, {.pool_size = {3, 2}, .strides = {3, 2}, .padding = "same"}},
      {1, 9, 9, 20, {.pool_size = {3}}},
      {2, 7, 7, 18, {.pool_size = {7, 7}}},                        // one window
      {1, 20, 18, 2, {.pool_size = {17, 16}, .strides = {1, 2}}},  // 272 taps: positions of int32
      {2, 4, 4, 16, {.pool_size = {1, 1}}},
      {0, 6, 6, 16},
  };
  return list;
}

// f(index into y, indices into x of the window's elements, their positions in the window)
template <class F>
void for_windows(const Case& c, F f) {
  const Window w = c.attrs().window;
  for (int64_t n = 0; n < c.batch; ++n)
    for (int64_t oh = 0; oh < w.output(0); ++oh)
      for (int64_t ow = 0; ow < w.output(1); ++ow)
        for (int64_t k = 0; k < c.channels; ++k) {
          std::vector<size_t> elements, positions;
          for (int64_t i = 0; i < w.size[0]; ++i)
            for (int64_t j = 0; j < w.size[1]; ++j) {
              const int64_t h = oh * w.strides[0] - w.before[0] + i, v = ow * w.strides[1] - w.before[1] + j;
              if (h < 0 || h >= c.height || v < 0 || v >= c.width) continue;
              elements.push_back(static_cast<size_t>(((n * c.height + h) * c.width + v) * c.channels + k));
              positions.push_back(static_cast<size_t>(i * w.size[1] + j));
            }
          f(static_cast<size_t>(((n * w.output(0) + oh) * w.output(1) + ow) * c.channels + k), elements,
            positions);
        }
}

// Few different values, so that windows have ties.
Tensor with_ties(DType dtype, const Shape& shape) {
  Doubles numbers = values(random_tensor(DType::float64, shape, 1));
  for (double& v : numbers) v = std::round(v * 2);
  return tensor_of(dtype, shape, numbers);
}

void expect_near(const Tensor& result, const Doubles& expected, const Case& c, const char* what) {
  const double relative = result.dtype() == DType::float64    ? 1e-15
                          : result.dtype() == DType::float32  ? 1e-6
                          : result.dtype() == DType::bfloat16 ? 0x1p-8
                                                              : 0x1p-10;
  const Doubles received = values(result);
  ASSERT_EQ(received.size(), expected.size());
  for (size_t i = 0; i < received.size(); ++i)
    ASSERT_NEAR(received[i], expected[i], relative * (1 + std::abs(expected[i])))
        << what << " of " << result.dtype() << " " << c << " at " << i;
}

TEST(Pool, MaximaStandAtTheirFirstPosition) {
  for (const DType dtype : kFloats)
    for (const Case& c : cases()) {
      const Tensor x = with_ties(dtype, c.x());
      const Doubles xs = values(x);
      const TensorList result = run_kernel(kMaxPool2d, {x}, c.attrs(), 1);
      const Doubles y = values(result[0]), positions = values(result[1]);
      ASSERT_EQ(result[0].shape(), c.y());
      EXPECT_EQ(result[1].dtype(), c.attrs().window.taps() > 256 ? DType::int32 : DType::uint8);
      for_windows(c, [&](size_t o, const std::vector<size_t>& elements, const std::vector<size_t>& at) {
        size_t best = 0;
        for (size_t t = 1; t < elements.size(); ++t)
          if (xs[elements[t]] > xs[elements[best]]) best = t;
        ASSERT_EQ(y[o], xs[elements[best]]) << dtype << " " << c << " at " << o;
        ASSERT_EQ(positions[o], static_cast<double>(at[best])) << dtype << " " << c << " at " << o;
      });
    }
}

TEST(Pool, GradientsOfMaximaGoToThem) {
  for (const DType dtype : kFloats)
    for (const Case& c : cases()) {
      const Tensor x = with_ties(dtype, c.x());
      const Tensor dy = random_tensor(dtype, c.y(), 2), ddx = random_tensor(dtype, c.x(), 3);
      const Tensor positions = run_kernel(kMaxPool2d, {x}, c.attrs(), 1)[1];
      const Doubles ps = values(positions), gs = values(dy), ds = values(ddx);
      Doubles dx(ds.size()), gathered(gs.size());
      for_windows(c, [&](size_t o, const std::vector<size_t>& elements, const std::vector<size_t>& at) {
        for (size_t t = 0; t < elements.size(); ++t)
          if (static_cast<double>(at[t]) == ps[o]) {
            dx[elements[t]] += gs[o];
            gathered[o] = ds[elements[t]];
          }
      });
      expect_near(run_kernel(kMaxPool2dGrad, {dy, positions}, c.attrs(), 2)[0], dx, c, "max_pool2d_grad");
      expect_near(run_kernel(kMaxPool2dGather, {ddx, positions}, c.attrs(), 2)[0], gathered, c,
                  "max_pool2d_gather");
    }
}

TEST(Pool, MeansDoNotCountPadding) {
  for (const DType dtype : kFloats)
    for (const Case& c : cases()) {
      const Tensor x = random_tensor(dtype, c.x(), 1), dy = random_tensor(dtype, c.y(), 2);
      const Doubles xs = values(x), gs = values(dy);
      Doubles y(gs.size()), dx(xs.size());
      for_windows(c, [&](size_t o, const std::vector<size_t>& elements, const std::vector<size_t>&) {
        for (const size_t element : elements) {
          y[o] += xs[element] / static_cast<double>(elements.size());
          dx[element] += gs[o] / static_cast<double>(elements.size());
        }
      });
      expect_near(run_kernel(kAvgPool2d, {x}, c.attrs(), 2)[0], y, c, "avg_pool2d");
      expect_near(run_kernel(kAvgPool2dGrad, {dy}, c.attrs(), 2)[0], dx, c, "avg_pool2d_grad");
    }
}

TEST(Pool, ResultsDoNotDependOnThreads) {
  for (const Case& c : cases()) {
    const Tensor x = random_tensor(DType::float32, c.x(), 1), dy = random_tensor(DType::float32, c.y(), 2);
    const TensorList y = run_kernel(kMaxPool2d, {x}, c.attrs(), 1);
    const std::vector<std::pair<const OpDef*, TensorList>> uses = {{&kMaxPool2d, {x}},
                                                                   {&kMaxPool2dGrad, {dy, y[1]}},
                                                                   {&kMaxPool2dGather, {x, y[1]}},
                                                                   {&kAvgPool2d, {x}},
                                                                   {&kAvgPool2dGrad, {dy}}};
    for (const auto& [op, inputs] : uses)
      EXPECT_TRUE(
          same_bits(run_kernel(*op, inputs, c.attrs(), 3)[0], run_kernel(*op, inputs, c.attrs(), 1)[0]))
          << op->name << " " << c;
  }
}

// Every level of instructions that this machine has computes the same.
TEST(Pool, LevelsAgree) {
  const Case c{1, 7, 9, 21, {.pool_size = {2, 2}, .padding = "same"}};
  const auto axis = [&](int a) {
    const Window w = c.attrs().window;
    return cpu::PoolAxis{.input = w.input[a],
                         .size = 2,
                         .stride = 2,
                         .before = 0,
                         .output = w.output(a),
                         .over = {},
                         .inside = {}};
  };
  const cpu::PoolGeometry geometry{.rows = axis(0), .columns = axis(1), .channels = c.channels};
  const Tensor x = random_tensor(DType::float32, c.x(), 1);
  const TensorList expected = run_kernel(kMaxPool2d, {x}, c.attrs(), 1);
  const Tensor dx = run_kernel(kMaxPool2dGrad, expected, c.attrs(), 1)[0];
  std::vector<const cpu::PoolTable*> tables = {&simd_v2::kPoolTable};
  if (cpu::simd_level() >= cpu::SimdLevel::v3) tables.push_back(&simd_v3::kPoolTable);
  if (cpu::simd_level() >= cpu::SimdLevel::v4) tables.push_back(&simd_v4::kPoolTable);
  for (const cpu::PoolTable* table : tables) {
    std::vector<float> y(static_cast<size_t>(c.y().size())),
        gradient(static_cast<size_t>(c.x().size()), 7.0f);
    std::vector<uint8_t> positions(y.size());
    table->float32.bytes.max(geometry, {x.impl()->data(), y.data(), positions.data()}, 0, 4);
    table->float32.bytes.max_grad_apart(geometry, {y.data(), gradient.data(), positions.data()}, 0, 4);
    EXPECT_EQ(y, expected[0].to_vector<float>());
    EXPECT_EQ(positions, expected[1].to_vector<uint8_t>());
    EXPECT_EQ(gradient, dx.to_vector<float>());
  }
}

TEST(Pool, NanAndInfinityAreKept) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x =
      Tensor::from<float>({1, kNan, 3, 2, -kInf, -kInf, -kInf, -kInf, 5, 4, kInf, 3}, {3, 2, 2, 1});
  const auto y = max_pool2d(x).to_vector<float>();
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], -kInf);
  EXPECT_EQ(y[2], kInf);
}

// Wherever in a window it stands; infinities of both signs in one window are no NaN.
TEST(Pool, TheLastNanOfAWindowIsTaken) {
  constexpr double kInf = std::numeric_limits<double>::infinity(),
                   kNan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : kFloats)
    for (const int64_t size : {2, 3}) {
      const Case c{1, size, size, 19, {.pool_size = {size, size}}};
      const int64_t taps = size * size;
      // Channel k has a NaN at tap k, channel taps + k a second one at the first tap; the last ones infinities.
      Doubles numbers = values(random_tensor(DType::float64, c.x(), 1));
      const auto at = [&](int64_t tap, int64_t channel) -> double& {
        return numbers[static_cast<size_t>(tap * c.channels + channel)];
      };
      for (int64_t k = 0; k < taps; ++k) at(k, k) = at(k, k + taps) = at(0, k + taps) = kNan;
      at(0, 18) = -kInf, at(2, 18) = kInf;
      const TensorList result = run_kernel(kMaxPool2d, {tensor_of(dtype, c.x(), numbers)}, c.attrs(), 1);
      const Doubles y = values(result[0]), positions = values(result[1]);
      for (size_t k = 0; k < static_cast<size_t>(2 * taps); ++k) {
        EXPECT_TRUE(std::isnan(y[k])) << dtype << " channel " << k;
        EXPECT_EQ(positions[k], static_cast<double>(k % static_cast<size_t>(taps)))
            << dtype << " channel " << k;
      }
      EXPECT_EQ(y[18], kInf);
      EXPECT_EQ(positions[18], 2);
    }
}

// Gradients of the ops and of their gradients, by the rules.
TEST(Pool, GradientsAgreeWithDifferences) {
  const Case c{1, 5, 6, 2, {.pool_size = {3, 2}, .strides = {2, 2}, .padding = "same"}};
  const Tensor x = random_tensor(DType::float64, c.x(), 1), dy = random_tensor(DType::float64, c.y(), 2);
  const std::source_location where = std::source_location::current();
  const Attrs attrs = c.attrs();
  const Tensor positions = emit(kMaxPool2d, TensorList{x}, attrs, where)[1];
  const std::vector<std::pair<const OpDef*, TensorList>> uses = {{&kMaxPool2d, {x}},
                                                                 {&kMaxPool2dGrad, {dy, positions}},
                                                                 {&kMaxPool2dGather, {x, positions}},
                                                                 {&kAvgPool2d, {x}},
                                                                 {&kAvgPool2dGrad, {dy}}};
  for (const auto& [op, inputs] : uses) {
    const TensorList outputs = emit(*op, inputs, attrs, where);
    TensorList douts(outputs.size());
    douts[0] = random_tensor(DType::float64, outputs[0].shape(), 3);
    const Doubles weights = values(douts[0]), elements = values(inputs[0]);
    const TensorList gradients = op->grad(GradContext(*op, attrs, inputs, outputs, douts, {true, false}));
    ASSERT_EQ(gradients.size(), inputs.size());
    const Doubles gradient = values(gradients[0]);
    for (size_t i = 0; i < elements.size(); ++i) {
      const auto loss = [&](double delta) {
        Doubles moved = elements;
        moved[i] += delta;
        TensorList changed = inputs;
        changed[0] = tensor_of(DType::float64, inputs[0].shape(), moved);
        const Doubles result = values(run_kernel(*op, changed, attrs, 1)[0]);
        double sum = 0;
        for (size_t k = 0; k < result.size(); ++k) sum += weights[k] * result[k];
        return sum;
      };
      // Small enough that no other element becomes the largest.
      ASSERT_NEAR(gradient[i], (loss(1e-6) - loss(-1e-6)) / 2e-6, 1e-7) << op->name << " at " << i;
    }
  }
}

TEST(Pool, PublicFunctionsAndErrors) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {1, 2, 3, 1});
  EXPECT_EQ(max_pool2d(x).to_vector<float>(), (std::vector<float>{5}));
  EXPECT_EQ(avg_pool2d(x).to_vector<float>(), (std::vector<float>{3}));
  EXPECT_EQ(max_pool2d(x, {.padding = "same"}).to_vector<float>(), (std::vector<float>{5, 6}));
  EXPECT_EQ(avg_pool2d(x, {.padding = "same"}).to_vector<float>(), (std::vector<float>{3, 4.5}));
  EXPECT_EQ(max_pool2d(x, {.pool_size = {1, 2}, .strides = {1}}).to_vector<float>(),
            (std::vector<float>{2, 3, 5, 6}));
  const auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.message();
    }
    return "no error";
  };
  EXPECT_EQ(message([&] {
              max_pool2d(x, {.pool_size = {3, 3}});
            }),
            "max_pool2d: a window of 3 x 3 with dilations (1, 1) does not fit into images of 2 x 3; use "
            "padding \"same\" "
            "or larger images");
  EXPECT_EQ(message([&] {
              avg_pool2d(Tensor::full(DType::int32, {1, 4, 4, 1}, 1));
            }),
            "avg_pool2d: takes floating-point tensors, received int32(1, 4, 4, 1); cast() it first");
  EXPECT_EQ(message([&] {
              max_pool2d(Tensor::full(DType::float32, {4, 4}, 1));
            }),
            "max_pool2d: takes images of shape (batch, height, width, channels), received (4, 4)");
}

TEST(Pool, CountsOneOperationATap) {
  const Case c{2, 6, 6, 4};
  const TensorSpec x{DType::float32, c.x()}, y{DType::float32, c.y()}, positions{DType::uint8, c.y()};
  const Cost cost = op_cost(kMaxPool2d, std::vector{x}, std::vector{y, positions}, c.attrs());
  EXPECT_EQ(cost.flops, 2 * 6 * 6 * 4);
  EXPECT_EQ(cost.bytes, static_cast<int64_t>(x.bytes() + y.bytes() + positions.bytes()));
}

}  // namespace
}  // namespace lockstep
