#include "base/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/philox.h"

namespace lockstep {
namespace {

uint64_t key(uint64_t seed) {
  const auto block = Philox::block(seed, 1, 0);
  return uint64_t{block[1]} << 32 | block[0];
}

std::vector<int64_t> order(uint64_t seed, int64_t count) {
  const TabledPermutation permutation(key(seed), count);
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = permutation(static_cast<int64_t>(i));
  return numbers;
}

TEST(Permutation, HasEveryNumberOnce) {
  std::vector<int64_t> counts = {9999, 10000, 10001, 60000, 65536, 65537};
  for (int64_t count = 1; count < 200; ++count) counts.push_back(count);
  for (const int64_t count : counts) {
    std::vector<int64_t> sorted = order(7, count);
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all) << count;
  }
}

TEST(Permutation, IsTheSameWithATable) {
  for (const int64_t count : {1, 2, 3, 77, 5000}) {
    const Permutation plain(key(5), count);
    const std::vector<int64_t> tabled = order(5, count);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(plain(i), tabled[static_cast<size_t>(i)]) << count;
    EXPECT_EQ(Permutation(0, count).with_key(key(5))(count - 1), plain(count - 1));
  }
}

TEST(Permutation, TakesCountsOfMoreThan32Bits) {
  constexpr int64_t kCount = (int64_t{1} << 62) + 12345;
  const Permutation permutation(key(1), kCount);
  double mean = 0;
  std::vector<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) {
    seen.push_back(permutation(kCount - 1 - i));
    ASSERT_GE(seen.back(), 0);
    ASSERT_LT(seen.back(), kCount);
    mean += static_cast<double>(seen.back()) / static_cast<double>(kCount) / 1000;
  }
  EXPECT_NEAR(mean, 0.5, 0.05);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

TEST(Permutation, IsTheSameForeverForAKey) {
  const auto first = [](int64_t count, int64_t places) {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < places; ++i) numbers.push_back(Permutation(0x123456789abcdef0, count)(i));
    return numbers;
  };
  EXPECT_EQ(first(10, 10), (std::vector<int64_t>{6, 0, 4, 8, 3, 5, 7, 2, 1, 9}));
  EXPECT_EQ(first(60000, 6), (std::vector<int64_t>{15937, 24353, 4580, 49024, 8074, 34655}));
}

// All orders of a few numbers are equally likely: chi-squared of 24 (120) classes.
TEST(Permutation, HasNoFavouriteAmongTheOrders) {
  for (const int64_t count : {3, 4, 5}) {
    std::vector<int64_t> numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    std::vector<std::vector<int64_t>> all;
    do all.push_back(numbers);
    while (std::next_permutation(numbers.begin(), numbers.end()));
    std::vector<double> seen(all.size(), 0);
    const auto classes = static_cast<double>(all.size()), expected = 100.0;
    for (uint64_t seed = 0; seed < static_cast<uint64_t>(classes * expected); ++seed)
      ++seen[static_cast<size_t>(std::find(all.begin(), all.end(), order(seed, count)) - all.begin())];
    double chi = 0;
    for (const double n : seen) chi += (n - expected) * (n - expected) / expected;
    // Its mean is classes - 1, its variance twice that: five standard deviations above.
    EXPECT_LT(chi, classes - 1 + 5 * std::sqrt(2 * (classes - 1))) << count;
  }
}

// Neighbours do not stay neighbours, and no place has favourites.
TEST(Permutation, SpreadsPlacesAndNeighbours) {
  constexpr int64_t kCount = 100, kSeeds = 4000;
  std::vector<double> places(kCount * kCount), steps(kCount);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::vector<int64_t> numbers = order(seed, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      ++places[static_cast<size_t>(i * kCount + numbers[static_cast<size_t>(i)])];
      const int64_t next = numbers[static_cast<size_t>((i + 1) % kCount)];
      ++steps[static_cast<size_t>((next - numbers[static_cast<size_t>(i)] + kCount) % kCount)];
    }
  }
  const auto chi = [](const std::vector<double>& seen, double expected) {
    double sum = 0;
    for (const double n : seen) sum += (n - expected) * (n - expected) / expected;
    return sum;
  };
  EXPECT_LT(chi(places, kSeeds / double{kCount}), 9801 + 5 * std::sqrt(2 * 9801));
  EXPECT_EQ(steps[0], 0);
  steps.erase(steps.begin());
  EXPECT_LT(chi(steps, kSeeds * double{kCount} / (kCount - 1)), 98 + 5 * std::sqrt(2 * 98));
}

}  // namespace
}  // namespace lockstep
