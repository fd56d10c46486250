// What the tests of code that is written for GPUs share. They run wherever the CUDA toolkit was found; where
// it was not they skip themselves.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/saved_environment_test.h"
#include "device/plugin.h"
#include "gpu_sources/driver.h"
#include "lockstep/device/device.h"

namespace lockstep::testing {

class GpuSources : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(LOCKSTEP_SOURCES_PLUGIN).empty())
      GTEST_SKIP() << "the CUDA toolkit, whose compiler is needed, was not found when this was configured";
    const auto& all = plugin_statuses();
    const auto cuda = std::find_if(all.begin(), all.end(), [](const auto& s) { return s.name == "cuda"; });
    ASSERT_TRUE(cuda->loaded && cuda->path.starts_with(LOCKSTEP_SOURCES_PLUGIN)) << cuda->reason;
  }
  static const SourcesDriver& driver() {
    return *static_cast<const SourcesDriver*>(static_cast<const GpuDriver*>(find_plugin("cuda")->interface));
  }
  static int launches_of(const std::string& kernel) {
    const auto& all = driver().made().launches;
    const auto found = all.find(kernel);
    return found == all.end() ? 0 : found->second;
  }
  static Device& gpu() { return device_by_name("/GPU:0"); }

 private:
  const SavedEnvironment environment_{{"LOCKSTEP_WHOLE_STEP_FUSION", "LOCKSTEP_GROUP_LAUNCHES"}};
};

}  // namespace lockstep::testing
