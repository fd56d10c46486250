// A logical GPU: a stream and a share of one card's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/caching_allocator.h"
#include "device/gpu_driver.h"
#include "device/side_stream.h"

namespace lockstep::cuda {

// Thread-safe. All work is queued on one stream, in the order of the calls. Memory that is given back may be used
// again at once: whoever gets it queues behind whoever had it. What the host sends ahead has a stream of its own and
// blocks of its own: each is written when those who read what it held before are done, and the first stream waits for
// the copy.
class CudaDevice final : public Device, public HasSideStreams, private SegmentSource {
 public:
  CudaDevice(int ordinal, int index, const PhysicalGpu& card, const GpuOptions& options);
  ~CudaDevice() override;

  int physical() const override { return ordinal_; }
  bool reads(const Device& other) const override;

  void* allocate(size_t bytes, std::source_location where) override;
  void deallocate(void* data, size_t bytes) noexcept override;
  void* allocate_ahead(size_t bytes, std::source_location where) override;
  void copy_from_host(void* target, const void* source, size_t bytes) override;
  void copy_to_host(void* target, const void* source, size_t bytes) const override;
  void copy_within(void* target, const void* source, size_t bytes) override;
  void copy_from_device(void* target, Device& from, const void* source, size_t bytes) override;
  void fill(void* target, const void* pattern, size_t width, size_t count) override;

  void* stream() const override;
  void synchronize() const override;
  void wait_for(const Device& other) override;
  std::unique_ptr<LaunchGraph> record(std::span<const RecordedLaunch> launches) override;
  std::unique_ptr<SideStream> side_stream() const override;
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

  // A block of allocate_ahead().
  struct Ahead {
    size_t bytes = 0;
    int64_t mark = 0;    // behind the last who read it
    bool fresh = false;  // nothing was written yet
  };
  static constexpr size_t kAheadKept = 16;

  void* take(size_t bytes) override;
  void give_back(void* segment, size_t bytes) noexcept override;
  [[noreturn]] void fail_out_of_memory(size_t bytes, std::source_location where);
  static char* slot(Staging& staging, size_t& index);
  void copy_pieces(void* target, const void* source, size_t bytes, Staging& staging, cudaStream_t stream);
  void* try_allocate(size_t bytes);
  void count_memory();

  const int ordinal_;
  const std::string uuid_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t aside_ = nullptr;  // where launches are recorded
  std::mutex aside_mutex_;
  cudaStream_t ahead_stream_ = nullptr;
  mutable Staging staging_;
  Staging ahead_staging_;
  cudaEvent_t ahead_copied_ = nullptr;
  mutable std::mutex marker_mutex_;
  cudaEvent_t marker_ = nullptr;
  // Marks take turns: one that was overwritten is waited for by waiting for a later one.
  std::array<cudaEvent_t, 64> marks_{};
  std::atomic<int64_t> next_mark_{0};

  mutable std::mutex memory_mutex_;
  CachingAllocator allocator_{*this};
  MemoryInfo memory_;
  std::unordered_map<void*, Ahead> ahead_;
  std::vector<std::pair<void*, Ahead>> ahead_kept_;  // for the next ones; those given back last come last

  std::atomic<int64_t> kernels_{0}, flops_{0}, bytes_in_{0}, bytes_out_{0};
};

}  // namespace lockstep::cuda
