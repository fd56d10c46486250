// Verdicts: what slowed a run down, drawn by fixed rules from the step clock's figures.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/observe/run_summary.h"

namespace lockstep::observe {

struct Verdict {
  std::string id;        // for programs: "input-bound"; does not change between versions
  std::string cause;     // one line
  std::string evidence;  // the figures it rests on
  std::string fix;       // code
  std::string gain;      // what to expect of it, and under which assumption
  double speedup = 1;    // the same as a factor on examples per second
};

// The verdicts on a run, the largest gain first. The first step (tracing, warming up) is left out; a
// run of fewer than kMinSteps further steps has none. Ids: input-bound, communication-bound,
// overhead-bound, slow-replica, waiting-for-others, partial-replicas, retracing, host-copies,
// descheduled, unattributed, memory-grows.
std::vector<Verdict> judge(const RunSummary& summary);
inline constexpr int kMinSteps = 3;

// Four lines a verdict; empty where there is none.
std::string to_text(std::span<const Verdict> verdicts);

// An array of objects with the members' names as keys.
std::string to_json(std::span<const Verdict> verdicts);

}  // namespace lockstep::observe
