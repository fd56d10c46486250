#include "ops/nn/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "graph/emit.h"
#include "lockstep/ops/conv.h"
#include "ops/run_kernel_test.h"
#include "ops/without_avx512_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

using Doubles = std::vector<double>;

struct Case {
  int64_t batch, height, width, in, out, kernel_height, kernel_width;
  Conv2dOptions options = {};

  Shape x() const { return {batch, height, width, in}; }
  Shape filter() const { return {kernel_height, kernel_width, in / options.groups, out}; }
  ConvAttrs attrs() const {
    return {.window = slide_window("conv2d", 2, x(), {kernel_height, kernel_width}, options.strides,
                                   options.dilations, options.padding, std::source_location::current()),
            .groups = options.groups};
  }
  Shape y() const { return {batch, attrs().window.output(0), attrs().window.output(1), out}; }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.x() << " * " << c.filter() << " strides " << c.options.strides << " dilations "
             << c.options.dilations << (c.options.padding.kind() == Padding::same ? " same" : " valid")
             << " groups " << c.options.groups;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {2, 5, 6, 1, 1, 1, 1},
      {2, 6, 5, 3, 4, 3, 2},
      {1, 8, 8, 3, 16, 3, 3, {.padding = "same"}},
      {2, 8, 8, 16, 32, 3, 3, {.strides = {2, 2}, .padding = "same"}},  // zeros on one side only
      {3, 9, 7, 17, 5, 3, 3, {.strides = {2, 1}}},
      {2, 11, 10, 4, 6, 3, 3, {.dilations = {2, 3}}},
      {1, 12, 12, 16, 16, 3, 3, {.strides = {2, 2}, .padding = "same", .dilations = {2, 2}}},
      {2, 7, 7, 6, 9, 3, 3, {.padding = "same", .groups = 3}},
      {2, 7, 6, 32, 32, 3, 3, {.strides = {1, 2}, .padding = "same", .groups = 32}},  // depthwise
      {1, 6, 6, 32, 64, 3, 3, {.groups = 2}},
      {2, 7, 7, 5, 10, 2, 2, {.strides = {3, 3}, .groups = 5}},  // the last row and column are not used
      {2, 10, 9, 1, 16, 3, 3},
      {2, 14, 15, 1, 48, 5, 3, {.padding = "same"}},
      {1, 30, 9, 1, 32, 3, 3, {.padding = "same", .dilations = {2, 1}}},
      {2, 9, 9, 1, 32, 3, 3, {.strides = {2, 2}}},
      {1, 9, 8, 1, 20, 3, 3, {.padding = "same"}},  // filters that fill no whole vector
      {1, 9, 8, 1, 40, 3, 3, {.padding = "same"}},
      {2, 13, 13, 32, 64, 3, 3},  // float32: Winograd forward and for the filter, direct for the input
      {1, 16, 16, 64, 64, 3, 3, {.padding = "same"}},  // float32: Winograd throughout
      {3, 12, 16, 17, 33, 3, 3, {.padding = "same"}},
      {2, 4, 4, 64, 16, 1, 1},
      {1, 3, 3, 2, 3, 3, 3},
      {1, 5, 4, 3, 300, 3, 3, {.padding = "same"}},  // more channels than a tile of a product has columns
      {1, 5, 4, 300, 6, 2, 2},
      {1, 4, 5, 600, 4, 1, 2},                 // a tap's channels are deeper than what is gathered at a time
      {1, 4, 3, 8, 600, 2, 2, {.groups = 2}},  // so they are in the gradient of the input, in groups
      {3, 16, 16, 3, 64, 3, 3, {.padding = "same"}},  // a filter of fewer rows than a tile of a product has
      {0, 5, 5, 3, 4, 3, 3},
  };
  return list;
}

// Calls f(index into x, into the filter, into y) for every product that a convolution is made of.
template <class F>
void for_products(const Case& c, F f) {
  const Window w = c.attrs().window;
  const int64_t group_in = c.in / c.options.groups, group_out = c.out / c.options.groups;
  for (int64_t n = 0; n < c.batch; ++n)
    for (int64_t oh = 0; oh < w.output(0); ++oh)
      for (int64_t ow = 0; ow < w.output(1); ++ow)
        for (int64_t i = 0; i < c.kernel_height; ++i)
          for (int64_t j = 0; j < c.kernel_width; ++j) {
            const int64_t h = oh * w.strides[0] - w.before[0] + i * w.dilations[0];
            const int64_t v = ow * w.strides[1] - w.before[1] + j * w.dilations[1];
            if (h < 0 || h >= c.height || v < 0 || v >= c.width) continue;
            for (int64_t o = 0; o < c.out; ++o)
              for (int64_t k = 0; k < group_in; ++k)
                f(static_cast<size_t>(((n * c.height + h) * c.width + v) * c.in + o / group_out * group_in +
                                      k),
                  static_cast<size_t>(((i * c.kernel_width + j) * group_in + k) * c.out + o),
                  static_cast<size_t>(((n * w.output(0) + oh) * w.output(1) + ow) * c.out + o));
          }
}

