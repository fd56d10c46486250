#include "lockstep/device/null_device.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class NullDevice final : public Device {
 public:
  NullDevice() : Device(DeviceKind::null, 0, 1) {}

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
  void copy_to_host(void*, const void*, size_t) const override {
    fail(ErrorCode::failed_precondition, std::source_location::current(), "tensors on ", name(),
         " hold no elements to read");
  }

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

  DeviceCounters counters() const override {
    return {kernels_.load(), flops_.load(), in_.load(), out_.load()};
  }
  void reset_counters() override { kernels_ = flops_ = in_ = out_ = 0; }
  void count_kernels(int64_t kernels, int64_t flops) override {
    kernels_ += kernels;
    flops_ += flops;
  }
  void count_copy(int64_t bytes_in, int64_t bytes_out) override {
    in_ += bytes_in;
    out_ += bytes_out;
  }

 private:
  mutable std::mutex mutex_;
  MemoryInfo memory_;
  std::atomic<int64_t> kernels_{0}, flops_{0}, in_{0}, out_{0};
};

}  // namespace

Device& null_device() {
  static auto* device = new NullDevice;
  return *device;
}

}  // namespace lockstep
