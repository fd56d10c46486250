// The report on a run: where its time and memory went, and what would help most.
//
// Whoever ends a run makes the report (fit, a strategy for the loop that it ran, the tool), and print() is
// the one place where it becomes lines for people.
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

// The title, the summary's lines, and four lines per verdict.
std::string to_text(const RunReport& report);

// Never throws. The lines of one report stay together, whichever threads print.
void print(const RunReport& report, std::FILE* out = stdout) noexcept;

}  // namespace lockstep::observe
