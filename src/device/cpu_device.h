// A logical CPU device: a share of the machine's cores and memory.
#pragma once

#include <array>
#include <mutex>
#include <vector>

#include "device/device_backend.h"
#include "device/host_stream.h"

namespace lockstep {

// Memory of CPU devices as the system gave it: blocks of kLargeHostBlock bytes and more, which live for long,
// since devices keep what is freed. GPUs may pin them.
inline constexpr size_t kLargeHostBlock = size_t{256} << 10;
struct HostBlock {
  void* data = nullptr;  // null: none
  size_t bytes = 0;
};
// The block in which these bytes lie.
HostBlock find_host_block(const void* data, size_t bytes);
// `leaving` is told of every such block before it goes back to the system.
void watch_host_blocks(void (*leaving)(const HostBlock& block));

// Cores this process may run on (its affinity mask, not the machine's total).
int available_cores();

// Thread-safe. Freed blocks are kept by size class, because fresh pages cost far more than the
// kernels that first touch them.
class CpuDevice final : public DeviceBackend {
 public:
  CpuDevice(int index, int threads);
  ~CpuDevice() override;

  void* allocate(size_t bytes, std::source_location where) override;
  void deallocate(void* data, size_t bytes) noexcept override;
  MemoryInfo memory_info() const override;
  void reset_peak_memory() override;
  void set_memory_limit(int64_t bytes) override;

  void copy_from_host(void* target, const void* source, size_t bytes) override;
  void copy_to_host(void* target, const void* source, size_t bytes) override;
  void copy_from_device(void* target, DeviceBackend& from, const void* source, size_t bytes) override;

  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<HostStream>(*this); }
  std::unique_ptr<Event> new_event(Event::Timed timed) override { return std::make_unique<HostEvent>(timed); }

 private:
  static constexpr int kClasses = 256;

  void release_cached();

  mutable std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
  int64_t cached_ = 0;
  MemoryInfo memory_;
  HostStream stream_{*this};
};

}  // namespace lockstep
