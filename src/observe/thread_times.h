// What a thread does between the steps of the loops that it runs.
//
// Whoever makes a program wait outside of a step says so here; the clock of a loop takes what has come since
// its last step (StepClock::begin_next_step). Steps are entered as well, so that those of one loop are no
// work of another's own.
#pragma once

#include "lockstep/base/clock.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep::observe {

struct ThreadTimes {
  bool in_loop = false;  // a loop of this thread has made a step: somebody reads this
  bool open = false;     // a scope or a step is: scopes inside are parts of it
  Times times;
  int64_t value_reads = 0;  // of values in a device's memory; inside of steps too
};
// The calling thread's.
ThreadTimes& thread_times();

// Enters its lifetime, where the thread has a loop.
class ThreadTimeScope {
 public:
  explicit ThreadTimeScope(Category category) : category_(category) {
    ThreadTimes& own = thread_times();
    if (!own.in_loop || own.open) return;
    own.open = true;
    began_ns_ = monotonic_ns();
  }
  ~ThreadTimeScope() {
    if (began_ns_ < 0) return;
    ThreadTimes& own = thread_times();
    own.open = false;
    own.times[category_] += monotonic_ns() - began_ns_;
  }
  ThreadTimeScope(const ThreadTimeScope&) = delete;
  ThreadTimeScope& operator=(const ThreadTimeScope&) = delete;

 private:
  Category category_;
  int64_t began_ns_ = -1;
};

}  // namespace lockstep::observe
