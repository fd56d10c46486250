#include <gtest/gtest.h>

#include "gpu/gpu.h"
#include "gpu/ranks.h"

int main(int argc, char** argv) {
  if (const int status = lockstep::testing::run_as_rank(argc, argv); status >= 0) return status;
  ::testing::InitGoogleTest(&argc, argv);
  namespace config = lockstep::config;
  // The CPU is only what the GPU is compared with.
  config::threading::set_intra_op_parallelism_threads(4);
  if (const auto gpus = config::list_physical_devices("GPU"); !gpus.empty()) {
    config::set_visible_devices({gpus[0]}, "GPU");
    config::LogicalDeviceConfiguration share;
    share.memory_limit_mb = 4096;
    config::set_logical_device_configuration(gpus[0], std::vector(lockstep::testing::kLogicalGpus, share));
  }
  return RUN_ALL_TESTS();
}
