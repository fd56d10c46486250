// For tests: a device whose memory is the host's. What a test is about, it overrides.
#pragma once

#include <cstdlib>
#include <cstring>
#include <source_location>

#include "device/device_backend.h"
#include "device/host_stream.h"

namespace lockstep::testing {

class HostMemoryDevice : public DeviceBackend {
 public:
  HostMemoryDevice(DeviceKind kind, int index, int threads) : DeviceBackend(kind, index, threads) {}

  void* allocate(size_t bytes, std::source_location) override {
    return std::aligned_alloc(64, (bytes + 64) / 64 * 64);
  }
  void deallocate(void* data, size_t) noexcept override { std::free(data); }
  void copy_from_host(void* target, const void* source, size_t bytes) override {
    if (bytes) std::memcpy(target, source, bytes);
  }
  void copy_to_host(void* target, const void* source, size_t bytes) override {
    if (bytes) std::memcpy(target, source, bytes);
  }
  void copy_from_device(void* target, DeviceBackend&, const void* source, size_t bytes) override {
    if (bytes) std::memcpy(target, source, bytes);
  }
  MemoryInfo memory_info() const override { return {}; }
  void reset_peak_memory() override {}
  void set_memory_limit(int64_t) override {}
  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<HostStream>(*this); }
  std::unique_ptr<Event> new_event(Event::Timed timed) override { return std::make_unique<HostEvent>(timed); }

 private:
  HostStream stream_{*this};
};

}  // namespace lockstep::testing
