#include "device/cpu_device.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

struct SizeClass {
  int index;
  size_t bytes;
};

// Four classes to a power of two: at most a quarter of a block is lost to rounding.
SizeClass size_class(size_t bytes) {
  if (bytes <= kAlignment) return {0, kAlignment};
  const int exponent = std::bit_width(bytes - 1) - 1;
  const size_t quarter = (size_t{1} << exponent) / 4;
  const size_t steps = (bytes - (size_t{1} << exponent) + quarter - 1) / quarter;
  return {exponent * 4 + static_cast<int>(steps), (size_t{1} << exponent) + steps * quarter};
}

struct LargeBlocks {
  std::mutex mutex;
  std::map<void*, size_t> bytes_of;
  void (*watcher)(const HostBlock&) = nullptr;
};
// Never destroyed, as devices give their blocks back when the process ends.
LargeBlocks& large_blocks() {
  static auto* blocks = new LargeBlocks;
  return *blocks;
}

// Null where the system has no more. Large blocks are of huge pages where the system has them: far
// fewer page faults and misses in the translation caches.
void* system_block(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* block = std::aligned_alloc(alignment, rounded);
  if (block && alignment == kHugePage) madvise(block, rounded, MADV_HUGEPAGE);
  if (block && bytes >= kLargeHostBlock) {
    LargeBlocks& large = large_blocks();
    const std::lock_guard lock(large.mutex);
    large.bytes_of[block] = bytes;
  }
  return block;
}

void return_block(void* block) noexcept {
  LargeBlocks& large = large_blocks();
  HostBlock leaving;
  void (*watcher)(const HostBlock&) = nullptr;
  {
    const std::lock_guard lock(large.mutex);
    if (const auto found = large.bytes_of.find(block); found != large.bytes_of.end()) {
      leaving = {block, found->second};
      large.bytes_of.erase(found);
      watcher = large.watcher;
    }
  }
  if (watcher) watcher(leaving);
  std::free(block);
}

}  // namespace

HostBlock find_host_block(const void* data, size_t bytes) {
  LargeBlocks& large = large_blocks();
  const std::lock_guard lock(large.mutex);
  auto behind = large.bytes_of.upper_bound(const_cast<void*>(data));
  if (behind == large.bytes_of.begin()) return {};
  const auto [block, size] = *--behind;
  const auto offset = static_cast<size_t>(static_cast<const char*>(data) - static_cast<const char*>(block));
  return offset < size && bytes <= size - offset ? HostBlock{block, size} : HostBlock{};
}

void watch_host_blocks(void (*leaving)(const HostBlock& block)) {
  LargeBlocks& large = large_blocks();
  const std::lock_guard lock(large.mutex);
  large.watcher = leaving;
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

CpuDevice::CpuDevice(int index, int threads) : DeviceBackend(DeviceKind::cpu, index, threads) {}

CpuDevice::~CpuDevice() { release_cached(); }

void CpuDevice::release_cached() {
  for (auto& list : free_) {
    for (void* block : list) return_block(block);
    list.clear();
  }
  cached_ = 0;
}

void* CpuDevice::allocate(size_t bytes, std::source_location where) {
  // Rounding up must not wrap around: no machine has half of the address space.
  require(bytes <= PTRDIFF_MAX / 2, ErrorCode::out_of_memory, where, "out of memory on ", name(), ": ", bytes,
          " bytes were asked for, more than any machine has");
  const SizeClass size = size_class(bytes);
  const std::lock_guard lock(mutex_);
  if (memory_.limit > 0 && memory_.current + static_cast<int64_t>(size.bytes) > memory_.limit)
    fail(ErrorCode::out_of_memory, where, "out of memory on ", name(), ": ", bytes, " bytes were asked for, ",
         memory_.current, " of the limit of ", memory_.limit,
         " bytes are held; raise the limit or use a smaller batch");
  void* block = nullptr;
  auto& list = free_[static_cast<size_t>(size.index)];
  if (!list.empty()) {
    block = list.back();
    list.pop_back();
    cached_ -= static_cast<int64_t>(size.bytes);
  } else {
    block = system_block(size.bytes);
    if (!block && cached_ > 0) {
      release_cached();
      block = system_block(size.bytes);
    }
    require(block != nullptr, ErrorCode::out_of_memory, where, "out of memory on ", name(),
            ": the system refused ", bytes, " bytes; ", memory_.current,
            " bytes are held by live tensors; use a smaller batch or model");
  }
  memory_.current += static_cast<int64_t>(size.bytes);
  memory_.peak = std::max(memory_.peak, memory_.current);
  return block;
}

void CpuDevice::deallocate(void* data, size_t bytes) noexcept {
  if (!data) return;
  const SizeClass size = size_class(bytes);
  const std::lock_guard lock(mutex_);
  memory_.current -= static_cast<int64_t>(size.bytes);
  try {
    free_[static_cast<size_t>(size.index)].push_back(data);
    cached_ += static_cast<int64_t>(size.bytes);
  } catch (...) {
    return_block(data);
  }
}

MemoryInfo CpuDevice::memory_info() const {
  const std::lock_guard lock(mutex_);
  return memory_;
}

void CpuDevice::reset_peak_memory() {
  const std::lock_guard lock(mutex_);
  memory_.peak = memory_.current;
}

void CpuDevice::set_memory_limit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  require(bytes == 0 || bytes >= memory_.current, ErrorCode::invalid_argument,
          std::source_location::current(), "set_memory_limit: ", name(), " holds ", memory_.current,
          " bytes already, more than the limit of ", bytes);
  memory_.limit = bytes;
}

void CpuDevice::copy_from_host(void* target, const void* source, size_t bytes) {
  if (bytes) std::memcpy(target, source, bytes);
}

void CpuDevice::copy_to_host(void* target, const void* source, size_t bytes) {
  if (bytes) std::memcpy(target, source, bytes);
}

void CpuDevice::copy_from_device(void* target, DeviceBackend& /*from*/, const void* source, size_t bytes) {
  if (bytes) std::memcpy(target, source, bytes);
}

}  // namespace lockstep
