#include "observe/loop.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "observe/thread_times.h"

namespace lockstep::observe {
namespace {

// Timing a step takes about a microsecond: of those that are shorter than this, one of sixteen is timed, once
// so many were.
constexpr int64_t kShortNs = 50'000;
constexpr int64_t kUntimed = 15;
constexpr int64_t kTimedFirst = 100;

int64_t time_of(const RunSummary& summary) {
  int64_t longest = 0;
  for (const ReplicaSummary& replica : summary.replicas)
    longest = std::max(longest, replica.wall.total + replica.outside_ns + replica.compiling_ns);
  return longest;
}

struct Loops {
  std::mutex mutex;
  std::vector<const Loop*> alive;
  RunReport longest;  // of those that are over, without verdicts
};
Loops& loops() {
  static auto* all = new Loops;  // never destroyed: loops of static functions end later
  return *all;
}

void keep_longest(Loops& all, const std::string& title, RunSummary summary) {
  if (time_of(summary) > time_of(all.longest.summary)) all.longest = {title, std::move(summary), {}};
}

}  // namespace

Loop::Loop(std::string title, int replicas, Complete complete)
    : title_(std::move(title)),
      clock_({.replicas = replicas}),
      complete_(std::move(complete)),
      watch_(title_) {
  const std::lock_guard lock(loops().mutex);
  loops().alive.push_back(this);
}

Loop::~Loop() {
  const std::lock_guard lock(loops().mutex);
  std::erase(loops().alive, this);
  try {
    keep_longest(loops(), title_, summary());
  } catch (const std::bad_alloc&) {  // a report less
  }
}

StepClock* Loop::begin() {
  if (short_ && untimed_ < kUntimed) {
    ++untimed_;
    return nullptr;
  }
  ThreadTimes& thread = thread_times();
  for (size_t c = 0; c < kCategories; ++c) thread.times.values[c] += untimed_ * last_.values[c];
  clock_.begin_next_step();
  return &clock_;
}

void Loop::end() {
  const int64_t steps = 1 + std::exchange(untimed_, 0);
  for (int r = 0; r < clock_.replicas(); ++r) clock_.replica(r).multiply_counts(steps);
  const Times before = thread_times().times;
  clock_.end_step(steps);
  for (size_t c = 0; c < kCategories; ++c)
    last_.values[c] = thread_times().times.values[c] - before.values[c];
  const int64_t now = monotonic_ns(), since_last = now - std::exchange(ended_ns_, now);
  short_ = ++timed_ > kTimedFirst && since_last < steps * kShortNs;
  look();
}

RunSummary Loop::summary() const {
  RunSummary summary = clock_.summary();
  complete_(summary);
  return summary;
}

void remember(const RunReport& report) {
  const std::lock_guard lock(loops().mutex);
  keep_longest(loops(), report.title, report.summary);
}

RunReport report() {
  RunReport longest;
  {
    const std::lock_guard lock(loops().mutex);
    longest = loops().longest;
    for (const Loop* loop : loops().alive)
      if (RunSummary summary = loop->summary(); time_of(summary) > time_of(longest.summary))
        longest = {loop->title(), std::move(summary), {}};
  }
  return report_on(std::move(longest.summary), std::move(longest.title));
}

}  // namespace lockstep::observe
