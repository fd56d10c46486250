// A clock for tests: time passes only when the test says so, and each thread's processor time with it.
#pragma once

#include <map>
#include <mutex>
#include <thread>

#include "lockstep/base/clock.h"

namespace lockstep::observe {

class FakeClock final : public Clock {
 public:
  explicit FakeClock(bool fine = true) : fine_(fine) {}

  int64_t now_ns() const override {
    std::lock_guard lock(mutex_);
    return now_;
  }
  int64_t thread_cpu_ns() const override {
    std::lock_guard lock(mutex_);
    return cpu_[std::this_thread::get_id()];
  }
  bool has_fine_thread_cpu() const override { return fine_; }

  // The calling thread runs, or does not, for so many nanoseconds.
  void run(int64_t ns) {
    std::lock_guard lock(mutex_);
    now_ += ns;
    cpu_[std::this_thread::get_id()] += ns;
  }
  void sleep(int64_t ns) {
    std::lock_guard lock(mutex_);
    now_ += ns;
  }

 private:
  const bool fine_;
  mutable std::mutex mutex_;
  int64_t now_ = 1'000'000;
  mutable std::map<std::thread::id, int64_t> cpu_;
};

}  // namespace lockstep::observe
