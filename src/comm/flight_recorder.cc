#include "comm/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/clock.h"

namespace lockstep::comm {

int64_t FlightRecorder::now_ns() { return monotonic_ns(); }

void FlightRecorder::begin(int64_t number, const char* kind, std::string_view name, int64_t bytes) {
  const int64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[static_cast<size_t>(number) % kKept];
  entry.number = number;
  entry.kind = kind;
  entry.name.fill('\0');
  name.copy(entry.name.data(), entry.name.size() - 1);
  entry.bytes = bytes;
  entry.begun_ns = now;
  entry.ended_ns = 0;
  last_ = number;
}

void FlightRecorder::end(int64_t number) {
  const int64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  entries_[static_cast<size_t>(number) % kKept].ended_ns = now;
}

std::string FlightRecorder::text(size_t most) const {
  const std::lock_guard lock(mutex_);
  std::string lines;
  const auto count = static_cast<int64_t>(std::min(most, kKept));
  for (int64_t number = std::max<int64_t>(1, last_ - count + 1); number <= last_; ++number) {
    const Entry& entry = entries_[static_cast<size_t>(number) % kKept];
    if (entry.number != number) continue;
    lines += fmt::format("#{} {} [{}] {} bytes, at {:.3f} s, ", number, entry.kind, entry.name.data(),
                         entry.bytes, static_cast<double>(entry.begun_ns - made_ns_) * 1e-9);
    lines += entry.ended_ns > 0 ? fmt::format("took {:.3f} ms\n",
                                              static_cast<double>(entry.ended_ns - entry.begun_ns) * 1e-6)
                                : std::string("has not ended\n");
  }
  return lines;
}

}  // namespace lockstep::comm
