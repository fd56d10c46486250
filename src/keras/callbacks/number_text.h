// Numbers as Python prints them, for texts that are compared with Keras'.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace lockstep::keras {

// The shortest digits that read back as the same number; 1 is "1.0". NaN has no sign.
inline std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

}  // namespace lockstep::keras
