// The values that a number among the settings may have. They stand beside its name, in the `visit` of its
// settings (keras/fields.h), so that they hold for programs and files alike.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/keras/layers/one_or_many.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::keras {

// NaN and infinities are in no range but kAnything.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // low itself is not in it
  bool below_high = false;  // nor is high
  bool finite = true;

  bool contains(double value) const {
    if (!finite) return true;
    return std::isfinite(value) && (above_low ? value > low : value >= low) &&
           (below_high ? value < high : value <= high);
  }
};

// As in "must be ...": "positive", "at least 2", "from 0 to 1".
std::ostream& operator<<(std::ostream& out, const Range& range);

constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range at_most(double high) { return {.high = high}; }

inline constexpr Range kAnything{.finite = false};
inline constexpr Range kFinite{};
inline constexpr Range kPositive{.low = 0, .above_low = true};
inline constexpr Range kNotNegative{.low = 0};
inline constexpr Range kShare{.low = 0, .high = 1};
inline constexpr Range kBelowOne{.low = 0, .high = 1, .below_high = true};

// Calls `f` with every number that a setting holds.
template <class T>
concept Number = std::is_arithmetic_v<T> && !std::same_as<T, bool>;
template <Number T>
void each_number(const T& value, auto&& f) {
  f(value);
}
inline void each_number(const Dims& values, auto&& f) {
  for (const int64_t value : values) f(value);
}
template <Number T>
void each_number(const layers::OneOrMany<T>& values, auto&& f) {
  for (const T& value : values.values()) f(value);
}
template <Number T>
void each_number(const std::vector<T>& values, auto&& f) {
  for (const T& value : values) f(value);
}
template <class T>
requires requires(const T& value) {
  each_number(value, [](auto) {});
}
void each_number(const std::optional<T>& value, auto&& f) {
  if (value) each_number(*value, f);
}

// Settings that are numbers, or lists of them. Shapes are none: -1 is a size that they do not say.
template <class T>
concept HoldsNumbers = !std::same_as<T, Shape> && requires(const T& value) {
  each_number(value, [](auto) {});
};

// Throws Error(invalid_argument) where a number is out of its range, naming the owner, the setting and both.
template <HoldsNumbers T>
void require_in(const Range& range, const std::string& owner, const char* name, const T& value) {
  each_number(value, [&](auto number) {
    require(range.contains(static_cast<double>(number)), ErrorCode::invalid_argument,
            std::source_location::current(), owner, ": ", name, " must be ", range, ", received ", number);
  });
}

}  // namespace lockstep::keras
