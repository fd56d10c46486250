#include "observe/device_view.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/observe/verdict.h"

namespace lockstep::observe {
namespace {

constexpr std::array kBeside = {Category::input_wait, Category::copy, Category::host, Category::loop};
constexpr double kWaits = 1 - 1 / kMinGain;  // part of the time from which on the host is said to wait

size_t index_of(Category category) { return static_cast<size_t>(category); }

void move_to_compute(ReplicaSummary& replica) {
  Distribution& compute = replica.times[index_of(Category::compute)];
  for (const Category category : kBeside) {
    Distribution& beside = replica.times[index_of(category)];
    compute.total += beside.total;
    compute.mean += beside.mean, compute.median += beside.median;
    compute.p95 += beside.p95, compute.p10 += beside.p10, compute.max += beside.max;
    beside = {.count = beside.count};
    replica.first.times[Category::compute] += replica.first.times[category];
    replica.first.times[category] = 0;
  }
  // No step computes for longer than it lasts.
  compute.median = std::min(compute.median, replica.wall.median);
  compute.p95 = std::min(compute.p95, replica.wall.p95);
  compute.p10 = std::min(compute.p10, replica.wall.p10);
  compute.max = std::min(compute.max, replica.wall.max);
}

}  // namespace

bool devices_limit(const RunSummary& summary) {
  if (!summary.setting.asynchronous) return false;
  double wall = 0, compute = 0, steps = 0, reads = 0;
  for (const ReplicaSummary& replica : summary.replicas) {
    wall += static_cast<double>(replica.wall.total);
    compute += static_cast<double>(replica[Category::compute].total);
    steps += static_cast<double>(replica.wall.count);
    reads += static_cast<double>(replica.counts[Counter::value_reads]);
  }
  return compute > 0 && compute >= kWaits * wall && reads < kReadsPerStep * steps;
}

RunSummary device_view(RunSummary summary) {
  if (devices_limit(summary))
    for (ReplicaSummary& replica : summary.replicas) move_to_compute(replica);
  return summary;
}

void show_devices(std::span<Intervals> replicas) {
  const size_t compute = index_of(Category::compute);
  for (Intervals& intervals : replicas)
    for (RunRecord::Interval& interval : intervals) {
      if (static_cast<double>(interval.times_ns[compute]) < kWaits * static_cast<double>(interval.wall_ns))
        continue;
      for (const Category category : kBeside)
        interval.times_ns[compute] += std::exchange(interval.times_ns[index_of(category)], 0);
    }
}

}  // namespace lockstep::observe
