// For tests: a device in host memory that says it works asynchronously, as a GPU does, and counts what it is
// asked for.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "device/device_backend.h"
#include "device/host_stream.h"

namespace lockstep::testing {

class AsynchronousDevice : public DeviceBackend {
 public:
  explicit AsynchronousDevice(int index, DeviceKind kind = DeviceKind::cpu) : DeviceBackend(kind, index, 1) {}

  int captured = 0;              // graphs
  int replays = 0;               // of all of them
  uint32_t recorded = 0;         // events, in order
  std::vector<uint32_t> waited;  // which of them the host has waited for

  void* allocate(size_t bytes, std::source_location) override {
    return std::aligned_alloc(64, (bytes + 64) / 64 * 64);
  }
  void deallocate(void* data, size_t) noexcept override { std::free(data); }
  MemoryInfo memory_info() const override { return {}; }
  void reset_peak_memory() override {}
  void set_memory_limit(int64_t) override {}
  void copy_from_host(void* target, const void* source, size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void copy_to_host(void* target, const void* source, size_t bytes) override {
    copy_from_host(target, source, bytes);
  }
  void copy_from_device(void* target, DeviceBackend&, const void* source, size_t bytes) override {
    copy_from_host(target, source, bytes);
  }
  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<HostStream>(*this); }
  std::unique_ptr<Event> new_event(Event::Timed) override { return std::make_unique<NumberedEvent>(*this); }
  bool captures_graphs() const override { return true; }
  std::unique_ptr<CapturedGraph> capture_graph(std::span<const CapturedLaunch> launches) override {
    ++captured;
    return std::make_unique<Graph>(*this, launches);
  }

 private:
  class AsynchronousStream final : public HostStream {
   public:
    explicit AsynchronousStream(DeviceBackend& device) : HostStream(device, true) {}
  };

  class NumberedEvent final : public Event {
   public:
    explicit NumberedEvent(AsynchronousDevice& device) : device_(device) {}
    void wait(Stream&) const override {}
    void synchronize() const override { device_.waited.push_back(at_); }
    int64_t ns_since(const Event&) const override { return 0; }

   private:
    void queue_record(Stream&) override { at_ = ++device_.recorded; }
    AsynchronousDevice& device_;
    uint32_t at_ = 0;
  };

  class Graph final : public CapturedGraph {
   public:
    Graph(AsynchronousDevice& device, std::span<const CapturedLaunch> launches)
        : device_(device), launches_(launches.begin(), launches.end()) {}
    void replay(Stream& stream) override {
      ++device_.replays;
      for (const CapturedLaunch& launch : launches_) launch.launch(stream);
    }

   private:
    AsynchronousDevice& device_;
    std::vector<CapturedLaunch> launches_;
  };

  AsynchronousStream stream_{*this};
};

}  // namespace lockstep::testing
