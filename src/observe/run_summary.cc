#include "lockstep/observe/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/observe/run_report.h"
#include "observe/time_unit.h"

namespace lockstep::observe {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCategoryNames[] = {
    "input_wait",         "copy",      "compute",     "exposed_communication",
    "waiting_for_others", "compiling", "host",        "loop",
    "descheduled",        "idle",      "unattributed"};
static_assert(std::size(kCategoryNames) == kCategories);

constexpr std::string_view kCounterNames[] = {
    "examples", "slots",       "host_copies",         "host_copy_bytes", "value_reads",
    "traces",   "checking_ns", "communication_bytes", "flops",           "half_flops"};
static_assert(std::size(kCounterNames) == kCounters);

constexpr size_t kShownReplicas = 16;  // in lines of their own

double ms(double ns) { return ns / 1e6; }
double percent(int64_t part, int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

Json to_json(const Distribution& d) {
  return {{"count", d.count},
          {"mean_ms", ms(d.mean)},
          {"median_ms", ms(d.median)},
          {"p95_ms", ms(d.p95)},
          {"p10_ms", ms(d.p10)},
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
           {{"steps", replica.first.steps},
            {"wall_ms", ms(static_cast<double>(replica.first.wall_ns))},
            {"times_ms", to_json(replica.first.times)},
            {"counts", to_json(replica.first.counts)}}},
          {"outside_ms", ms(static_cast<double>(replica.outside_ns))},
          {"outside_times_ms", to_json(replica.outside)},
          {"compiling_ms", ms(static_cast<double>(replica.compiling_ns))},
          {"late_compiling_ms", ms(static_cast<double>(replica.late_compiling_ns))}};
}

constexpr std::string_view kKindNames[] = {"loop", "strategy", "arrays", "dataset", "command_line"};

Json to_json(const RunSetting& setting) {
  return {{"kind", kKindNames[static_cast<size_t>(setting.kind)]},
          {"batch_size", setting.batch_size},
          {"examples", setting.examples},
          {"steps_per_execution", setting.steps_per_execution},
          {"threads", setting.threads},
          {"cores", setting.cores},
          {"asynchronous", setting.asynchronous},
          {"waited_for_cores_s", setting.waited_for_cores_s},
          {"same_examples", setting.same_examples},
          {"flops_per_second", setting.flops_per_second},
          {"half_flops_per_second", setting.half_flops_per_second}};
}

Json to_json(const MemorySummary& memory) {
  Json uses = Json::array(), samples = Json::array();
  for (const MemorySummary::Use& use : memory.uses)
    uses.push_back({{"name", use.name},
                    {"before", use.before},
                    {"at_peak", use.at_peak},
                    {"after", use.after},
                    {"grown", use.grown}});
  for (const MemorySummary::Sample& sample : memory.samples)
    samples.push_back({ms(static_cast<double>(sample.ns)), sample.bytes});
  return {{"device", memory.device},
          {"before", memory.before},
          {"peak", memory.peak},
          {"peak_ms", ms(static_cast<double>(memory.peak_ns))},
          {"after", memory.after},
          {"limit", memory.limit},
          {"reserved", memory.reserved},
          {"largest_free", memory.largest_free},
          {"fragmentation", fragmentation(memory)},
          {"uses", std::move(uses)},
          {"samples_ms_bytes", std::move(samples)}};
}

}  // namespace

double fragmentation(const MemorySummary& memory) {
  const int64_t cached = memory.reserved - memory.after;
  if (memory.reserved == 0 || cached <= 0) return 0;
  return std::clamp(1 - static_cast<double>(memory.largest_free) / static_cast<double>(cached), 0.0, 1.0);
}

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
      // The fraction is that of the steps that measured it: in the others it hides in the categories around
      // it.
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

