#include "lockstep/observe/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "observe/device_view.h"
#include "observe/fixes.h"
#include "observe/steady_run.h"
#include "observe/time_unit.h"

namespace lockstep::observe {
namespace {

using Run = SteadyRun;

// A category below this share of the time is not worth a word: it may be what a step costs at least.
constexpr double kNotable = 0.10;
constexpr double kHandOverMs = 0.01;  // a batch that is ready goes from one thread to another, measured
constexpr double kOverheadShare = 0.30;
constexpr double kSlowRatio = 1.15;
constexpr double kWastedSlots = 0.05;
constexpr int64_t kLateTraces = 3;  // one more is that of a partial last batch
constexpr int64_t kGrownBytes = 1 << 20;
constexpr double kCloseToLimit = 0.95;
constexpr double kTargetOverhead = 0.10;
constexpr double kMaxBatchFactor = 64;

std::string percent(double share) { return fmt::format("{:.0f}%", share * 100); }

const RunSetting& setting(const Run& run) { return run.summary->setting; }

// The gain where `saved` milliseconds of a step go away.
void expect_saving(Verdict& verdict, double wall, double saved, std::string_view assumption) {
  const double left = std::max(wall - saved, wall * 0.01);
  verdict.speedup = wall / left;
  const TimeUnit in(wall);
  verdict.gain = fmt::format("up to {:.2f}x, from {} to {} {} per step, {}", verdict.speedup, in(wall),
                             in(left), in.name(), assumption);
}

// "5.1, 5.0, 8.3"
template <class F>
std::string each(const Run& run, F&& value) {
  std::string text;
  for (const MeanStep& r : run.replicas) text += fmt::format("{}{:.3g}", text.empty() ? "" : ", ", value(r));
  return text;
}

// The median and p95 of a category where it took longest.
std::string spread(const Run& run, Category category) {
  const ReplicaSummary* worst = &run.summary->replicas.front();
  for (const ReplicaSummary& r : run.summary->replicas)
    if (r[category].total > (*worst)[category].total) worst = &r;
  const TimeUnit in(run.mean.wall);
  return fmt::format("median {}, p95 {}", in((*worst)[category].median / 1e6),
                     in((*worst)[category].p95 / 1e6));
}

// The batch size of all replicas together; 0: nobody has counted.
int64_t batch_size(const Run& run) {
  if (setting(run).batch_size > 0) return setting(run).batch_size;
  const double batch = run.mean[Counter::slots] > 0 ? run.mean[Counter::slots] : run.mean[Counter::examples];
  return std::llround(batch);
}

// A batch has no more examples than there are.
double possible_factor(const Run& run, double factor) {
  const int64_t batch = batch_size(run), examples = setting(run).examples;
  if (batch == 0 || examples == 0) return factor;
  return std::min(factor, std::floor(static_cast<double>(examples) / static_cast<double>(batch)));
}

std::string larger_batch(const Run& run, double factor, const std::string& words) {
  const auto batch = static_cast<double>(batch_size(run));
  if (batch == 0 && setting(run).kind != RunKind::command_line)
    return fixes::batch_size(*run.summary, 0, fmt::format("{:.0f} times as large; {}", factor, words));
  return fixes::batch_size(*run.summary, std::llround(batch * factor), words);
}

// The host waits for what a device computes beside it: what the host does meanwhile costs nothing.
bool device_limits(const Run& run) {
  return setting(run).asynchronous && run.share(Category::compute) >= 1 - 1 / kMinGain;
}

bool too_many_threads(const Run& run) { return setting(run).threads > setting(run).cores; }

// Milliseconds per step that replicas may have waited for each other because other programs had the
// processors: nothing in this one is wrong with that.
double excused(const Run& run) {
  if (too_many_threads(run)) return 0;
  double descheduled = 0;
  for (const MeanStep& r : run.replicas) descheduled += r.descheduled_share * run.mean.wall;
  const double waited = setting(run).waited_for_cores_s * 1e3 / static_cast<double>(run.steps);
  return std::max(descheduled, waited);
}

bool disturbed(const Run& run) { return excused(run) >= (1 - 1 / kMinGain) * run.mean.wall; }

// Milliseconds per step: the mean, and where other programs disturb some steps what most of them take.
double typical(const Run& run, double mean, const auto& distribution) {
  if (!disturbed(run)) return mean;
  double medians = 0;
  for (const ReplicaSummary& r : run.summary->replicas) medians += distribution(r).median / 1e6;
  return std::min(mean, medians / static_cast<double>(run.replicas.size()));
}
double typical(const Run& run, Category category) {
  return typical(run, run.mean[category], [=](const ReplicaSummary& r) { return r[category]; });
}
double typical_wall(const Run& run) {
  return typical(run, run.mean.wall, [](const ReplicaSummary& r) { return r.wall; });
}

std::optional<Verdict> input_bound(const Run& run) {
  const double outside = disturbed(run) ? 0 : run.outside_input_wait;
  const double wait = typical(run, Category::input_wait) + outside;
  const double wall = typical_wall(run) + outside;
  if (wait - kHandOverMs < kNotable * wall || device_limits(run)) return std::nullopt;
  Verdict v;
  v.cause =
      fmt::format("{} for the next batch {} of the time",
                  run.replicas.size() > 1 ? "the replicas wait" : "every step waits", percent(wait / wall));
  const TimeUnit in(run.mean.wall);
  v.evidence =
      fmt::format("input_wait {} of {} {} per step ({}); compute {} {}", in(wait), in(wall), in.name(),
                  spread(run, Category::input_wait), in(run.mean[Category::compute]), in.name());
  v.fix = fixes::input_ready_in_time(*run.summary, batch_size(run));
  // The pipeline knows better.
  const InputSummary& input = run.summary->input;
  if (!input.bottleneck.empty()) v.evidence += "; the input's bottleneck is " + input.bottleneck;
  if (!input.fix.empty()) v.fix = input.fix;
  expect_saving(v, wall, wait, "if the input is ready in time");
  return v;
}

std::optional<Verdict> communication_bound(const Run& run) {
  const double wait = typical(run, Category::exposed_communication), wall = typical_wall(run);
  if (wait < kNotable * wall) return std::nullopt;
  const double factor = possible_factor(run, 2);
  const std::string bytes_fix = fixes::fewer_bytes(*run.summary);
  if (factor < 2 && bytes_fix.empty()) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("{} of the time is communication that nothing overlaps", percent(wait / wall));
  const TimeUnit in(wall);
  v.evidence = fmt::format("exposed_communication {} of {} {} per step ({})", in(wait), in(wall), in.name(),
                           spread(run, Category::exposed_communication));
  if (const double bytes = run.mean[Counter::communication_bytes]; bytes > 0)
    v.evidence += fmt::format("; {:.3g} MB sent per step by all replicas", bytes / 1e6);
  const double at_most = wall / std::max(wall - wait, wall * 0.01);
  if (!bytes_fix.empty()) {
    v.fix = bytes_fix;
    expect_saving(v, wall, wait / 2, "if half the bytes take half the time");
    return v;
  }
  v.fix = larger_batch(run, 2, "and a learning rate to match");
  v.speedup = 2 * wall / (2 * wall - wait);
  v.gain = fmt::format(
      "{:.2f}x examples/s with twice the batch, since a step's communication does not grow with it; "
      "at most {:.2f}x if all of it were hidden",
      v.speedup, at_most);
  return v;
}

std::optional<Verdict> overhead_bound(const Run& run) {
  const double host = typical(run, Category::host), compute = typical(run, Category::compute);
  // On a machine that others use, a device's thread is not awake at once.
  const double idle = disturbed(run) ? 0 : run.mean[Category::idle];
  const double overhead = host + idle, wall = typical_wall(run);
  if (overhead < kOverheadShare * wall || overhead <= compute) return std::nullopt;
  const double work = wall - overhead;
  double factor = 2;
  while (factor < kMaxBatchFactor && overhead > kTargetOverhead * (overhead + factor * work)) factor *= 2;
  factor = possible_factor(run, factor);
  if (factor < 2) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("the work of a step is too small: {} of the time goes into starting it",
                        percent(overhead / wall));
  const TimeUnit in(wall);
  v.evidence = fmt::format("host {} and idle {} of {} {} per step; compute {} {}", in(host), in(idle),
                           in(wall), in.name(), in(compute), in.name());
  if (run.mean[Counter::examples] > 0)
    v.evidence +=
        fmt::format(" for {} examples per replica", each(run, [](auto& r) { return r[Counter::examples]; }));
  v.fix = larger_batch(run, factor, "and a learning rate to match");
  v.speedup = factor * wall / (overhead + factor * work);
  v.gain = fmt::format("about {:.2f}x examples/s with {:.0f} times the batch, if the work grows with it",
                       v.speedup, factor);
  return v;
}

std::optional<Verdict> loop_bound(const Run& run) {
  const double own = typical(run, Category::loop), wall = typical_wall(run);
  if (own < kNotable * wall || device_limits(run)) return std::nullopt;
  const bool fits = setting(run).kind == RunKind::arrays || setting(run).kind == RunKind::dataset ||
                    setting(run).kind == RunKind::command_line;
  Verdict v;
  v.cause = fmt::format("{} {} of the time, while no device works",
                        fits ? "callbacks take" : "what the loop does between two steps takes",
                        percent(own / wall));
  const TimeUnit in(wall);
  v.evidence = fmt::format("loop {} of {} {} per step ({}); compute {} {}", in(own), in(wall), in.name(),
                           spread(run, Category::loop), in(run.mean[Category::compute]), in.name());
  v.fix = fixes::work_beside_steps(*run.summary);
  expect_saving(v, wall, own, "if it is done beside the steps, or not after each");
  return v;
}

// The replica whose compute is longest, where it is notably longer than the others' median.
std::optional<size_t> slowest_replica(const Run& run) {
  // Threads that are in each other's way are so by chance.
  if (run.replicas.size() < 2 || too_many_threads(run)) return std::nullopt;
  std::vector<std::pair<double, size_t>> computes;
  for (size_t r = 0; r < run.replicas.size(); ++r)
    computes.emplace_back(run.replicas[r][Category::compute], r);
  std::sort(computes.begin(), computes.end());
  const auto [longest, index] = computes.back();
  const double others = computes[(computes.size() - 1) / 2].first;
  const double excess = longest - others - excused(run);
  const bool slow = longest >= kSlowRatio * others && excess >= (1 - 1 / kMinGain) * run.mean.wall;
  return slow ? std::optional(index) : std::nullopt;
}

std::optional<Verdict> slow_replica(const Run& run) {
  constexpr double kLeastWeight = 0.01;
  const std::optional<size_t> slowest = slowest_replica(run);
  if (!slowest) return std::nullopt;
  const auto compute = [](const MeanStep& r) { return r[Category::compute]; };
  const auto examples = [](const MeanStep& r) { return r[Counter::examples]; };
  const bool counted = std::all_of(run.replicas.begin(), run.replicas.end(),
                                   [&](const MeanStep& r) { return examples(r) > 0 && compute(r) > 0; });
  double speeds = 0, work = 0, fastest = INFINITY;
  const auto speed = [&](const MeanStep& r) {
    return (counted ? examples(r) : 1.0) / std::max(compute(r), run.mean.wall * 1e-6);
  };
  for (const MeanStep& r : run.replicas) {
    speeds += speed(r);
    work += counted ? examples(r) : 1.0;
    fastest = std::min(fastest, compute(r));
  }
  std::vector<double> weights;
  for (const MeanStep& r : run.replicas) weights.push_back(speed(r) / speeds);
  // A replica that computes next to nothing has no examples: it says nothing of its device.
  if (*std::min_element(weights.begin(), weights.end()) < kLeastWeight) return std::nullopt;
  const MeanStep& slow = run.replicas[*slowest];
  Verdict v;
  const std::string name = replica_name(*run.summary, *slowest);
  v.cause = fmt::format("{} computes {:.2f} times as long as the fastest, and all wait for it", name,
                        compute(slow) / std::max(fastest, run.mean.wall * 1e-6));
  const TimeUnit in(run.mean.wall);
  std::string computes;
  for (const MeanStep& r : run.replicas) computes += (computes.empty() ? "" : ", ") + in(compute(r));
  v.evidence =
      fmt::format("compute {} {} per step on replicas 0 to {}", computes, in.name(), run.replicas.size() - 1);
  if (counted) v.evidence += fmt::format(", for {} examples", each(run, examples));
  v.evidence += fmt::format("; waiting_for_others {} of {} {}", in(run.mean[Category::waiting_for_others]),
                            in(run.mean.wall), in.name());
  v.fix = fixes::shares(*run.summary, weights);
  expect_saving(v, run.mean.wall, compute(slow) - work / speeds,
                run.summary->workers.empty() ? "if each replica gets the share it can compute in time"
                                             : "if all computed alike fast");
  return v;
}

std::optional<Verdict> waiting_for_others(const Run& run) {
  if (slowest_replica(run) || too_many_threads(run)) return std::nullopt;
  const double waiting = run.mean[Category::waiting_for_others] - excused(run);
  if (waiting < kNotable * run.mean.wall) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("replicas wait for each other {} of the time, though none is slower on average",
                        percent(run.share(Category::waiting_for_others)));
  const TimeUnit in(run.mean.wall);
  v.evidence = fmt::format(
      "waiting_for_others {} of {} {} per step ({}); compute {} on every replica: steps of uneven length",
      in(run.mean[Category::waiting_for_others]), in(run.mean.wall), in.name(),
      spread(run, Category::waiting_for_others), spread(run, Category::compute));
  v.fix = fixes::trace(*run.summary);
  expect_saving(v, run.mean.wall, waiting, "if all arrive together");
  return v;
}

std::optional<Verdict> partial_replicas(const Run& run) {
  const double slots = run.mean[Counter::slots], examples = run.mean[Counter::examples];
  if (slots <= 0 || examples <= 0) return std::nullopt;
  const auto replicas = static_cast<int64_t>(run.replicas.size());
  const double replica_steps = static_cast<double>(run.steps) * static_cast<double>(replicas);
  const double wasted = 1 - examples / slots;
  if (wasted < kWastedSlots && static_cast<double>(run.empty_steps) < kWastedSlots * replica_steps)
    return std::nullopt;
  Verdict v;
  v.cause = run.empty_steps > 0
                ? fmt::format("{} had no example in {} of {} steps", replica_name(*run.summary, run.emptiest),
                              run.summary->replicas[run.emptiest].empty_steps, run.steps)
                : fmt::format("{} of the places in the replicas' batches stay empty", percent(wasted));
  v.evidence = fmt::format(
      "{:.3g} examples per step in {:.3g} places, {} on replicas 0 to {}; {} partial and {} empty "
      "slices in {:.0f}",
      examples, slots, each(run, [](auto& r) { return r[Counter::examples]; }), run.replicas.size() - 1,
      run.partial_steps, run.empty_steps, replica_steps);
  // Incomplete in most steps: the batch does not divide. Now and then: the last batch of an epoch.
  const bool always = 2 * run.incomplete_steps >= run.steps;
  const int64_t whole = (std::max(batch_size(run), replicas) + replicas - 1) / replicas * replicas;
  v.fix = always ? fixes::batch_size(*run.summary, whole, fmt::format("a multiple of {} replicas", replicas))
                 : fixes::whole_batches(*run.summary, whole);
  v.speedup = slots / examples;
  v.gain = fmt::format("up to {:.2f}x examples/s, if a full slice takes as long as a partial one", v.speedup);
  return v;
}

std::optional<Verdict> retracing(const Run& run) {
  if (run.late_traces < kLateTraces) return std::nullopt;
  const double wall = typical_wall(run) + run.late_compiling;
  Verdict v;
  v.cause =
      fmt::format("functions are traced again and again: {} times after the first step", run.late_traces);
  const TimeUnit in(wall);
  v.evidence = fmt::format("{} traces in {} steps; compiling takes {} of {} {} per step", run.late_traces,
                           run.steady_steps, in(run.late_compiling), in(wall), in.name());
  v.fix = fixes::one_shape(*run.summary, batch_size(run));
  expect_saving(v, wall, run.late_compiling, "if one trace serves all steps");
  return v;
}

std::optional<Verdict> host_copies(const Run& run) {
  const auto& mean = run.mean;
  const double replicas = static_cast<double>(run.replicas.size());
  const double reads = mean[Counter::value_reads] / replicas, copies = mean[Counter::host_copies];
  // The host goes on when the device has finished, and the device when the host has given it something to do.
  const double alternating =
      setting(run).asynchronous && reads >= kReadsPerStep
          ? std::min(mean[Category::host] + mean[Category::loop], mean[Category::compute])
          : 0;
  const double copy = copies >= 1 && !device_limits(run) ? mean[Category::copy] : 0;
  if (std::max(alternating, copy) <= 0) return std::nullopt;
  const bool by_reads = alternating >= copy;
  Verdict v;
  v.cause = by_reads ? "the program reads a value on the host every step, and the devices wait for it"
                     : "data moves between devices inside every step";
  const TimeUnit in(mean.wall);
  v.evidence = fmt::format("{:.3g} value reads and {:.3g} copies ({:.3g} MB) per step; copy {} of {} {}",
                           reads, copies, mean[Counter::host_copy_bytes] / 1e6, in(mean[Category::copy]),
                           in(mean.wall), in.name());
  v.fix = by_reads ? fixes::values_on_device(*run.summary) : fixes::data_on_device(*run.summary);
  expect_saving(v, mean.wall, by_reads ? alternating : copy,
                by_reads ? "if host and devices work at the same time" : "if no copy is waited for");
  return v;
}

std::optional<Verdict> descheduled(const Run& run) {
  // Where the program has no more threads than there are processors, others took them, and nothing in it is
  // wrong.
  if (!too_many_threads(run) || setting(run).cores == 0) return std::nullopt;
  // Few steps measure it; the system counts all of the process.
  const double waited_ms = setting(run).waited_for_cores_s * 1e3 / static_cast<double>(run.steps);
  const double waited = std::min(1.0, waited_ms / static_cast<double>(run.replicas.size()) / run.mean.wall);
  const double share = std::max(run.mean.descheduled_share, waited);
  Verdict v;
  v.cause = fmt::format("threads with work were not run {} of the time: too many threads for the processors",
                        percent(share));
  v.evidence = fmt::format(
      "{} threads on {} processors; descheduled {} of the time on replicas 0 to {}, in the steps that "
      "measured it; all threads together waited {:.3g} ms per step for a processor",
      setting(run).threads, setting(run).cores, each(run, [](auto& r) { return r.descheduled_share; }),
      run.replicas.size() - 1, waited_ms);
  v.fix = fixes::threads(*run.summary, run.replicas.size());
  expect_saving(v, run.mean.wall, share * run.mean.wall, "on processors of their own");
  return v;
}

std::optional<Verdict> numerics_checked(const Run& run) {
  const double checking = run.mean[Counter::checking_ns] / 1e6 / static_cast<double>(run.replicas.size());
  if (checking <= 0) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("every result is looked at for NaN and infinity, which takes {} of the time",
                        percent(checking / run.mean.wall));
  const TimeUnit in(run.mean.wall);
  v.evidence = fmt::format("{} of {} {} per step; enable_check_numerics() is on", in(checking),
                           in(run.mean.wall), in.name());
  v.fix = fixes::no_checks(*run.summary);
  expect_saving(v, run.mean.wall, checking, "without the checks");
  return v;
}

std::optional<Verdict> unattributed(const Run& run) {
  if (run.share(Category::unattributed) < kNotable) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("{} of the time was measured by nothing", percent(run.share(Category::unattributed)));
  const TimeUnit in(run.mean.wall);
  v.evidence = fmt::format("unattributed {} of {} {} per step ({})", in(run.mean[Category::unattributed]),
                           in(run.mean.wall), in.name(), spread(run, Category::unattributed));
  v.fix = fixes::trace(*run.summary);
  v.gain = "not known: what the time went into has to be found first";
  return v;
}

std::optional<Verdict> memory_grows(const Run& run) {
  for (const MemorySummary& memory : run.summary->memory)
    for (const MemorySummary::Use& use : memory.uses) {
      if (use.grown < kGrownBytes || use.grown * 100 < memory.peak) continue;
      Verdict v;
      v.cause = fmt::format("{} on {} take more memory with every epoch", use.name, memory.device);
      v.evidence = fmt::format("{:.3g} MB more at the end than after the first epoch; {:.3g} MB at the peak",
                               static_cast<double>(use.grown) / 1e6, static_cast<double>(memory.peak) / 1e6);
      v.fix = fixes::free_results(*run.summary);
      v.gain = "no speed, but a run that does not end with out_of_memory";
      return v;
    }
  return std::nullopt;
}

std::optional<Verdict> memory_close(const Run& run) {
  for (const MemorySummary& memory : run.summary->memory) {
    if (memory.limit == 0 ||
        static_cast<double>(memory.peak) < kCloseToLimit * static_cast<double>(memory.limit))
      continue;
    Verdict v;
    v.cause = fmt::format("{} was nearly out of memory", memory.device);
    v.evidence = fmt::format("{:.3g} of {:.3g} MB at the peak{}", static_cast<double>(memory.peak) / 1e6,
                             static_cast<double>(memory.limit) / 1e6,
                             memory.uses.empty() ? "" : "; most of it: " + memory.uses[0].name);
    v.fix = fixes::less_memory(*run.summary, batch_size(run));
    v.gain = "no speed, but room for a larger batch, another shape or another program";
    return v;
  }
  return std::nullopt;
}

std::optional<Verdict> not_sharded(const Run& run) {
  const int same = setting(run).same_examples;
  if (same < 2) return std::nullopt;
  const bool of_workers = !run.summary->workers.empty();
  Verdict v;
  v.cause = fmt::format("{} {} compute the same examples: the data is not shared among them", same,
                        of_workers ? "workers" : "replicas");
  v.evidence = of_workers ? "their first batches have the same values"
                          : "run() was called with tensors that were not distributed, which every replica "
                            "gets whole";
  v.fix = fixes::share_examples(*run.summary);
  v.speedup = same;
  v.gain = fmt::format("{}x examples that are not the same, in the time that these take", same);
  return v;
}

std::optional<Verdict> ops_on_cpu(const Run& run) {
  if (run.summary->on_cpu.empty()) return std::nullopt;
  Verdict v;
  v.cause = "the CPU computes what was to run, or could, on a GPU";
  v.evidence = "on the CPU: " + run.summary->on_cpu;
  v.fix = fixes::gpu_in_place_of_cpu(*run.summary);
  v.gain = "not known: no GPU could be tried";
  return v;
}

// first: whatever else there is to gain, it is gained on the wrong device.
enum class Promise : uint8_t { first, speed, other };
struct Rule {
  const char* id;
  std::optional<Verdict> (*judge)(const Run&);
  Promise promise = Promise::speed;
};

constexpr Rule kRules[] = {
    {"ops-on-cpu", ops_on_cpu, Promise::first},
    {"input-bound", input_bound},
    {"communication-bound", communication_bound},
    {"overhead-bound", overhead_bound},
    {"loop-bound", loop_bound},
    {"slow-replica", slow_replica},
    {"waiting-for-others", waiting_for_others},
    {"partial-replicas", partial_replicas},
    {"retracing", retracing},
    {"host-copies", host_copies},
    {"descheduled", descheduled},
    {"numerics-checked", numerics_checked},
    {"not-sharded", not_sharded},
    {"unattributed", unattributed, Promise::other},
    {"memory-grows", memory_grows, Promise::other},
    {"memory-close", memory_close, Promise::other},
};

}  // namespace

std::vector<Verdict> judge(const RunSummary& summary) {
  std::vector<Verdict> verdicts;
  const RunSummary seen = device_view(summary);
  const std::optional<Run> run = steady_run(seen);
  if (!run) return verdicts;
  std::ptrdiff_t first = 0;  // those rules stand in front
  for (const Rule& rule : kRules) {
    std::optional<Verdict> verdict = rule.judge(*run);
    if (!verdict || (rule.promise == Promise::speed && verdict->speedup < kMinGain)) continue;
    verdict->id = rule.id;
    first += rule.promise == Promise::first;
    verdicts.push_back(std::move(*verdict));
  }
  std::stable_sort(verdicts.begin() + first, verdicts.end(),
                   [](const Verdict& a, const Verdict& b) { return a.speedup > b.speedup; });
  if (verdicts.size() > kMostVerdicts) verdicts.resize(kMostVerdicts);
  return verdicts;
}

namespace {

// Per second, of so many operations, `half` of them on 16-bit floats: each kind at its own rate. 0: not
// known.
double ceiling(const RunSetting& setting, double flops, double half) {
  if (setting.flops_per_second <= 0) return 0;
  const double half_rate =
      setting.half_flops_per_second > 0 ? setting.half_flops_per_second : setting.flops_per_second;
  return flops / ((flops - half) / setting.flops_per_second + half / half_rate);
}

}  // namespace

std::string bound_by(const RunSummary& given) {
  const RunSummary summary = device_view(given);
  const std::optional<Run> run = steady_run(summary);
  if (!run) return {};
  size_t largest = 0;
  for (size_t c = 0; c < kCategories; ++c) {
    // Processors that other programs had are told apart, below.
    if (static_cast<Category>(c) == Category::descheduled && !too_many_threads(*run)) continue;
    if (run->mean.times[c] > run->mean.times[largest]) largest = c;
  }
  const auto category = static_cast<Category>(largest);
  std::string text = fmt::format("{} takes {} of the time", name(category), percent(run->share(category)));
  // Where a device computes beside the host, only the time of a whole step is known.
  const double seconds = (summary.setting.asynchronous ? run->mean.wall : run->mean[Category::compute]) / 1e3;
  const double flops = run->mean[Counter::flops] / static_cast<double>(run->replicas.size());
  if (category == Category::compute && flops > 0 && seconds > 0) {
    const double half = run->mean[Counter::half_flops] / static_cast<double>(run->replicas.size());
    const double rate = flops / seconds, most = ceiling(summary.setting, flops, half);
    const bool tera = std::max(rate, most) >= 1e12;
    const double unit = tera ? 1e12 : 1e9;
    const char* const name = tera ? "TFLOP/s" : "GFLOP/s";
    text += most > 0 ? fmt::format(", at {:.0f}% of what the device can do ({:.3g} of {:.3g} {})",
                                   std::min(100.0, 100 * rate / most), rate / unit, most / unit, name)
                     : fmt::format(", at {:.3g} {}", rate / unit, name);
  }
  const double taken =
      std::min(1.0, excused(*run) / run->mean.wall / static_cast<double>(run->replicas.size()));
  if (taken >= 1 - 1 / kMinGain)
    text += fmt::format("; other programs had its processors {} of the time", percent(taken));
  return text;
}

std::string to_text(std::span<const Verdict> verdicts) {
  std::string text;
  for (const Verdict& v : verdicts)
    text += fmt::format("{}: {}\n  evidence: {}\n  fix:      {}\n  gain:     {}\n", v.id, v.cause, v.evidence,
                        v.fix, v.gain);
  return text;
}

std::string to_json(std::span<const Verdict> verdicts) {
  auto array = nlohmann::ordered_json::array();
  for (const Verdict& v : verdicts)
    array.push_back({{"id", v.id},
                     {"cause", v.cause},
                     {"evidence", v.evidence},
                     {"fix", v.fix},
                     {"gain", v.gain},
                     {"speedup", v.speedup}});
  return array.dump(2);
}

}  // namespace lockstep::observe
