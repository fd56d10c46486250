// A run as the rules behind the verdicts see it: mean steps, without the first record.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/observe/run_summary.h"

namespace lockstep::observe {

// Times in milliseconds.
struct MeanStep {
  double wall = 0;
  std::array<double, kCategories> times{};
  std::array<double, kCounters> counts{};
  double descheduled_share = 0;  // of the steps that measured it

  double operator[](Category c) const { return times[static_cast<size_t>(c)]; }
  double operator[](Counter c) const { return counts[static_cast<size_t>(c)]; }
};

struct SteadyRun {
  const RunSummary* summary = nullptr;  // what it was made of; not owned
  std::vector<MeanStep> replicas;
  MeanStep mean;                  // times: the mean over replicas; counts: the sum over replicas
  double outside_input_wait = 0;  // milliseconds per step, between steps
  int64_t steps = 0;              // with the first record's
  int64_t steady_steps = 0;       // without
  int64_t late_traces = 0;        // after the first record, on the replica that made most
  double late_compiling = 0;      // milliseconds per step, after the first record
  int64_t partial_steps = 0;      // summed over replicas, as the next one
  int64_t empty_steps = 0;
  int64_t incomplete_steps = 0;  // partial or empty, on the replica where that happened most
  size_t emptiest = 0;           // the replica with the most empty steps

  double share(Category c) const { return mean[c] / mean.wall; }
};

// Nothing where a replica has too few steps to say anything (verdict.h: kMinSteps).
std::optional<SteadyRun> steady_run(const RunSummary& summary);

}  // namespace lockstep::observe
