#include "observe/record_parts.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>

#include "lockstep/observe/run_report.h"
#include "observe/device_view.h"
#include "observe/steady_run.h"

namespace lockstep::observe {
namespace {

constexpr size_t kMostSpans = 4000;
constexpr size_t kMostKernels = 60;
constexpr int64_t kMostRows = 1024;   // intervals of all replicas
constexpr size_t kMostReplicas = 64;  // that have intervals; those behind them have their means

double milliseconds(double ns) { return ns / 1e6; }

bool is_step(const Event& event) {
  return event.kind == EventKind::span && std::string_view(event.category.c_str()) == "step" &&
         std::string_view(event.name.c_str()) == "step";
}

// Without the first record, which compiles; with it where there is nothing else.
RunRecord::Replica replica_of(const ReplicaSummary& summary, const MeanStep* steady) {
  RunRecord::Replica replica;
  replica.steps = summary.wall.count;
  replica.median_ms = milliseconds(summary.wall.median);
  replica.p95_ms = milliseconds(summary.wall.p95);
  replica.max_ms = milliseconds(static_cast<double>(summary.wall.max));
  replica.first_ms = milliseconds(static_cast<double>(summary.first.wall_ns));
  replica.outside_ms = milliseconds(static_cast<double>(summary.outside_ns));
  replica.mean_ms = steady ? steady->wall : milliseconds(summary.wall.mean);
  const double steps = static_cast<double>(std::max<int64_t>(1, summary.wall.count));
  for (size_t c = 0; c < kCategories; ++c)
    replica.times_ms.push_back(steady ? steady->times[c]
                                      : milliseconds(static_cast<double>(summary.times[c].total)) / steps);
  return replica;
}

}  // namespace

void add_summary(RunRecord& record, const RunSummary& given) {
  const RunSummary summary = device_view(given);
  const std::optional<SteadyRun> steady = steady_run(summary);
  record.categories.clear();
  for (size_t c = 0; c < kCategories; ++c) record.categories.emplace_back(name(static_cast<Category>(c)));
  record.replicas.clear();
  for (size_t r = 0; r < summary.replicas.size(); ++r) {
    record.replicas.push_back(replica_of(summary.replicas[r], steady ? &steady->replicas[r] : nullptr));
    record.replicas.back().name = replica_name(summary, r);
  }
  record.examples_per_second = examples_per_second(summary);
  record.sums = summary.sums;
  record.verdicts = judge(summary);
  record.bound = record.verdicts.empty() ? bound_by(summary) : "";
}

void add_intervals(RunRecord& record, std::vector<Intervals> replicas, int64_t width, bool several_workers,
                   const RunSummary& summary) {
  replicas.resize(std::min({replicas.size(), record.replicas.size(), kMostReplicas}));
  if (replicas.empty()) return;
  const int64_t most = std::min(StepHistory::kMost, kMostRows / static_cast<int64_t>(replicas.size()));
  record.interval_steps = align(replicas, width, most);
  if (several_workers) attribute_waiting(replicas);
  if (devices_limit(summary)) show_devices(replicas);
  for (size_t r = 0; r < replicas.size(); ++r) record.replicas[r].intervals = std::move(replicas[r]);
}

RunRecord::Timeline timeline_of(const Trace& trace) {
  RunRecord::Timeline timeline;
  // The time of the steps of the first replica, of which all spans fit.
  int64_t begin = 0, end = 0;
  for (const Event& event : trace.events) {
    if (!is_step(event) || event.replica > 0) continue;
    const auto inside = std::count_if(trace.events.begin(), trace.events.end(), [&](const Event& other) {
      return other.start_ns >= (timeline.steps > 0 ? begin : event.start_ns) && other.start_ns < event.end_ns;
    });
    if (timeline.steps > 0 && static_cast<size_t>(inside) > kMostSpans) break;
    if (timeline.steps++ == 0) begin = event.start_ns;
    end = event.end_ns;
  }
  std::map<Track, int64_t> rows;
  std::map<std::string_view, int64_t> names;
  const auto index_of = [&](Name name) {
    const auto [found, is_new] = names.try_emplace(name.c_str(), static_cast<int64_t>(names.size()));
    if (is_new) timeline.names.emplace_back(name.c_str());
    return found->second;
  };
  for (const Event& event : trace.events) {
    if (event.kind != EventKind::span || event.start_ns < begin || event.start_ns >= end) continue;
    if (timeline.spans.size() == kMostSpans) break;
    timeline.spans.push_back({static_cast<int64_t>(event.track), index_of(event.name),
                              index_of(event.category), event.start_ns - begin,
                              std::max<int64_t>(0, event.end_ns - event.start_ns)});
    rows.try_emplace(event.track, 0);
  }
  // As the trace has them: by group.
  for (const TrackInfo& track : trace.tracks)
    if (const auto row = rows.find(track.track); row != rows.end()) {
      row->second = static_cast<int64_t>(timeline.rows.size());
      timeline.rows.push_back({track.group, track.row});
    }
  for (RunRecord::Span& span : timeline.spans) span.row = rows.at(static_cast<Track>(span.row));
  return timeline;
}

RunRecord::Kernels kernels_of(const Trace& trace) {
  RunRecord::Kernels kernels;
  kernels.steps = std::max(1, steps_in(trace));
  kernels.list = kernel_profile(trace);
  for (size_t k = kMostKernels; k < kernels.list.size(); ++k) {
    const KernelTime& other = kernels.list[k];
    kernels.others.calls += other.calls;
    kernels.others.total_ns += other.total_ns;
    kernels.others.flops += other.flops;
    kernels.others.half_flops += other.half_flops;
    kernels.others.bytes += other.bytes;
  }
  if (kernels.list.size() > kMostKernels) {
    kernels.others.name = std::to_string(kernels.list.size() - kMostKernels) + " others";
    kernels.list.resize(kMostKernels);
  }
  return kernels;
}

}  // namespace lockstep::observe