// Rounding of one result to the dtype, and of the sums behind it relative to their typical size.
void expect_near(const Tensor& result, const Doubles& expected, const Case& c, const char* what) {
  const DType dtype = result.dtype();
  const double rounding = dtype == DType::bfloat16 ? 0x1p-8 : dtype == DType::float16 ? 0x1p-10 : 0;
  const double of_sums = dtype == DType::float64 ? 1e-13 : 3e-5;
  const Doubles received = values(result);
  ASSERT_EQ(received.size(), expected.size());
  double squares = 0;
  for (const double e : expected) squares += e * e;
  const double typical = std::sqrt(squares / static_cast<double>(std::max<size_t>(expected.size(), 1)));
  for (size_t i = 0; i < received.size(); ++i)
    ASSERT_NEAR(received[i], expected[i], rounding * std::abs(expected[i]) + of_sums * typical)
        << what << " of " << dtype << " " << c << " at " << i;
}

void expect_the_plain_sum(DType dtype) {
  for (const Case& c : cases()) {
    const Tensor x = random_tensor(dtype, c.x(), 1);
    const Tensor filter = random_tensor(dtype, c.filter(), 2);
    const Tensor dy = random_tensor(dtype, c.y(), 3);
    const Doubles xs = values(x), fs = values(filter), gs = values(dy);
    Doubles y(gs.size()), dx(xs.size()), dfilter(fs.size());
    for_products(c, [&](size_t i, size_t f, size_t o) {
      y[o] += xs[i] * fs[f];
      dx[i] += gs[o] * fs[f];
      dfilter[f] += xs[i] * gs[o];
    });
    for (const int threads : {1, 2}) {
      expect_near(run_kernel(kConv2d, {x, filter}, c.attrs(), threads)[0], y, c, "conv2d");
      expect_near(run_kernel(kConv2dBackpropInput, {filter, dy}, c.attrs(), threads)[0], dx, c,
                  "backprop_input");
      expect_near(run_kernel(kConv2dBackpropFilter, {x, dy}, c.attrs(), threads)[0], dfilter, c,
                  "backprop_filter");
    }
  }
}

class ConvTypes : public ::testing::TestWithParam<DType> {};

TEST_P(ConvTypes, AgreesWithThePlainSum) { expect_the_plain_sum(GetParam()); }

