// For tests: a device whose memory is the host's and that counts nothing. What a test is about, it overrides.
#pragma once

#include <cstdlib>
#include <cstring>
#include <source_location>

#include "lockstep/device/device.h"

namespace lockstep::testing {

class HostMemoryDevice : public Device {
 public:
  using Device::Device;

  void* allocate(size_t bytes, std::source_location) override {
    return std::aligned_alloc(64, (bytes + 64) / 64 * 64);
  }
  void deallocate(void* data, size_t) noexcept override { std::free(data); }
  void copy_from_host(void* target, const void* source, size_t bytes) override {
    if (bytes) std::memcpy(target, source, bytes);
  }
  void copy_to_host(void* target, const void* source, size_t bytes) const override {
    if (bytes) std::memcpy(target, source, bytes);
  }
  MemoryInfo memory_info() const override { return {}; }
  void reset_peak_memory() override {}
  void set_memory_limit(int64_t) override {}
  DeviceCounters counters() const override { return {}; }
  void reset_counters() override {}
  void count_kernels(int64_t, int64_t) override {}
  void count_copy(int64_t, int64_t) override {}
};

}  // namespace lockstep::testing
