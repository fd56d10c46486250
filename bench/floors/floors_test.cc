// A floor that computes the wrong thing is no floor: its first gradients against plain loops in double
// precision, its first update against Adam's formula, and a loss that falls.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>
#include <tuple>
#include <vector>

#include "bench/floors/floor.h"
#include "bench/floors/onednn.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

using Values = std::vector<double>;

// A layer computes its output from its input, and in reverse its input's and its parameters' gradients.
// Images are NHWC; parameters follow each other in one array, as TrainingFloor exchanges them.
struct Layer {
  int64_t parameters = 0;
  std::function<Values(const Values& x, const double* w)> forward;
  std::function<Values(const Values& x, const Values& dy, const double* w, double* dw)> backward;
};

Layer dense(int64_t batch, int64_t in, int64_t out) {
  return {.parameters = in * out + out,
          .forward =
              [=](const Values& x, const double* w) {
                Values y(static_cast<size_t>(batch * out));
                for (int64_t n = 0; n < batch; ++n)
                  for (int64_t o = 0; o < out; ++o) {
                    double sum = w[in * out + o];
                    for (int64_t i = 0; i < in; ++i) sum += x[n * in + i] * w[i * out + o];
                    y[n * out + o] = sum;
                  }
                return y;
              },
          .backward =
              [=](const Values& x, const Values& dy, const double* w, double* dw) {
                Values dx(x.size());
                for (int64_t n = 0; n < batch; ++n)
                  for (int64_t o = 0; o < out; ++o) {
                    const double d = dy[n * out + o];
                    dw[in * out + o] += d;
                    for (int64_t i = 0; i < in; ++i) {
                      dw[i * out + o] += d * x[n * in + i];
                      dx[n * in + i] += d * w[i * out + o];
                    }
                  }
                return dx;
              }};
}

Layer relu() {
  return {.forward =
              [](const Values& x, const double*) {
                Values y = x;
                for (double& v : y) v = std::max(v, 0.0);
                return y;
              },
          .backward =
              [](const Values& x, const Values& dy, const double*, double*) {
                Values dx = dy;
                for (size_t i = 0; i < x.size(); ++i)
                  if (x[i] <= 0) dx[i] = 0;
                return dx;
              }};
}

Layer convolution(int64_t batch, int64_t side, int64_t in, int64_t out) {
  const int64_t o_side = side - 2;
  // visit(input index, kernel index, output index) for every product of the sum
  const auto for_each = [=](const auto& visit) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t r = 0; r < o_side; ++r)
        for (int64_t c = 0; c < o_side; ++c)
          for (int64_t kr = 0; kr < 3; ++kr)
            for (int64_t kc = 0; kc < 3; ++kc)
              for (int64_t i = 0; i < in; ++i)
                for (int64_t o = 0; o < out; ++o)
                  visit(((n * side + r + kr) * side + c + kc) * in + i, ((kr * 3 + kc) * in + i) * out + o,
                        ((n * o_side + r) * o_side + c) * out + o);
  };
  return {.parameters = 9 * in * out + out,
          .forward =
              [=](const Values& x, const double* w) {
                Values y(static_cast<size_t>(batch * o_side * o_side * out));
                for (size_t i = 0; i < y.size(); ++i) y[i] = w[9 * in * out + static_cast<int64_t>(i) % out];
                for_each([&](int64_t xi, int64_t wi, int64_t yi) { y[yi] += x[xi] * w[wi]; });
                return y;
              },
          .backward =
              [=](const Values& x, const Values& dy, const double* w, double* dw) {
                Values dx(x.size());
                for (size_t i = 0; i < dy.size(); ++i)
                  dw[9 * in * out + static_cast<int64_t>(i) % out] += dy[i];
                for_each([&](int64_t xi, int64_t wi, int64_t yi) {
                  dw[wi] += x[xi] * dy[yi];
                  dx[xi] += w[wi] * dy[yi];
                });
                return dx;
              }};
}

