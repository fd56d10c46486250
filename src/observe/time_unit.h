// Times in the unit that people would use: "12 ms", "13 s".
#pragma once

#include <fmt/format.h>

#include <string>

namespace lockstep::observe {

// One unit for all times of a message, which are compared with each other: that of the one it is about.
class TimeUnit {
 public:
  explicit TimeUnit(double ms)
      : ms_(ms < 1e3       ? 1
            : ms < 600e3   ? 1e3
            : ms < 36000e3 ? 60e3
                           : 3600e3),
        name_(ms < 1e3       ? "ms"
              : ms < 600e3   ? "s"
              : ms < 36000e3 ? "min"
                             : "h") {}
  const char* name() const { return name_; }
  // The number, without the unit.
  std::string operator()(double ms) const {
    const double value = ms / ms_;
    return value < 1e3 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
  }

 private:
  double ms_;
  const char* name_;
};

}  // namespace lockstep::observe
