#include "device/stream_work.h"

#include <cstring>

#include "device/gpu_driver.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class HostWork final : public StreamWork {
 public:
  void copy(void* target, const void* source, size_t bytes, void*) const override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void fill(void* target, uint64_t pattern, size_t width, size_t count, void*) const override {
    if (count > 0 && pattern == 0) std::memset(target, 0, width * count);
    for (size_t i = 0; i < count && pattern != 0; ++i) std::memcpy(static_cast<char*>(target) + i * width, &pattern, width);
  }
  void read(void* host, const void* source, size_t bytes, void* stream) const override {
    copy(host, source, bytes, stream);
  }
  int64_t timed(const std::function<void()>& launch, void*) const override {
    const int64_t start = monotonic_ns();
    launch();
    return monotonic_ns() - start;
  }
};

}  // namespace

const StreamWork& stream_work(DeviceKind kind) {
  static const HostWork host;
  if (kind != DeviceKind::gpu) return host;
  const Gpus& gpus = machine_gpus();
  require(gpus.driver != nullptr, ErrorCode::device_mismatch, std::source_location::current(),
          "there is no GPU: ", gpus.reason);
  return gpus.driver->stream_work();
}

}  // namespace lockstep