std::string bytes_text(int64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; std::abs(value) >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  if (unit == 0) return fmt::format("{} B", bytes);
  return std::abs(value) >= 100 ? fmt::format("{:.0f} {}", value, kUnits[unit])
                                : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

// Bytes over time in a line of blocks, eight heights each: the highest in every span of time.
std::string plot(const MemorySummary& memory) {
  constexpr size_t kColumns = 40;
  constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (memory.samples.size() < 4 || memory.peak == 0) return {};
  const int64_t end = std::max<int64_t>(1, memory.samples.back().ns);
  std::array<int64_t, kColumns> highest{};
  const auto column = [&](int64_t ns) {
    return static_cast<size_t>(std::min<int64_t>(kColumns - 1, ns * static_cast<int64_t>(kColumns) / end));
  };
  // What is held holds until the next sample.
  for (size_t i = 0; i < memory.samples.size(); ++i) {
    const size_t last = i + 1 < memory.samples.size() ? column(memory.samples[i + 1].ns) : kColumns - 1;
    for (size_t c = column(memory.samples[i].ns); c <= last; ++c)
      highest[c] = std::max(highest[c], memory.samples[i].bytes);
  }
  highest[column(memory.peak_ns)] = memory.peak;
  std::string text;
  for (const int64_t bytes : highest)
    text += kBlocks[std::min<size_t>(
        7, static_cast<size_t>(8 * static_cast<double>(bytes) / static_cast<double>(memory.peak)))];
  return text;
}

std::string to_text(const MemorySummary& memory) {
  constexpr int64_t kNotable = 4096;  // bytes: a scalar here and there is not worth a word
  std::string text = fmt::format("  memory of {}: peak {}", memory.device, bytes_text(memory.peak));
  if (memory.limit > 0) text += " of " + bytes_text(memory.limit);
  std::string parts;
  for (const MemorySummary::Use& use : memory.uses)
    if (use.at_peak * 100 >= memory.peak && use.at_peak > 0)
      parts += fmt::format("{}{} {}", parts.empty() ? " (" : ", ", use.name, bytes_text(use.at_peak));
  if (!parts.empty()) text += parts + ")";
  if (memory.reserved > 0)
    text += fmt::format("; {} held from the GPU, {:.0f}% of what is unused in pieces",
                        bytes_text(memory.reserved), 100 * fragmentation(memory));
  text += '\n';
  if (const std::string line = plot(memory); !line.empty()) text += "    " + line + '\n';
  if (memory.after - memory.before >= kNotable) {
    std::string held;
    for (const MemorySummary::Use& use : memory.uses)
      if (use.after - use.before >= kNotable)
        held +=
            fmt::format("{}{} {}", held.empty() ? "" : ", ", use.name, bytes_text(use.after - use.before));
    text += fmt::format("    still held: {} more than before: {}\n", bytes_text(memory.after - memory.before),
                        held);
  }
  for (const MemorySummary::Use& use : memory.uses)
    if (use.grown >= kNotable)
      text += fmt::format("    grown since the first epoch: {} by {}\n", use.name, bytes_text(use.grown));
  return text;
}

// --- several workers ---

// Moves a part of the time from one category to the other.
void move(ReplicaSummary& replica, double part) {
  Distribution& from = replica.times[static_cast<size_t>(Category::exposed_communication)];
  Distribution& to = replica.times[static_cast<size_t>(Category::waiting_for_others)];
  const auto moved = static_cast<int64_t>(part * static_cast<double>(from.total));
  if (moved == 0) return;
  from.total -= moved;
  to.total += moved;
  // Which steps it was is not known: all alike.
  to.median += part * from.median, to.p95 += part * from.p95, to.p10 += part * from.p10;
  to.max += static_cast<int64_t>(part * static_cast<double>(from.max));
  to.count = from.count;
  from.max -= static_cast<int64_t>(part * static_cast<double>(from.max));
  from.median *= 1 - part, from.p95 *= 1 - part, from.p10 *= 1 - part;
  for (Distribution* each : {&from, &to})
    each->mean = static_cast<double>(each->total) / static_cast<double>(each->count);
  const auto first =
      static_cast<int64_t>(part * static_cast<double>(replica.first.times[Category::exposed_communication]));
  replica.first.times[Category::exposed_communication] -= first;
  replica.first.times[Category::waiting_for_others] += first;
}

double in_collectives(const ReplicaSummary& replica) {
  const Distribution& time = replica[Category::exposed_communication];
  return time.count > 0 ? static_cast<double>(time.total) / static_cast<double>(time.count) : 0;
}

// What a worker's mean step takes until the next one begins, callbacks and the input between them included:
// milliseconds.
struct WorkerStep {
  double whole = 0, waiting = 0, communication = 0;
  double own() const { return whole - waiting - communication; }
};
std::vector<WorkerStep> worker_steps(const RunSummary& summary) {
  std::vector<WorkerStep> steps;
  auto replica = summary.replicas.begin();
  for (const WorkerSummary& worker : summary.workers) {
    WorkerStep& step = steps.emplace_back();
    for (int r = 0; r < worker.replicas; ++r, ++replica) {
      const auto steps = static_cast<double>(std::max<int64_t>(1, replica->wall.count));
      step.whole +=
          ms(static_cast<double>(replica->wall.total + replica->outside_ns) / steps) / worker.replicas;
      step.waiting += ms((*replica)[Category::waiting_for_others].mean) / worker.replicas;
      step.communication += ms((*replica)[Category::exposed_communication].mean) / worker.replicas;
    }
  }
  return steps;
}

// What took time and was no step.
std::string beside_steps(const RunSummary& summary) {
  constexpr double kNotable = 0.05;  // of the steps' time
  const ReplicaSummary* longest = &summary.replicas.front();
  for (const ReplicaSummary& replica : summary.replicas)
    if (replica.compiling_ns + replica.outside_ns > longest->compiling_ns + longest->outside_ns)
      longest = &replica;
  std::string text;
  if (longest->compiling_ns > 0) {
    const TimeUnit in(ms(static_cast<double>(longest->compiling_ns)));
    const int64_t programs = longest->counts[Counter::traces];
    text += fmt::format("  compiling: {} {} for {} program{}, beside the steps\n",
                        in(ms(static_cast<double>(longest->compiling_ns))), in.name(), programs,
                        programs == 1 ? "" : "s");
  }
  if (static_cast<double>(longest->outside_ns) >= kNotable * static_cast<double>(longest->wall.total)) {
    const TimeUnit in(ms(static_cast<double>(longest->outside_ns)));
    text += fmt::format("  between the steps: {} {} of validation, checkpoints and the like\n",
                        in(ms(static_cast<double>(longest->outside_ns))), in.name());
  }
  return text;
}

// Slowest, fastest, and who waits for whom.
std::string workers_text(const RunSummary& summary) {
  const std::vector<WorkerStep> steps = worker_steps(summary);
  const auto by = [](auto value) {
    return [value](const WorkerStep& a, const WorkerStep& b) { return value(a) < value(b); };
  };
  const auto [fastest, slowest] =
      std::minmax_element(steps.begin(), steps.end(), by([](const WorkerStep& s) { return s.own(); }));
  const auto name = [&](auto step) {
    return summary.workers[static_cast<size_t>(step - steps.begin())].name;
  };
  const TimeUnit in(slowest->whole);
  std::string text =
      fmt::format("  slowest: {}, {} {} of its own work per step; fastest: {}, {} {}\n", name(slowest),
                  in(slowest->own()), in.name(), name(fastest), in(fastest->own()), in.name());
  const auto longest =
      std::max_element(steps.begin(), steps.end(), by([](const WorkerStep& s) { return s.waiting; }));
  if (longest->waiting < 0.01 * longest->whole || longest == slowest) return text;
  return text + fmt::format("  waiting: {} waits longest for the others, {} {} per step\n", name(longest),
                            in(longest->waiting), in.name());
}

}  // namespace

