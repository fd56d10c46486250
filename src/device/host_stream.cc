#include "device/host_stream.h"

#include <cstring>

#include "lockstep/base/clock.h"

namespace lockstep {

void HostStream::copy(void* target, const void* source, size_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
}

void HostStream::fill(void* target, uint64_t pattern, size_t width, size_t count) {
  if (count > 0 && pattern == 0) std::memset(target, 0, width * count);
  for (size_t i = 0; i < count && pattern != 0; ++i)
    std::memcpy(static_cast<char*>(target) + i * width, &pattern, width);
}

void HostStream::read(void* host, const void* source, size_t bytes) { HostStream::copy(host, source, bytes); }

int64_t HostStream::timed(const std::function<void()>& launch) {
  const int64_t start = monotonic_ns();
  launch();
  return monotonic_ns() - start;
}

void HostEvent::queue_record(Stream&) {
  if (timed_) at_ns_.store(monotonic_ns(), std::memory_order_relaxed);
}

int64_t HostEvent::ns_since(const Event& earlier) const {
  const int64_t from = static_cast<const HostEvent&>(earlier).at_ns_.load(std::memory_order_relaxed);
  const int64_t to = at_ns_.load(std::memory_order_relaxed);
  return from > 0 && to > 0 ? to - from : 0;
}

}  // namespace lockstep
