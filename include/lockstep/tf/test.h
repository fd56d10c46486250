// tf::test: what this machine and this build can do.
#pragma once

#include <source_location>
#include <string>

#include "lockstep/device/config.h"

namespace lockstep::test {

// Whether a GPU can be used; config::require_gpus() says why not.
inline bool is_gpu_available(std::source_location where = std::source_location::current()) {
  return !config::list_physical_devices("GPU", where).empty();
}
// Whether the plugin for NVIDIA's GPUs was built and is found; the machine need not have one.
bool is_built_with_cuda();
// "/GPU:0", or nothing where there is none. Initialises the devices.
inline std::string gpu_device_name(std::source_location where = std::source_location::current()) {
  const auto gpus = config::list_logical_devices("GPU", where);
  return gpus.empty() ? std::string() : gpus[0].name;
}

}  // namespace lockstep::test