std::string replica_name(const RunSummary& summary, size_t replica) {
  size_t end = 0;
  for (const WorkerSummary& worker : summary.workers) {
    end += static_cast<size_t>(worker.replicas);
    if (replica < end) return fmt::format("replica {} of {}", replica, worker.name);
  }
  return fmt::format("replica {}", replica);
}

RunSummary joined(std::vector<RunSummary> workers, const std::vector<std::string>& names) {
  RunSummary all;
  double least = INFINITY;
  for (const RunSummary& worker : workers)
    for (const ReplicaSummary& replica : worker.replicas) least = std::min(least, in_collectives(replica));
  double longest_input = -1;
  for (size_t w = 0; w < workers.size(); ++w) {
    RunSummary& worker = workers[w];
    all.workers.push_back({names[w], static_cast<int>(worker.replicas.size())});
    all.measures_descheduled |= worker.measures_descheduled;
    if (w == 0) all.setting = worker.setting;
    if (all.sums.empty()) all.sums = worker.sums;
    if (all.on_cpu.empty() && !worker.on_cpu.empty()) all.on_cpu = worker.on_cpu + " at " + names[w];
    double input = 0;
    for (ReplicaSummary& replica : worker.replicas) {
      if (const double own = in_collectives(replica); own > least) move(replica, 1 - least / own);
      input = std::max(input, replica[Category::input_wait].mean);
      all.replicas.push_back(replica);
    }
    if (input > longest_input && !worker.input.bottleneck.empty()) {
      longest_input = input;
      all.input = std::move(worker.input);
      all.input.bottleneck += " at " + names[w];
    }
    for (MemorySummary& memory : worker.memory) {
      memory.device += " of " + names[w];
      all.memory.push_back(std::move(memory));
    }
  }
  return all;
}

namespace {

Distribution difference(const Distribution& before, const Distribution& now) {
  Distribution both{.count = now.count - before.count, .total = now.total - before.total};
  if (both.count > 0) both.mean = static_cast<double>(both.total) / static_cast<double>(both.count);
  both.median = both.p95 = both.p10 = both.mean;
  both.max = static_cast<int64_t>(both.mean);
  return both;
}

template <class Key, size_t kSize>
Table<Key, kSize> difference(const Table<Key, kSize>& before, const Table<Key, kSize>& now) {
  Table<Key, kSize> both;
  for (size_t i = 0; i < kSize; ++i) both.values[i] = now.values[i] - before.values[i];
  return both;
}

}  // namespace

