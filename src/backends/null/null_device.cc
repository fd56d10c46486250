#include "lockstep/device/null_device.h"

#include <algorithm>
#include <mutex>

#include "device/device_backend.h"
#include "device/host_stream.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void fail_to_read(const DeviceBackend& device) {
  fail(ErrorCode::failed_precondition, std::source_location::current(), "tensors on ", device.name(),
       " hold no elements to read");
}

// Everything has happened at once, for nothing does.
class NullStream final : public Stream {
 public:
  explicit NullStream(DeviceBackend& device) : Stream(device, false) {}

  void copy(void*, const void*, size_t) override {}
  void fill(void*, uint64_t, size_t, size_t) override {}
  void read(void*, const void*, size_t) override { fail_to_read(device()); }
  void synchronize() override {}
  int64_t timed(const std::function<void()>& launch) override {
    launch();
    return 0;
  }
};

class NullDevice final : public DeviceBackend {
 public:
  NullDevice() : DeviceBackend(DeviceKind::null, 0, 1) {}

  bool has_memory() const override { return false; }

  // A pointer that nobody may follow.
  void* allocate(size_t bytes, std::source_location where) override {
    const std::lock_guard lock(mutex_);
    require(memory_.limit == 0 || memory_.current + static_cast<int64_t>(bytes) <= memory_.limit,
            ErrorCode::out_of_memory, where, "out of memory on ", name(), ": ", bytes,
            " bytes were asked for, ", memory_.current, " of the limit of ", memory_.limit,
            " bytes are held");
    memory_.current += static_cast<int64_t>(bytes);
    memory_.peak = std::max(memory_.peak, memory_.current);
    return nullptr;
  }
  void deallocate(void*, size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    memory_.current -= static_cast<int64_t>(bytes);
  }
  void copy_from_host(void*, const void*, size_t) override {}
  void copy_to_host(void*, const void*, size_t) override { fail_to_read(*this); }
  void copy_from_device(void*, DeviceBackend&, const void*, size_t) override {}

  MemoryInfo memory_info() const override {
    const std::lock_guard lock(mutex_);
    return memory_;
  }
  void reset_peak_memory() override {
    const std::lock_guard lock(mutex_);
    memory_.peak = memory_.current;
  }
  void set_memory_limit(int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    require(bytes == 0 || bytes >= memory_.current, ErrorCode::invalid_argument,
            std::source_location::current(), "set_memory_limit: ", name(), " holds ", memory_.current,
            " bytes already, more than the limit of ", bytes);
    memory_.limit = bytes;
  }

  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<NullStream>(*this); }
  std::unique_ptr<Event> new_event(Event::Timed timed) override { return std::make_unique<HostEvent>(timed); }

 private:
  mutable std::mutex mutex_;
  MemoryInfo memory_;
  NullStream stream_{*this};
};

}  // namespace

Device& null_device() {
  static auto* device = new Device(std::make_unique<NullDevice>());
  return *device;
}

}  // namespace lockstep
