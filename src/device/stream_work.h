// Moving a few bytes in the order of a stream: for kernels that look at values around the kernels they launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "lockstep/device/device.h"

namespace lockstep {

// Thread-safe. `stream` is what LaunchArgs say; CPUs have none, and do all of it at once.
class StreamWork {
 public:
  virtual ~StreamWork() = default;
  virtual void copy(void* target, const void* source, size_t bytes, void* stream) const = 0;
  // `count` times the lowest `width` bytes of `pattern`; 1, 2, 4 or 8.
  virtual void fill(void* target, uint64_t pattern, size_t width, size_t count, void* stream) const = 0;
  // Waits for the stream.
  virtual void read(void* host, const void* source, size_t bytes, void* stream) const = 0;
  // Calls `launch`, waits for what it queued, and gives the nanoseconds which that took on the device.
  virtual int64_t timed(const std::function<void()>& launch, void* stream) const = 0;
};

const StreamWork& stream_work(DeviceKind kind);

}  // namespace lockstep
