#include "observe/activity.h"

#include <atomic>

#include "lockstep/base/clock.h"

namespace lockstep::observe {
namespace {

// Read one after the other: a reader may see the last activity with the next one's time, which is as good.
std::atomic<const char*> doing{Activity().what};
std::atomic<int64_t> since{0};

void begin(const char* what) {
  doing.store(what, std::memory_order_relaxed);
  since.store(Clock::system().now_ns(), std::memory_order_relaxed);
}

}  // namespace

ActivityScope::ActivityScope(const char* what) : outer_(doing.load(std::memory_order_relaxed)) {
  begin(what);
}
ActivityScope::~ActivityScope() { begin(outer_); }

Activity current_activity() {
  return {doing.load(std::memory_order_relaxed), since.load(std::memory_order_relaxed)};
}

}  // namespace lockstep::observe
