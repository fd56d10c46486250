#include "observe/loop.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace lockstep::observe {
namespace {

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
