// Time as Lockstep measures it: nanoseconds of a clock that never goes back, and the processor time
// of the calling thread. Code whose results depend on time takes a Clock, so that tests can hand it
// one of their own.
#pragma once

#include <cstdint>

namespace lockstep {

// Nanoseconds since an arbitrary start, the same for all threads of the machine. About 25 ns per call.
int64_t monotonic_ns();

// Nanoseconds for which the calling thread has been running on a processor. A system call: 200 to
// 600 ns.
int64_t thread_cpu_ns();

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual int64_t now_ns() const = 0;
  virtual int64_t thread_cpu_ns() const = 0;

  // False where the thread's processor time advances in ticks too coarse to be compared with the
  // wall time of a step (some sandboxes count in tens of milliseconds).
  virtual bool has_fine_thread_cpu() const = 0;

  // The machine's clock. Never destroyed.
  static const Clock& system();
};

}  // namespace lockstep
