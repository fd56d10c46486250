// The vector code itself, compiled here for the instruction set that every machine has.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#define LOCKSTEP_SIMD simd_test
#include "backends/cpu/simd_math.h"

namespace lockstep {
namespace {

using simd_test::F32;
using simd_test::F64;
using simd_test::kLanes;

template <class T>
std::vector<T> each(const std::vector<T>& x, simd_test::Vec<T> (*f)(const simd_test::Vec<T>&)) {
  std::vector<T> y(x.size());
  for (size_t i = 0; i < x.size(); i += kLanes) {
    const auto n = std::min<int64_t>(kLanes, static_cast<int64_t>(x.size() - i));
    simd_test::store_some(&y[i], n, f(simd_test::load_some(&x[i], n, T(0))));
  }
  return y;
}
std::vector<float> exp_of(const std::vector<float>& x) {
  return each<float>(x, [](const F32& v) { return simd_test::exp(v); });
}
std::vector<float> exp_not_positive_of(const std::vector<float>& x) {
  return each<float>(x, [](const F32& v) { return simd_test::exp_not_positive(v); });
}
std::vector<float> log_of(const std::vector<float>& x) {
  return each<float>(x, [](const F32& v) { return simd_test::log(v); });
}

// The distance in units of the last place of the exact result.
double ulps(float got, double exact) {
  const auto rounded = static_cast<float>(exact);
  const double unit = std::abs(static_cast<double>(std::nextafter(rounded, 2 * rounded + 1e-45f)) -
                               static_cast<double>(rounded));
  return std::abs(static_cast<double>(got) - exact) / std::max(unit, 0x1p-149);
}

TEST(SimdMath, ExpIsWithinTwoUlps) {
  std::vector<float> x;
  for (float v = -103.9f; v < 88.7f; v += 0.0037f) x.push_back(v);
  for (float v = 1e-10f; v < 1e-2f; v *= 1.1f) {
    x.push_back(v);
    x.push_back(-v);
  }
  const auto y = exp_of(x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, ulps(y[i], std::exp(static_cast<double>(x[i]))));
  EXPECT_LE(worst, 2);
}

TEST(SimdMath, ExpOfNumbersThatAreNotPositive) {
  std::vector<float> x;
  for (float v = -87.0f; v <= 0; v += 0.0031f) x.push_back(v);
  x.push_back(0);
  const auto y = exp_not_positive_of(x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, ulps(y[i], std::exp(static_cast<double>(x[i]))));
  EXPECT_LE(worst, 2);
  EXPECT_EQ(y.back(), 1);
  const float infinity = std::numeric_limits<float>::infinity();
  const auto edges = exp_not_positive_of({-infinity, -1000, -88, std::nanf("7")});
  EXPECT_EQ(edges[0], 0);
  EXPECT_EQ(edges[1], 0);
  EXPECT_EQ(edges[2], 0);
  EXPECT_TRUE(std::isnan(edges[3]));
}

TEST(SimdMath, EdgesOfExp) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto y = exp_of({-infinity, infinity, 0, -0.0f, -200, 200, 89, std::nanf("")});
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], infinity);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], 1);
  EXPECT_EQ(y[4], 0);
  EXPECT_EQ(y[5], infinity);
  EXPECT_EQ(y[6], infinity);
  EXPECT_TRUE(std::isnan(y[7]));
}

TEST(SimdMath, LogIsWithinTwoUlps) {
  std::vector<float> x;
  for (float v = 1e-45f; v < 3e38f; v *= 1.00173f) {
    x.push_back(v);
    if (v < 1e-40f) v += 1e-45f;
  }
  for (float v = 0.5f; v < 2.0f; v += 1.7e-5f) x.push_back(v);
  const auto y = log_of(x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != 1) worst = std::max(worst, ulps(y[i], std::log(static_cast<double>(x[i]))));
  EXPECT_LE(worst, 2);
  const float infinity = std::numeric_limits<float>::infinity();
  const auto edges = log_of({1, 0, -0.0f, infinity, -1, -infinity, std::nanf("")});
  EXPECT_EQ(edges[0], 0);
  EXPECT_EQ(edges[1], -infinity);
  EXPECT_EQ(edges[2], -infinity);
  EXPECT_EQ(edges[3], infinity);
  for (size_t i = 4; i < 7; ++i) EXPECT_TRUE(std::isnan(edges[i])) << i;
}

// Against float80.
double ulps(double got, long double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) /
                             std::ldexp(1.0L, std::max(exponent - 53, -1074)));
}

TEST(SimdMath, WideExpOfNumbersThatAreNotPositive) {
  std::vector<double> x;
  for (double v = -708.0; v <= 0; v += 0.0071) x.push_back(v);
  for (double v = 1e-20; v < 1; v *= 1.003) x.push_back(-v);
  x.push_back(0);
  const auto f = [](const F64& v) { return simd_test::exp_not_positive(v); };
  const auto y = each<double>(x, f);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, ulps(y[i], std::exp(static_cast<long double>(x[i]))));
  EXPECT_LE(worst, 1.2);
  EXPECT_EQ(y.back(), 1);
  const double infinity = std::numeric_limits<double>::infinity();
  const auto edges = each<double>({-infinity, -1e300, -709, std::nan("7")}, f);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(edges[i], 0) << i;
  EXPECT_TRUE(std::isnan(edges[3]));
}

