// The report on a run: where its time and memory went, and what would help most.
//
// Whoever ends a run makes the report (fit, a strategy for the loop that it ran, the tool), and print() is
// the one place where it becomes lines for people. A loop over a compiled function is asked for its own:
//
//   auto step = tf::function([&](const tf::Tensor& x, const tf::Tensor& y) { ... });
//   for (const auto& batch : dataset) step(batch[0].tensor(), batch[1].tensor());
//   tf::observe::print(tf::observe::report());
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/observe/run_summary.h"
#include "lockstep/observe/verdict.h"

namespace lockstep::observe {

// Steps that were made, on the replica that made most; 0 where none was timed.
int64_t steps(const RunSummary& summary);
// Over all replicas, in the time of the one that took longest; 0 where no step was timed.
double examples_per_second(const RunSummary& summary);

struct RunReport {
  std::string title = {};  // "MirroredStrategy::run"; empty: the report has none
  RunSummary summary = {};
  std::vector<Verdict> verdicts = {};  // on the summary, the largest gain first
};

RunReport report_on(RunSummary summary, std::string title = {});
// Runs of fewer steps print no report unasked.
inline constexpr int64_t kWorthReporting = 10;

// On what has taken most of this process' time so far: a fit, a loop over Strategy::run, or one over a
// compiled function (tf::function), whether it is over or not. Without steps where there was none.
// Thread-safe.
RunReport report();

// The title, the summary's lines, and four lines per verdict; one line that says what bounds a run without
// any.
std::string to_text(const RunReport& report);

// Writes it, wrapped where the file is a terminal. Never throws; false where it could not be written (the
// disk is full, or nobody reads the pipe any more). The lines of one report stay together, whichever threads
// print.
bool print(const RunReport& report, std::FILE* out = stdout) noexcept;

}  // namespace lockstep::observe
