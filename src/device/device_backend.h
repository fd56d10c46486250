// What a kind of device implements: memory, copies, streams, captured graphs. Users hold a Device, the
// library what is behind it:
//
//   backend_of(tensor.device()).copy_to_host(...);
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>

#include "device/memory_ledger.h"
#include "device/stream.h"
#include "lockstep/device/device.h"

namespace lockstep {

class AsyncHostCopies;

// Thread-safe.
class DeviceBackend {
 public:
  virtual ~DeviceBackend();
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  const std::string& name() const { return name_; }
  DeviceKind kind() const { return kind_; }
  int index() const { return index_; }
  int threads() const { return threads_; }

  // The GPU that it is, or is a share of: logical devices of one GPU have the same number. -1: it is no GPU.
  virtual int physical() const { return -1; }
  // Whether kernels of this device can follow pointers into the other's memory.
  virtual bool reads(const DeviceBackend& other) const { return other.kind() == kind_; }

  // --- memory ---
  // False: the device keeps account of memory but has none (null_device.h).
  virtual bool has_memory() const { return true; }
  // At least 64-byte aligned; throws Error(out_of_memory) with what was asked and what is held.
  virtual void* allocate(size_t bytes, std::source_location where) = 0;
  virtual void deallocate(void* data, size_t bytes) noexcept = 0;
  // Memory for what is prefetched: copy_from_host() into it overlaps with compute, instead of queueing behind
  // it. Nothing else may write there.
  virtual void* allocate_for_prefetch(size_t bytes, std::source_location where) {
    return allocate(bytes, where);
  }
  virtual MemoryInfo memory_info() const = 0;
  virtual void reset_peak_memory() = 0;
  virtual void set_memory_limit(int64_t bytes) = 0;
  // What the memory is used for, over time.
  MemoryLedger& ledger() { return ledger_; }

  // --- copies, in the order of the compute stream ---
  // The source may be overwritten when it returns.
  virtual void copy_from_host(void* target, const void* source, size_t bytes) = 0;
  // The target is written when it returns.
  virtual void copy_to_host(void* target, const void* source, size_t bytes) = 0;
  // From the memory of another device of the same kind.
  virtual void copy_from_device(void* target, DeviceBackend& from, const void* source, size_t bytes) = 0;

  // --- order ---
  // Where kernels run unless somebody says otherwise.
  virtual Stream& compute_stream() = 0;
  // Another one, which does not wait for it.
  virtual std::unique_ptr<Stream> new_stream() = 0;
  virtual std::unique_ptr<Event> new_event(Event::Timed timed = Event::Timed::no) = 0;
  // Kernels that the calling thread prepares and launches from now on are for this device. Streams, events
  // and graphs see to it themselves.
  virtual void bind_thread() const {}
  // Whether capture_graph() makes graphs. A graph holds the pointers that its launches were captured with, so
  // memory that they use is best found in the same places again.
  virtual bool captures_graphs() const { return false; }
  // These launches as a graph that is replayed as a whole; they do not happen now. Null: the device captures no
  // graphs.
  virtual std::unique_ptr<CapturedGraph> capture_graph(std::span<const CapturedLaunch> launches);
  // Host-to-device copies that overlap with compute. Null: the backend has no copy stream, and copies go in
  // the order of the compute stream.
  virtual AsyncHostCopies* async_host_copies() { return nullptr; }

  // --- counters ---
  DeviceCounters counters() const;
  void reset_counters();
  void count_kernels(int64_t kernels, int64_t flops) {
    kernels_.fetch_add(kernels, std::memory_order_relaxed);
    flops_.fetch_add(flops, std::memory_order_relaxed);
  }
  void count_copy(int64_t bytes_in, int64_t bytes_out) {
    bytes_in_.fetch_add(bytes_in, std::memory_order_relaxed);
    bytes_out_.fetch_add(bytes_out, std::memory_order_relaxed);
  }

 protected:
  DeviceBackend(DeviceKind kind, int index, int threads);

 private:
  const DeviceKind kind_;
  const int index_;
  const int threads_;
  const std::string name_;
  MemoryLedger ledger_;
  std::atomic<int64_t> kernels_{0}, flops_{0}, bytes_in_{0}, bytes_out_{0};
};

inline DeviceBackend& backend_of(const Device& device) { return *device.backend_; }

}  // namespace lockstep