TEST(SimdMath, WideLog) {
  std::vector<double> x;
  for (double v = 5e-324; v < 1e308; v = v * 1.0173 + 5e-324) x.push_back(v);
  for (double v = 0.5; v < 2.0; v += 1.7e-5) x.push_back(v);
  for (double d = 1e-15; d < 0.1; d *= 1.1) {
    x.push_back(1 + d);
    x.push_back(1 - d);
  }
  x.push_back(1);
  const auto f = [](const F64& v) { return simd_test::log(v); };
  const auto y = each<double>(x, f);
  double worst = 0;
  for (size_t i = 0; i + 1 < x.size(); ++i)
    worst = std::max(worst, ulps(y[i], std::log(static_cast<long double>(x[i]))));
  EXPECT_LE(worst, 1.5);
  EXPECT_EQ(y.back(), 0);
  const double infinity = std::numeric_limits<double>::infinity();
  const auto edges = each<double>({0, -0.0, infinity, -1, -infinity, std::nan("")}, f);
  EXPECT_EQ(edges[0], -infinity);
  EXPECT_EQ(edges[1], -infinity);
  EXPECT_EQ(edges[2], infinity);
  for (size_t i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(edges[i])) << i;
}

template <class T>
void expect_same_conversions() {
  // Every 16-bit pattern widens as the scalar code does.
  for (uint32_t first = 0; first < 65536; first += kLanes) {
    T narrow[kLanes];
    float wide[kLanes];
    for (uint32_t i = 0; i < kLanes; ++i) narrow[i].bits = static_cast<uint16_t>(first + i);
    simd_test::store(wide, simd_test::load(narrow));
    for (int i = 0; i < kLanes; ++i) {
      const auto expected = static_cast<float>(narrow[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << narrow[i].bits;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << narrow[i].bits;
      }
    }
  }
  // Floats of every size narrow as it does: random bits, and the neighbourhood of every 16-bit value.
  std::mt19937 engine(1);
  std::vector<float> x;
  for (int i = 0; i < 200000; ++i) x.push_back(std::bit_cast<float>(static_cast<uint32_t>(engine())));
  for (uint32_t i = 0; i < 65536; i += 7) {
    T narrow;
    narrow.bits = static_cast<uint16_t>(i);
    const auto value = static_cast<float>(narrow);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (const uint32_t change : {0u, 1u, 0x800u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u})
      x.push_back(std::bit_cast<float>(bits ^ change));
  }
  x.resize(x.size() / kLanes * kLanes);
  for (size_t first = 0; first < x.size(); first += kLanes) {
    T narrow[kLanes];
    simd_test::store(narrow, simd_test::load(&x[first]));
    for (size_t i = 0; i < kLanes; ++i) ASSERT_EQ(narrow[i].bits, T(x[first + i]).bits) << x[first + i];
  }
}

TEST(SimdVector, HalfPrecisionConversionsAreThoseOfTheScalarTypes) {
  expect_same_conversions<BFloat16>();
  expect_same_conversions<Float16>();
}

TEST(SimdVector, FoldsInOneOrder) {
  // Numbers whose sum depends on the order.
  float x[kLanes];
  std::mt19937 engine(2);
  for (float& v : x) v = std::ldexp(static_cast<float>(engine()) / 3, static_cast<int>(engine() % 30) - 15);
  float lanes[kLanes];
  std::memcpy(lanes, x, sizeof x);
  for (int half = 8; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  EXPECT_EQ(simd_test::fold<simd_test::Sum>(simd_test::load(x)), lanes[0]);
  const F32 v = simd_test::load(x);
  const F32 four[4] = {v, v, v, v};
  float folded[4];
  simd_test::fold_four<simd_test::Sum>(four, folded);
  for (const float f : folded) EXPECT_EQ(f, lanes[0]);
}

TEST(SimdVector, PartialLoadsAndStores) {
  for (int64_t n = 0; n < kLanes; ++n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + 1;
    float all[kLanes];
    const F32 v = simd_test::load_some(x.data(), n, -5.0f);
    simd_test::store(all, v);
    for (int64_t i = 0; i < kLanes; ++i) EXPECT_EQ(all[i], i < n ? static_cast<float>(i) + 1 : -5);
    std::vector<float> y(static_cast<size_t>(n));
    simd_test::store_some(y.data(), n, v);
    EXPECT_EQ(x, y);
    EXPECT_EQ(simd_test::lane_bits(v == simd_test::splat(-5.0f)), 0xffffu & ~((1u << n) - 1));
  }
}

}  // namespace
}  // namespace lockstep
