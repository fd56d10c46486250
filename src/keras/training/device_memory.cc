#include "keras/training/device_memory.h"

#include <unistd.h>

#include "device/device_backend.h"

namespace lockstep::keras {

int64_t memory_of(const Device& device, std::span<const PhysicalGpu> gpus) {
  if (const int64_t limit = device.memory_info().limit; limit > 0) return limit;
  if (device.kind() != DeviceKind::gpu)
    return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  const auto physical = static_cast<size_t>(backend_of(device).physical());
  return physical < gpus.size() ? gpus[physical].memory : 0;
}

}  // namespace lockstep::keras
