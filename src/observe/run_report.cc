#include "lockstep/observe/run_report.h"

#include <algorithm>
#include <new>
#include <utility>

#include "lockstep/base/terminal.h"
#include "observe/device_view.h"

namespace lockstep::observe {

int64_t steps(const RunSummary& summary) {
  int64_t most = 0;
  for (const ReplicaSummary& replica : summary.replicas) most = std::max(most, replica.wall.count);
  return most;
}

double examples_per_second(const RunSummary& summary) {
  int64_t examples = 0, longest = 0;
  for (const ReplicaSummary& replica : summary.replicas) {
    longest = std::max(longest, replica.wall.total);
    examples += replica.counts[Counter::examples];
  }
  return longest > 0 ? static_cast<double>(examples) * 1e9 / static_cast<double>(longest) : 0;
}

RunReport report_on(RunSummary summary, std::string title) {
  std::vector<Verdict> verdicts = judge(summary);
  summary = device_view(std::move(summary));
  return {std::move(title), std::move(summary), std::move(verdicts)};
}

std::string to_text(const RunReport& report) {
  std::string text =
      (report.title.empty() ? "" : report.title + '\n') + to_text(report.summary) + to_text(report.verdicts);
  if (report.verdicts.empty())
    if (const std::string bound = bound_by(report.summary); !bound.empty())
      text += "  healthy: " + bound + '\n';
  return text;
}

bool print(const RunReport& report, std::FILE* out) noexcept {
  try {
    return terminal::print(to_text(report), out);
  } catch (const std::bad_alloc&) {
    std::fputs("no memory was left for the report on the run\n", out);
    return false;
  }
}

}  // namespace lockstep::observe
