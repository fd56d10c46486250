// What the library expects of a plugin that brings GPUs: Plugin::interface of PluginKind::device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device_backend.h"

namespace lockstep {

struct PhysicalGpu {
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-5bd3..."
  int64_t memory = 0;
  int capability_major = 0;
  int capability_minor = 0;
  int multiprocessors = 0;  // 0: not told, as the next one
  int clock_mhz = 0;        // the highest
};

struct GpuOptions {
  int64_t memory_limit = 0;  // bytes; 0: what the GPU has
  bool growth = true;        // false: all of it (or the limit) is taken at once
};

// Thread-safe.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;
  // The GPUs that the process may use, in the driver's order. Makes no context and takes no memory. Throws
  // Error(not_found) where there is neither a driver nor a GPU, and Error(device_mismatch) with the driver's
  // words where it cannot say.
  virtual std::vector<PhysicalGpu> gpus() const = 0;
  // The logical device /GPU:index on physical GPU `gpu`.
  virtual std::unique_ptr<DeviceBackend> make_device(int gpu, int index, const GpuOptions& options) const = 0;
};

// What is known of the machine's GPUs, asked of the plugin once.
struct Gpus {
  const GpuDriver* driver = nullptr;  // null: there is no plugin, or none that finds a GPU
  std::vector<PhysicalGpu> list;
  std::string reason;  // why there are none
};
const Gpus& machine_gpus();

}  // namespace lockstep
