#include "lockstep/base/clock.h"

#include <ctime>

namespace lockstep {
namespace {

int64_t read(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// clock_getres claims 1 ns even where the kernel counts in ticks, so the clock is tried: reading it
// takes processor time itself, which a fine clock shows.
bool try_thread_cpu() {
  constexpr int kReads = 64;
  int changes = 0;
  int64_t last = thread_cpu_ns();
  for (int i = 0; i < kReads; ++i) {
    const int64_t now = thread_cpu_ns();
    changes += now != last;
    last = now;
  }
  return changes >= 4;
}

class SystemClock final : public Clock {
 public:
  int64_t now_ns() const override { return monotonic_ns(); }
  int64_t thread_cpu_ns() const override { return lockstep::thread_cpu_ns(); }
  bool has_fine_thread_cpu() const override {
    static const bool fine = try_thread_cpu();
    return fine;
  }
};

}  // namespace

int64_t monotonic_ns() { return read(CLOCK_MONOTONIC); }
int64_t thread_cpu_ns() { return read(CLOCK_THREAD_CPUTIME_ID); }

const Clock& Clock::system() {
  static const Clock& clock = *new SystemClock;
  return clock;
}

}  // namespace lockstep
