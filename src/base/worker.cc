#include "base/worker.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "base/thread.h"

namespace lockstep {
namespace {

// The system's own wait, not std::atomic's: that one yields the processor in a loop first, which costs
// hundreds of microseconds where other threads are runnable.
void sleep_while(const std::atomic<uint32_t>& atom, uint32_t value) {
  static_assert(sizeof(atom) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  syscall(SYS_futex, &atom, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake_all(const std::atomic<uint32_t>& atom) {
  syscall(SYS_futex, &atom, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// May return early: callers look again.
void wait_while(const std::atomic<uint32_t>& atom, uint32_t value, Waiting waiting) {
  constexpr int kSpins = 4000;
  if (waiting == Waiting::spins_first)
    for (int i = 0; i < kSpins; ++i) {
      if (atom.load(std::memory_order_acquire) != value) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  sleep_while(atom, value);
}

}  // namespace

Waiting waiting_of(int threads) {
  // Those of the process, which may be a part of the machine's: a launcher shares them out. Its first
  // thread's, for any other may have been given some of them.
  cpu_set_t set;
  const int cores = sched_getaffinity(getpid(), sizeof set, &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return threads <= cores ? Waiting::spins_first : Waiting::sleeps;
}

Worker::Worker(Waiting waiting) : waiting_(waiting), thread_(start_thread([this] { loop(); })) {}

Worker::~Worker() {
  wait();
  state_.store(stopping, std::memory_order_release);
  wake_all(state_);
  thread_.join();
}

void Worker::start(void (*task)(void*), void* context) {
  task_ = task;
  context_ = context;
  state_.store(busy, std::memory_order_release);
  wake_all(state_);
}

void Worker::wait() {
  while (state_.load(std::memory_order_acquire) == busy) wait_while(state_, busy, waiting_);
}

void Worker::loop() {
  for (;;) {
    uint32_t state = state_.load(std::memory_order_acquire);
    while (state == idle) {
      wait_while(state_, idle, waiting_);
      state = state_.load(std::memory_order_acquire);
    }
    if (state == stopping) return;
    task_(context_);
    state_.store(idle, std::memory_order_release);
    wake_all(state_);
  }
}

bool Barrier::meet() {
  const uint32_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    wake_all(round_);
  } else {
    while (round_.load(std::memory_order_acquire) == round && !aborted_.load(std::memory_order_acquire))
      wait_while(round_, round, waiting_);
  }
  return !aborted_.load(std::memory_order_acquire);
}

void Barrier::abort() {
  aborted_.store(true, std::memory_order_release);
  round_.fetch_add(1, std::memory_order_release);
  wake_all(round_);
}

void Gate::arrive(int count) {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(count))
    wake_all(arrived_);
}

bool Gate::wait(int count, Waiting waiting) {
  for (;;) {
    const uint32_t arrived = arrived_.load(std::memory_order_acquire);
    if (arrived & kAborted) return false;
    if (arrived == static_cast<uint32_t>(count)) return true;
    wait_while(arrived_, arrived, waiting);
  }
}

void Gate::abort() {
  arrived_.fetch_or(kAborted, std::memory_order_release);
  wake_all(arrived_);
}

// Either whoever raises sees that somebody waits, or he who waits sees the new value: one order of all four
// operations.
void WaitableCounter::raise() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst) > 0) wake_all(value_);
}

void WaitableCounter::wait(uint32_t wanted, Waiting waiting) const {
  const auto reached = [&](uint32_t value) { return static_cast<int32_t>(value - wanted) >= 0; };
  if (reached(value())) return;
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  for (uint32_t now = value_.load(std::memory_order_seq_cst); !reached(now); now = value())
    wait_while(value_, now, waiting);
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

void Barrier::reset() {
  arrived_.store(0, std::memory_order_relaxed);
  aborted_.store(false, std::memory_order_release);
}

}  // namespace lockstep