RunSummary between(const RunSummary& before, const RunSummary& now) {
  RunSummary both = now;
  both.setting.waited_for_cores_s -= before.setting.waited_for_cores_s;
  for (size_t r = 0; r < both.replicas.size() && r < before.replicas.size(); ++r) {
    const ReplicaSummary& earlier = before.replicas[r];
    ReplicaSummary& replica = both.replicas[r];
    replica.wall = difference(earlier.wall, replica.wall);
    for (size_t c = 0; c < kCategories; ++c)
      replica.times[c] = difference(earlier.times[c], replica.times[c]);
    replica.measured_wall_ns -= earlier.measured_wall_ns;
    replica.counts = difference(earlier.counts, replica.counts);
    replica.partial_steps -= earlier.partial_steps;
    replica.empty_steps -= earlier.empty_steps;
    replica.outside_ns -= earlier.outside_ns;
    replica.outside = difference(earlier.outside, replica.outside);
    replica.compiling_ns -= earlier.compiling_ns;
    replica.late_compiling_ns -= earlier.late_compiling_ns;
    // Where steps came before, none of these is the first.
    if (earlier.wall.count == 0) continue;
    replica.first = StepRecord();
    replica.first.steps = 0;
  }
  return both;
}

std::string to_text(const RunSummary& summary) {
  const int64_t steps = observe::steps(summary);
  if (steps == 0)
    return "no step was timed: those of fit, strategy.run() and compiled functions (tf::function) are, ops "
           "that run one by one are not\n";

  const Distribution& first = summary.replicas.front().wall;
  const bool several = summary.replicas.size() > 1;
  const TimeUnit in(ms(first.mean));
  std::string text =
      fmt::format("{} step{} on {} replica{}{}: mean {} {}, median {}, p95 {}, max {}", steps,
                  steps == 1 ? "" : "s", summary.replicas.size(), several ? "s" : "",
                  summary.workers.empty() ? "" : fmt::format(" of {} workers", summary.workers.size()),
                  in(ms(first.mean)), in.name(), in(ms(first.median)), in(ms(first.p95)),
                  in(ms(static_cast<double>(first.max))));
  if (const double speed = examples_per_second(summary); speed > 0)
    text += fmt::format("; {:.0f} examples/s", speed);
  text += '\n';
  const size_t shown = std::min(summary.replicas.size(), kShownReplicas);
  for (size_t r = 0; r < shown; ++r)
    if (summary.replicas[r].wall.total > 0)
      text += fmt::format("  {}{}\n", several ? fmt::format("replica {}:", r) : std::string(),
                          several ? shares(summary.replicas[r]) : shares(summary.replicas[r]).substr(1));
  if (shown < summary.replicas.size())
    text +=
        fmt::format("  and {} more replicas, in the JSON of this summary\n", summary.replicas.size() - shown);
  text += beside_steps(summary);
  if (summary.workers.size() > 1) text += workers_text(summary);
  if (!summary.sums.empty()) text += fmt::format("  all-reduce: {}\n", summary.sums);
  const auto largest = std::max_element(summary.memory.begin(), summary.memory.end(),
                                        [](const auto& a, const auto& b) { return a.peak < b.peak; });
  if (largest != summary.memory.end() && largest->peak > 0) text += to_text(*largest);
  if (summary.memory.size() > 1) text += fmt::format("    the most of {} devices\n", summary.memory.size());
  return text;
}

std::string to_json(const RunSummary& summary) {
  Json json{{"measures_descheduled", summary.measures_descheduled},
            {"setting", to_json(summary.setting)},
            {"replicas", Json::array()}};
  for (const ReplicaSummary& replica : summary.replicas) json["replicas"].push_back(to_json(replica));
  for (const WorkerSummary& worker : summary.workers)
    json["workers"].push_back({{"name", worker.name}, {"replicas", worker.replicas}});
  if (!summary.input.bottleneck.empty())
    json["input"] = {{"bottleneck", summary.input.bottleneck}, {"fix", summary.input.fix}};
  if (!summary.sums.empty()) json["sums"] = summary.sums;
  if (!summary.on_cpu.empty()) json["on_cpu"] = summary.on_cpu;
  for (const MemorySummary& memory : summary.memory) json["memory"].push_back(to_json(memory));
  return json.dump(2);
}

}  // namespace lockstep::observe
