// A logical GPU: a stream and a share of one card's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <mutex>

#include "device/caching_allocator.h"
#include "device/gpu_driver.h"

namespace lockstep::cuda {

// Thread-safe. All work is queued on one stream, in the order of the calls. Memory that is given back may be used
// again at once: whoever gets it queues behind whoever had it.
class CudaDevice final : public Device, private SegmentSource {
 public:
  CudaDevice(int ordinal, int index, const GpuOptions& options);
  ~CudaDevice() override;

  void* allocate(size_t bytes, std::source_location where) override;
  void deallocate(void* data, size_t bytes) noexcept override;
  void copy_from_host(void* target, const void* source, size_t bytes) override;
  void copy_to_host(void* target, const void* source, size_t bytes) const override;
  void copy_within(void* target, const void* source, size_t bytes) override;
  void copy_from_device(void* target, Device& from, const void* source, size_t bytes) override;
  void fill(void* target, const void* pattern, size_t width, size_t count) override;

  void* stream() const override;
  void synchronize() const override;
  void wait_for(const Device& other) override;
  std::unique_ptr<LaunchGraph> record(std::span<const RecordedLaunch> launches) override;
  int64_t mark() override;
  void wait_until(int64_t mark) const override;

  MemoryInfo memory_info() const override;
  void reset_peak_memory() override;
  void set_memory_limit(int64_t bytes) override;

  DeviceCounters counters() const override;
  void reset_counters() override;
  void count_kernels(int64_t kernels, int64_t flops) override;
  void count_copy(int64_t bytes_in, int64_t bytes_out) override;

 private:
  // Pinned memory through which the host's bytes go, so that a copy neither waits for the stream nor for the bus.
  struct Staging {
    static constexpr size_t kSlots = 16;
    static constexpr size_t kSlotBytes = size_t{1} << 20;
    std::mutex mutex;
    char* data = nullptr;
    std::array<cudaEvent_t, kSlots> free{};  // when the slot's last copy has happened
    size_t next = 0;
  };

  void* take(size_t bytes) override;
  void give_back(void* segment, size_t bytes) noexcept override;
  [[noreturn]] void fail_out_of_memory(size_t bytes, std::source_location where);
  char* slot(size_t& index) const;

  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t aside_ = nullptr;  // where launches are recorded
  std::mutex aside_mutex_;
  mutable Staging staging_;
  mutable std::mutex marker_mutex_;
  cudaEvent_t marker_ = nullptr;
  // Marks take turns: one that was overwritten is waited for by waiting for a later one.
  std::array<cudaEvent_t, 64> marks_{};
  std::atomic<int64_t> next_mark_{0};

  mutable std::mutex memory_mutex_;
  CachingAllocator allocator_{*this};
  MemoryInfo memory_;

  std::atomic<int64_t> kernels_{0}, flops_{0}, bytes_in_{0}, bytes_out_{0};
};

}  // namespace lockstep::cuda
