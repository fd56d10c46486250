// Results of two trainings that must agree.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::testing {

// What a training gave.
struct Outcome {
  std::vector<double> losses;
  std::vector<std::vector<float>> weights;
};

// max|a - b| <= bound * max|a| for each tensor.
inline void expect_close(const Outcome& a, const Outcome& b, double bound) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i], b.losses[i], bound * std::abs(a.losses[i])) << "figure " << i;
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (size_t t = 0; t < a.weights.size(); ++t) {
    double scale = 0, worst = 0;
    for (size_t i = 0; i < a.weights[t].size(); ++i) {
      scale = std::max(scale, std::abs(static_cast<double>(a.weights[t][i])));
      worst = std::max(worst, std::abs(static_cast<double>(a.weights[t][i]) - b.weights[t][i]));
    }
    EXPECT_LE(worst, bound * scale) << "tensor " << t;
  }
}

}  // namespace lockstep::testing
