#include "ops/image/interpolation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {
namespace {

double triangle(double x) { return std::max(0.0, 1 - x); }

// Keys' cubic convolution with a = -1/2.
double cubic(double x) {
  if (x >= 2) return 0;
  return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2;
}

double lanczos(double x, double radius) {
  if (x > radius) return 0;
  if (x <= 1e-3) return 1;  // the quotient has no digits left there
  const double angle = std::numbers::pi * x;
  return radius * std::sin(angle) * std::sin(angle / radius) / (angle * angle);
}

// What a pixel at this distance from the place that is looked at counts.
double weight_at(Interpolation::Kind kind, double distance) {
  switch (kind) {
    case Interpolation::bicubic: return cubic(distance);
    case Interpolation::lanczos3: return lanczos(distance, 3);
    case Interpolation::lanczos5: return lanczos(distance, 5);
    default: return triangle(distance);
  }
}

}  // namespace

std::vector<double> interpolation_matrix(Interpolation interpolation, bool antialias, int64_t input,
                                         int64_t output) {
  const double step = static_cast<double>(input) / static_cast<double>(output);
  const double stretch = antialias ? std::max(step, 1.0) : 1;
  std::vector<double> matrix;
  matrix.reserve(static_cast<size_t>(input * output));
  for (int64_t row = 0; row < output; ++row) {
    const double begin = static_cast<double>(row) * step, end = begin + step;
    const double centre = begin + step / 2 - 0.5;
    double sum = 0;
    for (int64_t column = 0; column < input; ++column) {
      const auto at = static_cast<double>(column);
      const double weight = interpolation.kind() == Interpolation::area
                                ? std::max(0.0, std::min(end, at + 1) - std::max(begin, at))
                                : weight_at(interpolation.kind(), std::abs(centre - at) / stretch);
      matrix.push_back(weight);
      sum += weight;
    }
    // At the edge a part of the pixels lies outside: those inside count the more.
    std::for_each(matrix.end() - input, matrix.end(), [&](double& weight) { weight /= sum; });
  }
  return matrix;
}

}  // namespace lockstep
