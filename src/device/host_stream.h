// The stream of a device whose memory is the host's: everything happens at once, on the calling thread.
//
// What runs on a CPU device beside its caller are the executor's threads, one to a device; a queue between
// them would cost more than most kernels.
#pragma once

#include <atomic>

#include "device/stream.h"

namespace lockstep {

// Thread-safe.
class HostStream : public Stream {
 public:
  explicit HostStream(DeviceBackend& device) : HostStream(device, false) {}

  void copy(void* target, const void* source, size_t bytes) override;
  void fill(void* target, uint64_t pattern, size_t width, size_t count) override;
  void read(void* host, const void* source, size_t bytes) override;
  void synchronize() override {}
  int64_t timed(const std::function<void()>& launch) override;

 protected:
  HostStream(DeviceBackend& device, bool asynchronous) : Stream(device, asynchronous) {}
};

// What is recorded has happened, so there is nothing to wait for; the count of recordings orders memory
// between threads.
class HostEvent final : public Event {
 public:
  explicit HostEvent(Timed timed) : timed_(timed == Timed::yes) {}

  void wait(Stream&) const override { synchronize(); }
  void synchronize() const override { recordings(); }
  int64_t ns_since(const Event& earlier) const override;

 private:
  void queue_record(Stream&) override;

  const bool timed_;
  std::atomic<int64_t> at_ns_{0};  // 0: not yet
};

}  // namespace lockstep
