#include "comm/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::comm {

void FlightRecorder::begin(const char* kind, std::string_view name, int64_t bytes) {
  const int64_t now = monotonic_ns();
  const std::lock_guard lock(mutex_);
  ++count_;
  Entry& entry = newest();
  entry.number = ++number_;
  entry.kind = kind;
  entry.name[name.copy(entry.name.data(), entry.name.size() - 1)] = '\0';
  entry.bytes = bytes;
  entry.begun_ns = now;
  entry.ended_ns = 0;
}

void FlightRecorder::end() {
  const int64_t now = monotonic_ns();
  const std::lock_guard lock(mutex_);
  newest().ended_ns = now;
}

void FlightRecorder::number_anew() {
  const std::lock_guard lock(mutex_);
  number_ = 0;
}

FlightRecorder::Last FlightRecorder::last() const {
  const std::lock_guard lock(mutex_);
  if (number_ == 0) return {};
  const Entry& entry = newest();
  return {.number = entry.number,
          .ended = entry.ended_ns > 0,
          .begun_ns = entry.begun_ns,
          .text = fmt::format("{} #{} [{}]", entry.kind, entry.number, entry.name.data())};
}

std::string FlightRecorder::text(size_t most) const {
  const std::lock_guard lock(mutex_);
  std::string lines;
  for (size_t n = count_ - std::min({most, kKept, count_}); n < count_; ++n) {
    const Entry& entry = entries_[n % kKept];
    lines += fmt::format("#{} {} [{}] {} bytes, at {:.3f} s, ", entry.number, entry.kind, entry.name.data(),
                         entry.bytes, static_cast<double>(entry.begun_ns - made_ns_) * 1e-9);
    lines += entry.ended_ns > 0 ? fmt::format("took {:.3f} ms\n",
                                              static_cast<double>(entry.ended_ns - entry.begun_ns) * 1e-6)
                                : std::string("has not ended\n");
  }
  return lines;
}

}  // namespace lockstep::comm
