// Eight logical CPU devices of one thread each, for the whole test program.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/device/device.h"

namespace lockstep::testing {

// Before anything uses a device.
class EightCpus : public ::testing::Environment {
 public:
  void SetUp() override { set_logical_cpus({.count = 8, .threads = 1}); }
};
inline const auto* const eight_cpus = ::testing::AddGlobalTestEnvironment(new EightCpus);

// "/CPU:0", ...
inline std::vector<std::string> names(int count) {
  std::vector<std::string> list;
  for (int i = 0; i < count; ++i) list.push_back("/CPU:" + std::to_string(i));
  return list;
}

}  // namespace lockstep::testing
