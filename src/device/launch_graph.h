// Launches that were recorded once and are repeated as one (Device::record).
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace lockstep {

struct RecordedLaunch {
  std::function<void(void* stream)> launch;
  std::vector<size_t> after;  // earlier ones that must have happened
};

// The memory that the launches read and write, and the kernels that made them, must be there as long as this is.
class LaunchGraph {
 public:
  virtual ~LaunchGraph() = default;
  // Queues all of them on the device's stream, or on another one of the device.
  virtual void launch() = 0;
  virtual void launch_on(void* stream) = 0;
};

}  // namespace lockstep
