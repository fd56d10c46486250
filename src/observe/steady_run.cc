#include "observe/steady_run.h"

#include <algorithm>

#include "lockstep/observe/verdict.h"

namespace lockstep::observe {
namespace {

int64_t steady_steps(const ReplicaSummary& r) { return r.wall.count - r.first.steps; }

MeanStep mean_step(const ReplicaSummary& r) {
  const double per_step = 1.0 / static_cast<double>(steady_steps(r)), ms_per_step = per_step / 1e6;
  MeanStep mean;
  mean.wall = static_cast<double>(r.wall.total - r.first.wall_ns) * ms_per_step;
  for (size_t c = 0; c < kCategories; ++c)
    mean.times[c] = static_cast<double>(r.times[c].total - r.first.times.values[c]) * ms_per_step;
  for (size_t c = 0; c < kCounters; ++c)
    mean.counts[c] = static_cast<double>(r.counts.values[c] - r.first.counts.values[c]) * per_step;
  if (r.measured_wall_ns > 0)
    mean.descheduled_share =
        static_cast<double>(r[Category::descheduled].total) / static_cast<double>(r.measured_wall_ns);
  return mean;
}

}  // namespace

std::optional<SteadyRun> steady_run(const RunSummary& summary) {
  SteadyRun run;
  run.summary = &summary;
  const double n = static_cast<double>(summary.replicas.size());
  for (const ReplicaSummary& r : summary.replicas) {
    if (steady_steps(r) < kMinSteps) return std::nullopt;
    const MeanStep mean = mean_step(r);
    run.mean.wall += mean.wall / n;
    for (size_t c = 0; c < kCategories; ++c) run.mean.times[c] += mean.times[c] / n;
    for (size_t c = 0; c < kCounters; ++c) run.mean.counts[c] += mean.counts[c];
    run.mean.descheduled_share += mean.descheduled_share / n;

    run.outside_input_wait +=
        static_cast<double>(r.outside[Category::input_wait]) / 1e6 / static_cast<double>(steady_steps(r)) / n;
    run.steps = std::max(run.steps, r.wall.count);
    run.steady_steps = std::max(run.steady_steps, steady_steps(r));
    run.late_traces = std::max(run.late_traces, r.counts[Counter::traces] - r.first.counts[Counter::traces]);
    run.late_compiling +=
        static_cast<double>(r.late_compiling_ns) / 1e6 / static_cast<double>(steady_steps(r)) / n;
    run.partial_steps += r.partial_steps;
    run.empty_steps += r.empty_steps;
    run.incomplete_steps = std::max(run.incomplete_steps, r.partial_steps + r.empty_steps);
    if (r.empty_steps > summary.replicas[run.emptiest].empty_steps) run.emptiest = run.replicas.size();
    run.replicas.push_back(mean);
  }
  if (run.replicas.empty() || run.mean.wall <= 0) return std::nullopt;
  return run;
}

}  // namespace lockstep::observe
