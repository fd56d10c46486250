#include <gtest/gtest.h>

#include "gpu/gpu.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  using namespace lockstep;
  if (const auto gpus = config::list_physical_devices("GPU"); !gpus.empty()) {
    config::set_visible_devices({gpus[0]}, "GPU");
    config::set_logical_device_configuration(gpus[0], std::vector<config::LogicalDeviceConfiguration>(
                                                          testing::kLogicalGpus, {.memory_limit_mb = 4096}));
  }
  return RUN_ALL_TESTS();
}
