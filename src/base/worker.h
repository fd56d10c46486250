// Threads that run one task after another, and a barrier between them.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>

namespace lockstep {

// How to wait for another thread: steps are often microseconds apart, so a short spin saves the sleep
// and the wake-up, but only where every thread has a core. Otherwise it steals the time of whoever is
// waited for.
enum class Waiting : uint8_t { spins_first, sleeps };

// The right one for `threads` threads that wait for each other.
Waiting waiting_of(int threads);

// A thread that runs the tasks it is given, one at a time. start() and wait() do not allocate.
class Worker {
 public:
  explicit Worker(Waiting waiting);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The task must not throw. Only when the last one has been waited for.
  void start(void (*task)(void*), void* context);
  void wait();

 private:
  enum State : uint32_t { idle, busy, stopping };
  void loop();

  const Waiting waiting_;
  std::atomic<uint32_t> state_{idle};
  void (*task_)(void*) = nullptr;
  void* context_ = nullptr;
  std::thread thread_;
};

// All of `count` threads meet; abort() lets everybody go, now and at every later meeting.
class Barrier {
 public:
  Barrier(int count, Waiting waiting) : count_(count), waiting_(waiting) {}

  // False where the meeting was aborted.
  bool meet();
  void abort();
  // Ready for the next run. Only while nobody meets.
  void reset();

 private:
  const int count_;
  const Waiting waiting_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> round_{0};
  std::atomic<bool> aborted_{false};
};

// Opens when `count` threads have arrived, which need not wait for it. `count` is the same in all calls.
class Gate {
 public:
  void arrive(int count);
  bool open(int count) const {
    return arrived_.load(std::memory_order_acquire) == static_cast<uint32_t>(count);
  }
  // False where it was aborted.
  bool wait(int count, Waiting waiting);
  void abort();
  // For the next round. Only while nobody arrives or waits.
  void reset() { arrived_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kAborted = 1u << 31;
  std::atomic<uint32_t> arrived_{0};
};

// Counts up, from 0 and past its range to 0 again; threads wait until it has reached a number. Raising it
// takes no call of the system while nobody sleeps.
class WaitableCounter {
 public:
  void raise();
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void wait(uint32_t value, Waiting waiting) const;

 private:
  std::atomic<uint32_t> value_{0};
  mutable std::atomic<uint32_t> waiting_{0};  // threads that may sleep
};

}  // namespace lockstep
