// A logical GPU: a stream and a share of one GPU's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/stream.h"
#include "device/async_host_copies.h"
#include "device/caching_allocator.h"
#include "device/gpu_driver.h"

namespace lockstep::cuda {

// Thread-safe. All work is queued on the compute stream, in the order of the calls, unless somebody names
// another. Memory that is given back may be used again at once: whoever gets it queues behind whoever had it.
// Host-to-device prefetch has a copy stream and blocks of its own: each is written when those who read what
// it held before are done, and the compute stream waits for the copy.
class CudaDevice final : public DeviceBackend, public AsyncHostCopies, private SegmentSource {
 public:
  CudaDevice(int ordinal, int index, const PhysicalGpu& gpu, const GpuOptions& options);
  ~CudaDevice() override;

  int physical() const override { return ordinal_; }
  bool reads(const DeviceBackend& other) const override;

  void* allocate(size_t bytes, std::source_location where) override;
  void deallocate(void* data, size_t bytes) noexcept override;
  void* allocate_for_prefetch(size_t bytes, std::source_location where) override;
  MemoryInfo memory_info() const override;
  void reset_peak_memory() override;
  void set_memory_limit(int64_t bytes) override;

  void copy_from_host(void* target, const void* source, size_t bytes) override;
  bool copy_async(void* target, std::span<const Piece> pieces, const Event& after, Event& copied) override;
  void copy_to_host(void* target, const void* source, size_t bytes) override;
  void copy_from_device(void* target, DeviceBackend& from, const void* source, size_t bytes) override;

  CudaStream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> new_stream() override;
  std::unique_ptr<Event> new_event(Event::Timed timed) override { return make_event(*this, timed); }
  void bind_thread() const override;
  bool captures_graphs() const override { return true; }
  std::unique_ptr<CapturedGraph> capture_graph(std::span<const CapturedLaunch> launches) override;
  AsyncHostCopies* async_host_copies() override { return this; }

 private:
  // Pinned memory through which the host's bytes go, so that a copy neither waits for the stream nor for the
  // bus.
  struct Staging {
    static constexpr size_t kSlots = 16;
    static constexpr size_t kSlotBytes = size_t{1} << 20;
    std::mutex mutex;
    char* data = nullptr;
    std::array<cudaEvent_t, kSlots> free{};  // when the slot's last copy has happened
    size_t next = 0;
  };

  // A block of allocate_for_prefetch().
  struct PrefetchBlock {
    size_t bytes = 0;
    int64_t mark = 0;    // behind the last who read it
    bool fresh = false;  // nothing was written yet
  };
  static constexpr size_t kPrefetchBlocksKept = 16;

  void* take(size_t bytes) override;
  void give_back(void* segment, size_t bytes) noexcept override;
  [[noreturn]] void fail_out_of_memory(size_t bytes, std::source_location where);
  static char* slot(Staging& staging, size_t& index);
  void copy_pieces(void* target, const void* source, size_t bytes, Staging& staging, cudaStream_t stream);
  void* try_allocate(size_t bytes);
  void count_memory();
  int64_t mark();

  const int ordinal_;
  const std::string uuid_;
  // Where graphs are captured: what other threads queue meanwhile is not part of them.
  std::mutex capture_mutex_;
  CudaStream capture_stream_{*this};
  CudaStream stream_{*this, CudaStream::Priority::normal, &capture_stream_};
  CudaStream copy_stream_{*this};
  Staging staging_;
  Staging copy_staging_;
  cudaEvent_t prefetch_copied_ = nullptr;
  // Places in the order of the compute stream, behind those who read a block. They take turns: one that was
  // overwritten is waited for by waiting for a later one.
  std::array<cudaEvent_t, 64> marks_{};
  std::atomic<int64_t> next_mark_{0};

  mutable std::mutex memory_mutex_;
  CachingAllocator allocator_{*this};
  MemoryInfo memory_;
  std::unordered_map<void*, PrefetchBlock> prefetch_blocks_;
  // For the next ones; those given back last come last.
  std::vector<std::pair<void*, PrefetchBlock>> prefetch_kept_;
};

}  // namespace lockstep::cuda
