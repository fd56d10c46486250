// A logical CPU device: a share of the machine's cores and memory.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "lockstep/device/device.h"

namespace lockstep {

// Cores this process may run on (its affinity mask, not the machine's total).
int available_cores();

// Thread-safe. Freed blocks are kept by size class, because fresh pages cost far more than the
// kernels that first touch them.
class CpuDevice final : public Device {
 public:
  CpuDevice(int index, int threads);
  ~CpuDevice() override;

  void* allocate(size_t bytes, std::source_location where) override;
  void deallocate(void* data, size_t bytes) noexcept override;
  void copy_from_host(void* target, const void* source, size_t bytes) override;
  void copy_to_host(void* target, const void* source, size_t bytes) const override;

  MemoryInfo memory_info() const override;
  void reset_peak_memory() override;
  void set_memory_limit(int64_t bytes) override;

  DeviceCounters counters() const override;
  void reset_counters() override;
  void count_kernels(int64_t kernels, int64_t flops) override;
  void count_copy(int64_t bytes_in, int64_t bytes_out) override;

 private:
  static constexpr int kClasses = 256;

  void release_cached();

  mutable std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
  int64_t cached_ = 0;
  MemoryInfo memory_;

  std::atomic<int64_t> kernels_{0};
  std::atomic<int64_t> flops_{0};
  std::atomic<int64_t> bytes_in_{0};
  std::atomic<int64_t> bytes_out_{0};
};

}  // namespace lockstep
