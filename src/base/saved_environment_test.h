// Environment variables that a test does without, or sets, and that are as before when it has ended.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

class SavedEnvironment {
 public:
  // Not set from here on.
  explicit SavedEnvironment(const std::vector<const char*>& names) {
    for (const char* name : names) {
      const char* value = std::getenv(name);
      values_.emplace_back(name, value ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(name);
    }
  }
  ~SavedEnvironment() {
    for (const auto& [name, value] : values_) value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  }
  SavedEnvironment(const SavedEnvironment&) = delete;
  SavedEnvironment& operator=(const SavedEnvironment&) = delete;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> values_;
};

}  // namespace lockstep::testing
