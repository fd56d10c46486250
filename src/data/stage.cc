#include "data/stage.h"

#include <algorithm>
#include <chrono>

namespace lockstep::data {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr int64_t kTimingNs = 60;  // what it takes to time one call
constexpr int64_t kShare = 100;    // one part in so many may go to timing
constexpr int64_t kMostSkipped = 4096;

// What a thread is timing.
struct Timing {
  int depth = 0;
  bool on = false;
  int64_t calls = 0;      // timed ones since the outermost
  int64_t inputs_ns = 0;  // spent in the stages called by the one under way
  const Stage* outermost = nullptr;
  int64_t skip = 0;     // outermost calls that are not timed
  int64_t skipped = 0;  // those since the last one that was
  int64_t weight = 1;   // calls that the one under way stands for
};
thread_local Timing timing;

}  // namespace

StageTimer::StageTimer(Stage& stage) : stage_(stage), outermost_(timing.depth++ == 0) {
  if (outermost_) {
    // Another pipeline, perhaps at the address of one that is gone.
    if (timing.outermost != &stage || stage.timed_calls.load(std::memory_order_relaxed) == 0) {
      timing.outermost = &stage;
      timing.skip = timing.skipped = 0;
    }
    timing.on = timing.skip-- <= 0;
    timing.weight = timing.skipped + 1;
    timing.skipped = timing.on ? 0 : timing.weight;
    timing.calls = 0;
  }
  if (!timing.on) return;
  ++timing.calls;
  outer_inputs_ns_ = timing.inputs_ns;
  timing.inputs_ns = 0;
  start_ = now_ns();
}

StageTimer::~StageTimer() {
  --timing.depth;
  if (!timing.on) return;
  const int64_t elapsed = now_ns() - start_;
  const int64_t own = std::max<int64_t>(0, elapsed - timing.inputs_ns);
  stage_.timed_ns.fetch_add(timing.weight * own, std::memory_order_relaxed);
  stage_.timed_calls.fetch_add(timing.weight, std::memory_order_relaxed);
  timing.inputs_ns = outer_inputs_ns_ + elapsed;
  if (outermost_) {
    timing.skip = std::min(kMostSkipped, timing.calls * kTimingNs * kShare / std::max<int64_t>(1, elapsed));
    timing.inputs_ns = 0;
    timing.on = false;
  }
}

void StageTimer::waited(int64_t ns) {
  if (timing.on) timing.inputs_ns += ns;
}

}  // namespace lockstep::data