TEST_P(ConvTypes, AddsBiasAndActivates) {
  const auto activated = [](Epilogue epilogue, double v) {
    switch (epilogue) {
      case Epilogue::none: return v;
      case Epilogue::relu: return std::max(v, 0.0);
      case Epilogue::tanh: return std::tanh(v);
      case Epilogue::sigmoid: return 1 / (1 + std::exp(-v));
      case Epilogue::gelu_erf: return v * 0.5 * std::erfc(-v / std::sqrt(2.0));
      case Epilogue::gelu_tanh:
        return 0.5 * v * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
    }
    return v;
  };
  // Direct, Winograd's, the grey images' kernel, groups, depthwise, and few channels.
  const std::vector<Case> chosen = {{2, 6, 6, 5, 7, 3, 3},
                                    {2, 13, 13, 32, 64, 3, 3},
                                    {2, 9, 10, 1, 32, 3, 3, {.padding = "same"}},
                                    {2, 9, 10, 1, 20, 3, 3, {.padding = "same"}},
                                    {1, 6, 6, 32, 32, 3, 3, {.groups = 4}},
                                    {1, 6, 6, 8, 8, 3, 3, {.groups = 8}},
                                    {2, 6, 6, 5, 2, 3, 3}};
  for (const Case& c : chosen) {
    const Tensor x = random_tensor(GetParam(), c.x(), 1);
    Doubles small = values(random_tensor(DType::float64, c.filter(), 2));
    for (double& v : small) v *= 0.1;
    const Tensor filter = tensor_of(GetParam(), c.filter(), small);
    const Tensor bias = random_tensor(GetParam(), {1, 1, c.out}, 3);
    const Doubles xs = values(x), fs = values(filter), bs = values(bias);
    Doubles sums(static_cast<size_t>(c.y().size()));
    for_products(c, [&](size_t i, size_t f, size_t o) { sums[o] += xs[i] * fs[f]; });
    for (const bool biased : {false, true}) {
      const TensorList inputs = biased ? TensorList{x, filter, bias} : TensorList{x, filter};
      const auto made = [&](Epilogue epilogue) {
        return run_kernel(kConv2d, inputs, kConv2d.with_epilogue(c.attrs(), biased, epilogue), 1)[0];
      };
      const Tensor plain = made(Epilogue::none);
      Doubles y = sums;
      for (size_t o = 0; o < y.size(); ++o) y[o] += biased ? bs[o % static_cast<size_t>(c.out)] : 0;
      expect_near(plain, y, c, biased ? "conv2d with bias" : "conv2d");
      // An activation is that of the sum as it is stored, as it is when it stands alone: 16-bit floats are
      // rounded twice.
      const Doubles stored = values(plain);
      for (const Epilogue epilogue :
           {Epilogue::relu, Epilogue::tanh, Epilogue::sigmoid, Epilogue::gelu_erf, Epilogue::gelu_tanh}) {
        for (size_t o = 0; o < y.size(); ++o) y[o] = activated(epilogue, stored[o]);
        expect_near(made(epilogue), y, c, biased ? "conv2d with bias, activated" : "conv2d activated");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ConvTypes,
                         ::testing::Values(DType::float32, DType::bfloat16, DType::float64, DType::float16),
                         [](const auto& info) { return std::string(name(info.param)); });

// oneDNN has no bfloat16 before AVX-512, and none of it for what a process has begun with.
TEST(ConvWithoutAvx512OwnProcess, SixteenBitFloatsAgreeWithThePlainSum) {
  if (!testing::keep_dnnl_to_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  for (const DType dtype : {DType::bfloat16, DType::float16}) expect_the_plain_sum(dtype);
}

// The three ops with inputs of their own.
std::vector<std::pair<const OpDef*, TensorList>> uses(const Case& c, DType dtype) {
  const Tensor x = random_tensor(dtype, c.x(), 1);
  const Tensor filter = random_tensor(dtype, c.filter(), 2);
  const Tensor dy = random_tensor(dtype, c.y(), 3);
  return {{&kConv2d, {x, filter}}, {&kConv2dBackpropInput, {filter, dy}}, {&kConv2dBackpropFilter, {x, dy}}};
}

// Gradients of conv2d and of its gradients: all second derivatives. The ops are linear in each input, so that
// differences over any distance are exact.
TEST(Conv, GradientsAgreeWithDifferences) {
  const std::vector<Case> chosen = {{2, 5, 4, 3, 4, 3, 2, {.strides = {2, 1}, .padding = "same"}},
                                    {1, 6, 6, 4, 6, 2, 3, {.dilations = {2, 1}, .groups = 2}}};
  const std::source_location where = std::source_location::current();
  for (const Case& c : chosen)
    for (const auto& [op, inputs] : uses(c, DType::float64)) {
      const Attrs attrs = c.attrs();
      const TensorList outputs = emit(*op, inputs, attrs, where);
      const TensorList douts = {random_tensor(DType::float64, outputs[0].shape(), 4)};
      const Doubles weights = values(douts[0]);
      const auto loss = [&](const TensorList& at) {
        const Doubles result = values(run_kernel(*op, at, attrs, 1)[0]);
        double sum = 0;
        for (size_t i = 0; i < result.size(); ++i) sum += weights[i] * result[i];
        return sum;
      };
      const TensorList gradients = op->grad(GradContext(*op, attrs, inputs, outputs, douts, {true, true}));
      ASSERT_EQ(gradients.size(), 2u);
      for (size_t k = 0; k < 2; ++k) {
        ASSERT_EQ(gradients[k].shape(), inputs[k].shape());
        const Doubles gradient = values(gradients[k]), elements = values(inputs[k]);
        for (size_t i = 0; i < elements.size(); ++i) {
          const auto at = [&](double delta) {
            Doubles moved = elements;
            moved[i] += delta;
            TensorList changed = inputs;
            changed[k] = tensor_of(DType::float64, inputs[k].shape(), moved);
            return loss(changed);
          };
          ASSERT_NEAR(gradient[i], at(0.5) - at(-0.5), 1e-10) << op->name << " input " << k << " at " << i;
        }
      }
      const TensorList one = op->grad(GradContext(*op, attrs, inputs, outputs, douts, {false, true}));
      EXPECT_FALSE(one[0].defined());
      EXPECT_TRUE(one[1].defined());
    }
}

// On one thread, results are a function of shapes and values: not of the memory they lie in, nor of what ran
// before.
TEST(Conv, RepeatsBitForBitOnOneThread) {
  for (const Case& c : cases())
    for (const auto& [op, inputs] : uses(c, DType::float32)) {
      const Tensor first = run_kernel(*op, inputs, c.attrs(), 1)[0];
      run_kernel(*op, inputs, c.attrs(), 2);
      EXPECT_TRUE(same_bits(run_kernel(*op, inputs, c.attrs(), 1)[0], first)) << op->name << " " << c;
    }
}

TEST(Conv, OwnKernelsDoNotDependOnThreads) {
  const auto expect_same = [](const OpDef& op, const TensorList& inputs, const Case& c) {
    EXPECT_TRUE(same_bits(run_kernel(op, inputs, c.attrs(), 3)[0], run_kernel(op, inputs, c.attrs(), 1)[0]))
        << op.name << " " << c;
  };
  for (const Case& c : cases())
    for (const auto& [op, inputs] : uses(c, DType::float64)) expect_same(*op, inputs, c);
  const Case grey{3, 11, 9, 1, 32, 3, 3, {.padding = "same"}};
  expect_same(kConv2d, uses(grey, DType::float32)[0].second, grey);
}

TEST(Conv, EmptyBatchesHaveNoFilterGradient) {
  const Case c{0, 5, 5, 3, 4, 3, 3};
  const Tensor x = Tensor::full(DType::float32, c.x(), 0), dy = Tensor::full(DType::float32, c.y(), 0);
  EXPECT_EQ(conv2d_backprop_filter(x, c.filter(), dy).to_vector<float>(),
            std::vector<float>(static_cast<size_t>(c.filter().size()), 0.0f));
}

TEST(Conv, PublicFunctionsResolvePadding) {
  const Tensor x = Tensor::full(DType::float32, {2, 7, 8, 3}, 1);
  const Tensor filter = Tensor::full(DType::float32, {3, 3, 3, 5}, 1);
  EXPECT_EQ(conv2d(x, filter).shape(), (Shape{2, 5, 6, 5}));
  EXPECT_EQ(conv2d(x, filter, {.padding = "same"}).shape(), (Shape{2, 7, 8, 5}));
  EXPECT_EQ(conv2d(x, filter, {.strides = {2}, .padding = Padding::same}).shape(), (Shape{2, 4, 4, 5}));
  const std::string text = "valid";
  EXPECT_EQ(conv2d(x, filter, {.padding = text, .dilations = {2, 3}}).shape(), (Shape{2, 3, 2, 5}));
  const Tensor y = conv2d(x, filter, {.strides = {2, 2}, .padding = "same"});
  EXPECT_EQ(conv2d_backprop_input(x.shape(), filter, y, {.strides = {2, 2}, .padding = "same"}).shape(),
            x.shape());
  EXPECT_EQ(conv2d_backprop_filter(x, filter.shape(), y, {.strides = {2, 2}, .padding = "same"}).shape(),
            filter.shape());
  // Inside the image 27 ones meet 27 ones; in its corner 12.
  const auto sums = conv2d(x, filter, {.padding = "same"}).to_vector<float>();
  EXPECT_EQ(sums[0], 12.0f);
  EXPECT_EQ(sums[(8 + 1) * 5], 27.0f);
}

// Taps that lie outside of the image meet zeros, however far away they are.
TEST(Conv, TapsMayBeFarApart) {
  constexpr int64_t kFar = (int64_t{1} << 31) - 1;
  const Tensor x = Tensor::full(DType::float32, {1, 4, 4, 2}, 1);
  const Tensor filter = Tensor::full(DType::float32, {3, 3, 2, 3}, 1);
  // Of the nine taps the middle one alone is inside.
  const Tensor dilated = conv2d(x, filter, {.padding = "same", .dilations = {kFar, kFar}});
  EXPECT_EQ(dilated.to_vector<float>(), std::vector<float>(4 * 4 * 3, 2));
  const Tensor strided = conv2d(x, filter, {.strides = {kFar, kFar}});
  EXPECT_EQ(strided.to_vector<float>(), std::vector<float>(3, 18));
}

TEST(Conv, ErrorsNameTheOpTheRuleAndTheValues) {
  const auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.message();
    }
    return "no error";
  };
  const Tensor x = Tensor::full(DType::float32, {1, 4, 4, 3}, 1);
  const Tensor filter = Tensor::full(DType::float32, {3, 3, 3, 5}, 1);
  EXPECT_EQ(message([&] {
              conv2d(x, Tensor::full(DType::float32, {3, 3, 4, 5}, 1));
            }),
            "conv2d: the filter (3, 3, 4, 5) reads 4 input channels in each of 1 groups, the images (1, 4, "
            "4, 3) have 3");
  EXPECT_EQ(message([&] {
              conv2d(x, Tensor::full(DType::float32, {5, 5, 3, 5}, 1));
            }),
            "conv2d: a window of 5 x 5 with dilations (1, 1) does not fit into images of 4 x 4; use padding "
            "\"same\" or "
            "larger images");
  EXPECT_EQ(message([&] {
              conv2d(Tensor::full(DType::float32, {4, 4, 3}, 1), filter);
            }),
            "conv2d: takes images of shape (batch, height, width, channels), received (4, 4, 3)");
  EXPECT_EQ(message([&] {
              conv2d(x, Tensor::full(DType::float32, {3, 3}, 1));
            }),
            "conv2d: takes a filter of shape (height, width, input channels of a group, output channels), "
            "received (3, 3)");
  EXPECT_EQ(message([&] {
              conv2d(x, Tensor::full(DType::float64, {3, 3, 3, 5}, 1));
            }),
            "conv2d: takes floating-point tensors of one dtype, received float32(1, 4, 4, 3) and float64(3, "
            "3, 3, 5); "
            "cast() one of them");
  EXPECT_EQ(message([&] { conv2d(x, filter, {.groups = 2}); }),
            "conv2d: groups must divide the channels, received 2 groups of 3 input and 5 output channels");
  EXPECT_EQ(message([&] {
              conv2d(x, filter, {.strides = {0, 1}});
            }),
            "conv2d: strides must be 1 or more, received (0, 1)");
  EXPECT_EQ(message([&] {
              conv2d(x, filter, {.dilations = {1, int64_t{1} << 31}});
            }),
            "conv2d: dilations must be 1 to 2^31 - 1, received (1, 2147483648)");
  EXPECT_EQ(message([&] {
              conv2d(x, filter, {.strides = {1, 1, 1}});
            }),
            "conv2d: strides must be {height, width} or one number for both, received (1, 1, 1)");
  EXPECT_EQ(message([&] { conv2d(x, filter, {.padding = "full"}); }),
            "padding must be \"valid\", \"same\" or, in one dimension, \"causal\", received \"full\"");
  EXPECT_EQ(
      message([&] {
        conv2d_backprop_input({1, 4, 4, 7}, filter, Tensor::full(DType::float32, {1, 2, 2, 5}, 1));
      }),
      "conv2d_backprop_input: the result has shape (1, 4, 4, 3) by its inputs, asked for was (1, 4, 4, 7)");
  EXPECT_EQ(message([&] {
              conv2d_backprop_input({1, 4, 4, 3}, filter, Tensor::full(DType::float32, {1, 3, 2, 5}, 1));
            }),
            "conv2d_backprop_input: gradients of (1, 3, 2, 5) where the window gives (2, 2)");
  EXPECT_EQ(message([&] {
              conv2d_backprop_filter(x, filter.shape(), Tensor::full(DType::float32, {2, 2, 2, 5}, 1));
            }),
            "conv2d_backprop_filter: the images (1, 4, 4, 3) and the gradient (2, 2, 2, 5) differ in batch");
}

TEST(Conv, CountsMultiplicationsAndAdditions) {
  const Case c{2, 8, 8, 6, 9, 3, 3, {.padding = "same", .groups = 3}};
  const TensorSpec x{DType::float32, c.x()}, filter{DType::float32, c.filter()}, y{DType::float32, c.y()};
  const int64_t flops = 2 * 2 * 8 * 8 * 9 * 3 * 3 * (6 / 3);
  const Cost forward = op_cost(kConv2d, std::vector{x, filter}, std::vector{y}, c.attrs());
  EXPECT_EQ(forward.flops, flops);
  EXPECT_EQ(forward.bytes, static_cast<int64_t>(x.bytes() + filter.bytes() + y.bytes()));
  EXPECT_EQ(op_cost(kConv2dBackpropInput, std::vector{filter, y}, std::vector{x}, c.attrs()).flops, flops);
  EXPECT_EQ(op_cost(kConv2dBackpropFilter, std::vector{x, y}, std::vector{filter}, c.attrs()).flops, flops);
}

}  // namespace
}  // namespace lockstep