Layer max_pool(int64_t batch, int64_t side, int64_t channels) {
  const int64_t o_side = side / 2;
  const auto argmax = [=](const Values& x, int64_t n, int64_t r, int64_t c, int64_t channel) {
    int64_t best = -1;
    for (int64_t kr = 0; kr < 2; ++kr)
      for (int64_t kc = 0; kc < 2; ++kc) {
        const int64_t at = ((n * side + 2 * r + kr) * side + 2 * c + kc) * channels + channel;
        if (best < 0 || x[at] > x[best]) best = at;
      }
    return best;
  };
  const auto for_each = [=](const Values& x, const auto& visit) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t r = 0; r < o_side; ++r)
        for (int64_t c = 0; c < o_side; ++c)
          for (int64_t channel = 0; channel < channels; ++channel)
            visit(argmax(x, n, r, c, channel), ((n * o_side + r) * o_side + c) * channels + channel);
  };
  return {.forward =
              [=](const Values& x, const double*) {
                Values y(static_cast<size_t>(batch * o_side * o_side * channels));
                for_each(x, [&](int64_t xi, int64_t yi) { y[yi] = x[xi]; });
                return y;
              },
          .backward =
              [=](const Values& x, const Values& dy, const double*, double*) {
                Values dx(x.size());
                for_each(x, [&](int64_t xi, int64_t yi) { dx[xi] += dy[yi]; });
                return dx;
              }};
}

struct Expected {
  double loss = 0;
  Values gradients;
};

Expected reference(const std::vector<Layer>& layers, Values x, const std::vector<int32_t>& labels,
                   const std::vector<float>& parameters) {
  const Values w(parameters.begin(), parameters.end());
  std::vector<Values> inputs;
  std::vector<int64_t> offsets;
  int64_t offset = 0;
  for (const Layer& layer : layers) {
    offsets.push_back(offset);
    inputs.push_back(x);
    x = layer.forward(inputs.back(), w.data() + offset);
    offset += layer.parameters;
  }
  EXPECT_EQ(offset, static_cast<int64_t>(w.size()));

  Expected expected{.gradients = Values(w.size())};
  const size_t batch = labels.size(), classes = x.size() / batch;
  for (size_t n = 0; n < batch; ++n) {
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(x[n * classes + c]);
    const auto label = static_cast<size_t>(labels[n]);
    expected.loss += (std::log(sum) - x[n * classes + label]) / static_cast<double>(batch);
    for (size_t c = 0; c < classes; ++c)
      x[n * classes + c] =
          (std::exp(x[n * classes + c]) / sum - (c == label ? 1 : 0)) / static_cast<double>(batch);
  }
  for (size_t i = layers.size(); i-- > 0;)
    x = layers[i].backward(inputs[i], x, w.data() + offsets[i], expected.gradients.data() + offsets[i]);
  return expected;
}

