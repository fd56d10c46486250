// Verdicts: what slowed a run down, drawn by fixed rules from the step clock's statistics.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/observe/run_summary.h"

namespace lockstep::observe {

struct Verdict {
  std::string id;        // for programs: "input-bound"; does not change between versions
  std::string cause;     // one line
  std::string evidence;  // the statistics it rests on
  std::string fix;       // code
  std::string gain;      // what to expect of it, and under which assumption
  double speedup = 1;    // the same as a factor on examples per second
};

// The verdicts on a run, two at most, the largest gain first. Each promises a gain of kMinGain at least, but
// for what has no speed to gain (memory-grows, memory-close) and for ops-on-cpu, which stands in front of
// all, and unattributed, whose gain nobody knows. The first step, which warms up, is left out; a run of fewer
// than kMinSteps further steps has none. Ids: input-bound, communication-bound, overhead-bound, loop-bound,
// slow-replica, waiting-for-others, partial-replicas, retracing, host-copies, descheduled, numerics-checked,
// not-sharded, ops-on-cpu, unattributed, memory-grows, memory-close.
std::vector<Verdict> judge(const RunSummary& summary);
inline constexpr int kMinSteps = 3;
inline constexpr double kMinGain = 1.05;
inline constexpr size_t kMostVerdicts = 2;

// What bounds a run without verdicts: "compute takes 93% of the time, at 41% of what the device can do at
// most". Empty where the run has too few steps to be judged.
std::string bound_by(const RunSummary& summary);

// Four lines per verdict; empty where there is none.
std::string to_text(std::span<const Verdict> verdicts);

// An array of objects with the members' names as keys.
std::string to_json(std::span<const Verdict> verdicts);

}  // namespace lockstep::observe
