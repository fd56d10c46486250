#include "observe/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace lockstep::observe {
namespace {

TEST(Histogram, IsZeroWhenEmpty) {
  const Distribution d = Histogram().distribution();
  EXPECT_EQ(d.count, 0);
  EXPECT_EQ(d.mean, 0);
  EXPECT_EQ(d.median, 0);
  EXPECT_EQ(d.max, 0);
}

TEST(Histogram, IsExactForSmallAndForEqualValues) {
  Histogram small;
  for (int64_t v = 1; v <= 63; ++v) small.add(v);
  EXPECT_EQ(small.quantile(0.5), 32);
  EXPECT_EQ(small.quantile(1.0), 63);
  EXPECT_EQ(small.quantile(0.0), 1);

  Histogram equal;
  for (int i = 0; i < 5; ++i) equal.add(123'456'789);
  const Distribution d = equal.distribution();
  EXPECT_EQ(d.median, 123'456'789);
  EXPECT_EQ(d.p95, 123'456'789);
  EXPECT_EQ(d.p10, 123'456'789);
  EXPECT_EQ(d.max, 123'456'789);
  EXPECT_EQ(d.mean, 123'456'789);
  EXPECT_EQ(d.total, 5 * int64_t{123'456'789});
}

TEST(Histogram, QuantilesAreWithinOneSixtyFourth) {
  std::mt19937_64 random(7);
  std::vector<int64_t> values;
  Histogram histogram;
  for (int i = 0; i < 20'000; ++i) {
    const double exponent = std::uniform_real_distribution<>(0, 40)(random);
    values.push_back(static_cast<int64_t>(std::exp2(exponent)));
    histogram.add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double q : {0.001, 0.1, 0.25, 0.5, 0.75, 0.95, 0.999, 1.0}) {
    const double exact = static_cast<double>(values[static_cast<size_t>(std::ceil(q * 20'000)) - 1]);
    EXPECT_LE(std::abs(histogram.quantile(q) - exact), exact / 64) << q;
  }
}

TEST(Histogram, NoValueIsFurtherThanThatFromItsBucketsMiddle) {
  for (int64_t value = 64; value < (int64_t{1} << 40); value += value / 61 + 1) {
    Histogram histogram;  // the neighbours keep the answer from being cut to the value itself
    histogram.add(1);
    histogram.add(value);
    histogram.add(int64_t{1} << 41);
    ASSERT_LE(std::abs(histogram.quantile(0.5) - static_cast<double>(value)), static_cast<double>(value) / 64)
        << value;
  }
}

TEST(Histogram, TakesAnyValue) {
  Histogram histogram;
  histogram.add(-5);
  histogram.add(INT64_MAX);
  const Distribution d = histogram.distribution();
  EXPECT_EQ(d.count, 2);
  EXPECT_EQ(d.median, 0);
  EXPECT_EQ(d.max, INT64_MAX);
  EXPECT_GT(d.p95, 1e12);
}

}  // namespace
}  // namespace lockstep::observe
