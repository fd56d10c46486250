// What the GPU tests share. They run on the first GPU, split into four logical ones; where there is none they
// skip themselves, with all that is known of why.
#pragma once

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/device/config.h"
#include "lockstep/device/device.h"

namespace lockstep::testing {

inline constexpr int kLogicalGpus = 4;

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      config::require_gpus(1);
    } catch (const Error& error) {
      GTEST_SKIP() << error.message();
    }
  }
  static Device& gpu(int index = 0) { return device_by_name("/GPU:" + std::to_string(index)); }
  static Device& cpu() { return device_by_name("/CPU:0"); }
};

}  // namespace lockstep::testing
