#include "keras/datasets/digit_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::keras::datasets {
namespace {

using ::testing::HasSubstr;

uint64_t fnv1a(std::span<const uint8_t> bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

std::span<const uint8_t> image(const DigitImages& digits, int64_t i) {
  return std::span(digits.images).subspan(i * kDigitPixels, kDigitPixels);
}

// These bytes are a promise: results that name this data set compare across versions and machines.
TEST(DigitGenerator, BytesAreFixed) {
  const DigitImages digits = generate_digits(42, 59'500, 1'000, 2);
  EXPECT_EQ(fnv1a(digits.labels, fnv1a(digits.images)), 0x2d55f4a549dba1f1);
}

TEST(DigitGenerator, AnExampleDependsOnSeedAndIndexAlone) {
  const DigitImages whole = generate_digits(3, 0, 100, 1);
  DigitImages pieces;
  for (const auto& [first, count] : {std::pair{0, 1}, {1, 36}, {37, 0}, {37, 63}}) {
    const DigitImages piece = generate_digits(3, first, count, 1);
    pieces.images.insert(pieces.images.end(), piece.images.begin(), piece.images.end());
    pieces.labels.insert(pieces.labels.end(), piece.labels.begin(), piece.labels.end());
  }
  EXPECT_EQ(whole.images, pieces.images);
  EXPECT_EQ(whole.labels, pieces.labels);
}

TEST(DigitGenerator, ThreadsDoNotChangeTheBytes) {
  const DigitImages one = generate_digits(3, 1'000, 333, 1);
  for (const int threads : {2, 3, 8}) {
    const DigitImages many = generate_digits(3, 1'000, 333, threads);
    EXPECT_EQ(one.images, many.images) << threads;
    EXPECT_EQ(one.labels, many.labels) << threads;
  }
}

TEST(DigitGenerator, SeedsAndExamplesDiffer) {
  std::set<uint64_t> hashes;
  for (const uint64_t seed : {0, 1, 2}) {
    const DigitImages digits = generate_digits(seed, 0, 1'000, 2);
    for (int64_t i = 0; i < 1'000; ++i) hashes.insert(fnv1a(image(digits, i)));
  }
  EXPECT_EQ(hashes.size(), 3'000u);
}

TEST(DigitGenerator, LabelsAreBalanced) {
  const DigitImages digits = generate_digits(1, 0, 10'000, 2);
  std::array<int, 10> counts{};
  for (const uint8_t label : digits.labels) ++counts.at(label);
  // Five standard deviations of a binomial count.
  for (int digit = 0; digit < 10; ++digit) EXPECT_NEAR(counts[digit], 1'000, 150) << digit;
}

TEST(DigitGenerator, ImagesHoldInkNearTheCentre) {
  const DigitImages digits = generate_digits(1, 0, 5'000, 2);
  double x_sum = 0, y_sum = 0;
  for (int64_t i = 0; i < 5'000; ++i) {
    const auto pixels = image(digits, i);
    int64_t mass = 0, x = 0, y = 0;
    for (int p = 0; p < kDigitPixels; ++p) {
      mass += pixels[p];
      x += int64_t{pixels[p]} * (p % kDigitSide);
      y += int64_t{pixels[p]} * (p / kDigitSide);
    }
    ASSERT_GE(*std::max_element(pixels.begin(), pixels.end()), 128) << i;
    ASSERT_GT(mass, 12 * 255) << i;
    ASSERT_LT(mass, 300 * 255) << i;
    ASSERT_NEAR(static_cast<double>(x) / mass, 13.5, 6.5) << i;
    ASSERT_NEAR(static_cast<double>(y) / mass, 13.5, 6.5) << i;
    x_sum += static_cast<double>(x) / mass;
    y_sum += static_cast<double>(y) / mass;
  }
  EXPECT_NEAR(x_sum / 5'000, 13.5, 0.5);
  EXPECT_NEAR(y_sum / 5'000, 13.5, 0.8);
}

// The classes' mean images must tell most examples apart, but far from all: neither noise nor stamps.
TEST(DigitGenerator, ClassesAreDistinctAndVaried) {
  const DigitImages train = generate_digits(1, 0, 5'000, 2);
  const DigitImages test = generate_digits(1, 60'000, 1'000, 2);
  std::array<std::array<double, kDigitPixels>, 10> means{};
  std::array<double, 10> counts{};
  for (int64_t i = 0; i < 5'000; ++i) {
    for (int p = 0; p < kDigitPixels; ++p) means[train.labels[i]][p] += image(train, i)[p];
    ++counts[train.labels[i]];
  }
  int right = 0;
  for (int64_t i = 0; i < 1'000; ++i) {
    std::array<double, 10> distance{};
    for (int digit = 0; digit < 10; ++digit)
      for (int p = 0; p < kDigitPixels; ++p) {
        const double d = image(test, i)[p] - means[digit][p] / counts[digit];
        distance[digit] += d * d;
      }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == test.labels[i];
  }
  EXPECT_GT(right, 550);
  EXPECT_LT(right, 900);
}

TEST(DigitGenerator, EmptyRange) {
  const DigitImages none = generate_digits(1, 5, 0, 2);
  EXPECT_TRUE(none.images.empty());
  EXPECT_TRUE(none.labels.empty());
}

TEST(DigitGenerator, RefusesBadArguments) {
  const auto message = [](int64_t first, int64_t count, int threads) -> std::string {
    try {
      generate_digits(1, first, count, threads);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.message();
    }
    return "no error";
  };
  EXPECT_THAT(message(-1, 1, 1), HasSubstr("first -1"));
  EXPECT_THAT(message(0, -2, 1), HasSubstr("count -2"));
  EXPECT_THAT(message(0, 1, 0), HasSubstr("threads must be at least 1, got 0"));
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(message(kMax, 1, 1), HasSubstr("more than can be counted"));
  EXPECT_THAT(message(0, kMax / 2, 1), HasSubstr("more than can be counted"));
}

}  // namespace
}  // namespace lockstep::keras::datasets
