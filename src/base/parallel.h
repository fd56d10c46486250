// Data parallelism inside a kernel: one team of threads per calling thread.
//
// oneDNN runs on OpenMP, so Lockstep's own loops do too: two thread pools on the same cores would
// fight. Every host thread has its own team; TeamScope sets its size. Inside a parallel region the
// size is 1, so a kernel called from there runs on the calling thread alone.
//
// The threads that a team adds to its caller keep a core each where there are enough: left to
// themselves they are often put on the core of the thread that waits for them, which was seen to cost
// a convolutional network's step a third of its time. LOCKSTEP_PIN_THREADS=0, or any OMP_PROC_BIND,
// leaves them alone.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Threads that parallel() on this thread may use.
int team_size();

// The core, counted among those of the process, on which the calling thread's team begins. 0 unless set:
// a device's thread says where its share of the machine begins.
void set_first_core(int core);

// Sets the calling thread's team size for a scope, in which results too small for a normal number become
// zero, on all threads of the team (base/flush_to_zero.h says why).
class TeamScope {
 public:
  explicit TeamScope(int threads);
  ~TeamScope();
  TeamScope(const TeamScope&) = delete;
  TeamScope& operator=(const TeamScope&) = delete;

 private:
  int previous_;
  bool caller_flushes_to_zero_;
};

// Threads that one kernel run by the calling thread may use, whatever its device has. No limit unless set.
int thread_limit();
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int previous_;
};

namespace detail {
void run_team(int threads, void (*body)(void*, int), void* context);
}

// Calls f(index) for index in [0, threads), each on its own thread of the team, and waits. The
// first exception thrown is thrown again here. Does not allocate.
template <class F>
void parallel(int threads, F&& f) {
  if (threads <= 1) {
    f(0);
    return;
  }
  detail::run_team(
      threads, [](void* context, int index) { (*static_cast<std::remove_reference_t<F>*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

// Splits [0, n) into one consecutive range per thread, each boundary a multiple of `grain`, and
// calls f(begin, end) for the ranges that are not empty.
template <class F>
void parallel_for(int64_t n, int64_t grain, int threads, F&& f) {
  const int64_t blocks = (n + grain - 1) / grain;
  if (blocks < threads) threads = static_cast<int>(blocks);
  if (threads <= 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  parallel(threads, [&](int index) {
    const int64_t begin = blocks * index / threads * grain;
    const int64_t end = blocks * (index + 1) / threads * grain;
    if (begin < end) f(begin, end < n ? end : n);
  });
}

}  // namespace lockstep
