#include "lockstep/observe/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace lockstep::observe {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCategoryNames[] = {
    "input_wait", "copy",        "compute", "exposed_communication", "waiting_for_others",
    "host",       "descheduled", "idle",    "unattributed"};
static_assert(std::size(kCategoryNames) == kCategories);

constexpr std::string_view kCounterNames[] = {"examples",    "slots",  "host_copies", "host_copy_bytes",
                                              "value_reads", "traces", "trace_ns",    "communication_bytes",
                                              "flops"};
static_assert(std::size(kCounterNames) == kCounters);

double ms(double ns) { return ns / 1e6; }
double percent(int64_t part, int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

Json to_json(const Distribution& d) {
  return {{"count", d.count},
          {"mean_ms", ms(d.mean)},
          {"median_ms", ms(d.median)},
          {"p95_ms", ms(d.p95)},
          {"max_ms", ms(static_cast<double>(d.max))},
          {"total_ms", ms(static_cast<double>(d.total))}};
}

Json to_json(const Times& times) {
  Json json = Json::object();
  for (size_t c = 0; c < kCategories; ++c)
    json[std::string(name(static_cast<Category>(c)))] = ms(static_cast<double>(times.values[c]));
  return json;
}

Json to_json(const Counts& counts) {
  Json json = Json::object();
  for (size_t c = 0; c < kCounters; ++c) json[std::string(name(static_cast<Counter>(c)))] = counts.values[c];
  return json;
}

Json to_json(const ReplicaSummary& replica) {
  Json times = Json::object();
  for (size_t c = 0; c < kCategories; ++c)
    times[std::string(name(static_cast<Category>(c)))] = to_json(replica.times[c]);
  return {{"wall", to_json(replica.wall)},
          {"times", std::move(times)},
          {"measured_wall_ms", ms(static_cast<double>(replica.measured_wall_ns))},
          {"counts", to_json(replica.counts)},
          {"partial_steps", replica.partial_steps},
          {"empty_steps", replica.empty_steps},
          {"first_step",
           {{"wall_ms", ms(static_cast<double>(replica.first.wall_ns))},
            {"times_ms", to_json(replica.first.times)},
            {"counts", to_json(replica.first.counts)}}},
          {"outside_ms", ms(static_cast<double>(replica.outside_ns))},
          {"outside_times_ms", to_json(replica.outside)}};
}

}  // namespace

std::string_view name(Category category) { return kCategoryNames[static_cast<size_t>(category)]; }
std::string_view name(Counter counter) { return kCounterNames[static_cast<size_t>(counter)]; }

namespace {

// " compute 91.0%, host 2.1%, ..., unattributed 0.3%"
std::string shares(const ReplicaSummary& replica) {
  const Distribution& descheduled = replica[Category::descheduled];
  std::string text;
  for (size_t c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    if (category == Category::descheduled && descheduled.count < replica.wall.count) {
      // Of the steps that measured it: in the others it hides in the categories around it.
      text += descheduled.count == 0
                  ? " descheduled not measured,"
                  : fmt::format(" descheduled {:.1f}% of {} steps,",
                                percent(descheduled.total, replica.measured_wall_ns), descheduled.count);
      continue;
    }
    const double share = percent(replica.times[c].total, replica.wall.total);
    if (share >= 0.05 || category == Category::unattributed)
      text += fmt::format(" {} {:.1f}%,", name(category), share);
  }
  text.pop_back();
  return text;
}

}  // namespace

std::string to_text(const RunSummary& summary) {
  int64_t steps = 0, examples = 0, longest = 0;
  for (const ReplicaSummary& replica : summary.replicas) {
    steps = std::max(steps, replica.wall.count);
    longest = std::max(longest, replica.wall.total);
    examples += replica.counts[Counter::examples];
  }
  if (longest == 0) return "step clock: no step was timed\n";

  const Distribution& first = summary.replicas.front().wall;
  const bool several = summary.replicas.size() > 1;
  std::string text =
      fmt::format("{} step{} on {} replica{}: mean {:.3g} ms, median {:.3g}, p95 {:.3g}, max {:.3g}", steps,
                  steps == 1 ? "" : "s", summary.replicas.size(), several ? "s" : "", ms(first.mean),
                  ms(first.median), ms(first.p95), ms(static_cast<double>(first.max)));
  if (examples > 0)
    text += fmt::format("; {:.0f} examples/s",
                        static_cast<double>(examples) * 1e9 / static_cast<double>(longest));
  text += '\n';
  for (size_t r = 0; r < summary.replicas.size(); ++r)
    if (summary.replicas[r].wall.total > 0)
      text += fmt::format("  {}{}\n", several ? fmt::format("replica {}:", r) : std::string(),
                          several ? shares(summary.replicas[r]) : shares(summary.replicas[r]).substr(1));
  return text;
}

std::string to_json(const RunSummary& summary) {
  Json json{{"measures_descheduled", summary.measures_descheduled}, {"replicas", Json::array()}};
  for (const ReplicaSummary& replica : summary.replicas) json["replicas"].push_back(to_json(replica));
  if (!summary.input.bottleneck.empty())
    json["input"] = {{"bottleneck", summary.input.bottleneck}, {"fix", summary.input.fix}};
  return json.dump(2);
}

}  // namespace lockstep::observe