// An error relative to the largest gradient of the same layer: what float and Winograd allow.
void check(TrainingFloor& floor, const std::vector<Layer>& layers, int64_t batch, double tolerance) {
  std::vector<float> x(static_cast<size_t>(batch * 784));
  uint32_t seed = 5;
  for (float& v : x) v = static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) * 0x1p-24f;
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < batch; ++n) labels.push_back(static_cast<int32_t>(n * 3 % 10));
  floor.set_batch(x, labels);
  std::vector<float> before = floor.parameters();
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i] == 0) before[i] = 0.01f * static_cast<float>(i % 7) - 0.02f;  // the biases
  floor.set_parameters(before);
  ASSERT_EQ(floor.parameters(), before);

  floor.step();
  const Expected expected = reference(layers, Values(x.begin(), x.end()), labels, before);
  EXPECT_NEAR(floor.loss(), expected.loss, tolerance * expected.loss);
  const std::vector<float> gradients = floor.gradients(), after = floor.parameters();
  ASSERT_EQ(gradients.size(), expected.gradients.size());
  size_t at = 0;
  for (const Layer& layer : layers) {
    const size_t end = at + static_cast<size_t>(layer.parameters);
    double largest = 0, error = 0;
    for (size_t i = at; i < end; ++i) {
      largest = std::max(largest, std::abs(expected.gradients[i]));
      error = std::max(error, std::abs(gradients[i] - expected.gradients[i]));
    }
    EXPECT_LE(error, tolerance * largest) << "parameters " << at << " to " << end;
    at = end;
  }
  // Adam's first step is lr * g / (|g| + epsilon'), epsilon' = epsilon / sqrt(1 - beta2).
  for (size_t i = 0; i < after.size(); ++i) {
    const double g = gradients[i];
    const double change = 1e-3 * g / (std::abs(g) + 1e-7 / std::sqrt(1e-3));
    ASSERT_NEAR(after[i] - before[i], -change, 2e-6) << i;
  }

  const double first = floor.loss();
  for (int i = 0; i < 8; ++i) floor.step();
  EXPECT_LT(floor.loss(), 0.9 * first);
}

class FloorTest : public testing::TestWithParam<std::tuple<int, int, PickScope::Pick>> {};

TEST_P(FloorTest, MlpAgreesWithDoublePrecision) {
  const auto [batch, threads, pick] = GetParam();
  const PickScope scope(pick);
  const auto floor = mlp_floor(batch, threads);
  SCOPED_TRACE(floor->chosen());
  check(*floor, {dense(batch, 784, 128), relu(), dense(batch, 128, 10)}, batch, 1e-5);
}

TEST_P(FloorTest, ConvnetAgreesWithDoublePrecision) {
  const auto [batch, threads, pick] = GetParam();
  const PickScope scope(pick);
  for (const ConvnetLayout layout : {ConvnetLayout::nhwc, ConvnetLayout::blocked}) {
    std::unique_ptr<TrainingFloor> floor;
    try {
      floor = convnet_floor(batch, threads, layout);
    } catch (const Error& error) {
      // Blocks of 16 channels are for registers of 16 floats.
      if (layout == ConvnetLayout::nhwc || error.code() != ErrorCode::unsupported) throw;
      GTEST_SKIP() << "blocks of 16 channels: " << error.message();
    }
    SCOPED_TRACE(floor->chosen());
    check(*floor,
          {convolution(batch, 28, 1, 32), relu(), max_pool(batch, 26, 32), convolution(batch, 13, 32, 64),
           relu(), max_pool(batch, 11, 64), dense(batch, 1600, 128), relu(), dense(batch, 128, 10)},
          batch, 1e-4);
  }
}

// Batches smaller than a vector, of whole vectors, and with a remainder.
INSTANTIATE_TEST_SUITE_P(
    Batches, FloorTest,
    testing::Values(std::tuple{3, 1, PickScope::first}, std::tuple{3, 1, PickScope::last},
                    std::tuple{16, 1, PickScope::first}, std::tuple{16, 1, PickScope::last},
                    std::tuple{19, 2, PickScope::first}, std::tuple{19, 2, PickScope::last}));

TEST(FastestTest, TakesTheFasterAndRefusesDisagreement) {
  float a = 1, b = 1;
  const auto quick = [] {};
  const auto slow = [] { std::this_thread::sleep_for(std::chrono::microseconds(200)); };
  EXPECT_EQ(fastest({{"slow", slow, {&a, 1}}, {"quick", quick, {&b, 1}}}, 1e-3), 1u);
  b = 1.1f;
  EXPECT_THROW(fastest({{"one", quick, {&a, 1}}, {"two", quick, {&b, 1}}}, 1e-3), Error);
}

TEST(CopyFloorTest, NamesWhatItKept) {
  const auto floor = copy_floor(1 << 20, 2);
  floor->step();
  EXPECT_FALSE(floor->chosen().empty());
}

}  // namespace
}  // namespace lockstep::bench
