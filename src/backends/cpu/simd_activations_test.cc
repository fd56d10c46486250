// The vector code itself, compiled here for the instruction set that every machine has.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#define LOCKSTEP_SIMD simd_test
#include "backends/cpu/simd_activations.h"

namespace lockstep {
namespace {

using simd_test::F32;
using simd_test::kLanes;

std::vector<float> each(const std::vector<float>& x, F32 (*f)(const F32&)) {
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); i += kLanes) {
    const auto n = std::min<int64_t>(kLanes, static_cast<int64_t>(x.size() - i));
    simd_test::store_some(&y[i], n, f(simd_test::load_some(&x[i], n, 0.0f)));
  }
  return y;
}
std::vector<float> sigmoid_of(const std::vector<float>& x) {
  return each(x, [](const F32& v) { return simd_test::sigmoid(v); });
}
std::vector<float> tanh_of(const std::vector<float>& x) {
  return each(x, [](const F32& v) { return simd_test::tanh(v); });
}

double relative(float got, double exact) { return std::abs(got - exact) / std::abs(exact); }

TEST(SimdActivations, AreWithinAFewUlps) {
  std::vector<float> x;
  for (float v = -20; v < 20; v += 0.0007f) x.push_back(v);
  for (float v = 1e-30f; v < 1; v *= 1.07f) x.insert(x.end(), {v, -v});
  const auto t = tanh_of(x), s = sigmoid_of(x);
  double worst_tanh = 0, worst_sigmoid = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = x[i];
    worst_tanh = std::max(worst_tanh, relative(t[i], std::tanh(exact)));
    worst_sigmoid = std::max(worst_sigmoid, relative(s[i], 1 / (1 + std::exp(-exact))));
  }
  EXPECT_LE(worst_tanh, 3 * 0x1p-23);
  EXPECT_LE(worst_sigmoid, 3 * 0x1p-23);
}

TEST(SimdActivations, Edges) {
  const float infinity = std::numeric_limits<float>::infinity();
  // Of both zeros tanh is 0: nothing that a cell makes of it tells them apart.
  const auto t = tanh_of({-infinity, infinity, 0, -0.0f, -100, 100, std::nanf("")});
  EXPECT_EQ((std::vector<float>(t.begin(), t.end() - 1)), (std::vector<float>{-1, 1, 0, 0, -1, 1}));
  EXPECT_TRUE(std::isnan(t[6]));
  const auto s = sigmoid_of({-infinity, infinity, 0, -200, 200, std::nanf("")});
  EXPECT_EQ((std::vector<float>(s.begin(), s.end() - 1)), (std::vector<float>{0, 1, 0.5f, 0, 1}));
  EXPECT_TRUE(std::isnan(s[5]));
}

}  // namespace
}  // namespace lockstep
