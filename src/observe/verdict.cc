#include "lockstep/observe/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "observe/steady_run.h"
#include "observe/time_unit.h"

namespace lockstep::observe {
namespace {

using Run = SteadyRun;

// A category below this share of the time is not worth a word; halving it gains less than 5%.
constexpr double kNotable = 0.10;
constexpr double kOverheadShare = 0.30;
constexpr double kSlowRatio = 1.15;
constexpr double kWastedSlots = 0.05;
constexpr double kDescheduledShare = 0.05;
constexpr double kCopyShare = 0.02;
constexpr int64_t kLateTraces = 3;
constexpr double kTracedShare =
    0.02;  // workers that form anew in an elastic run trace anew, some ten milliseconds each time
constexpr int64_t kGrownBytes = 1 << 20;
constexpr double kTargetOverhead = 0.10;
constexpr double kMaxBatchFactor = 64;

constexpr const char* kTakeTrace =
    "tf::observe::start_tracing(); model.fit(...); tf::observe::write_trace(tf::observe::take_trace(), "
    "\"steps.json\");";

std::string percent(double share) { return fmt::format("{:.0f}%", share * 100); }

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

// A global batch size as a number where the examples were counted, else in words of the program.
std::string batch_size(const Run& run, double factor) {
  const double batch = run.mean[Counter::slots] > 0 ? run.mean[Counter::slots] : run.mean[Counter::examples];
  if (batch <= 0) return fmt::format("{:.0f} * batch_size", factor);
  return fmt::format("{:.0f}", std::round(batch) * factor);
}

std::optional<Verdict> input_bound(const Run& run) {
  const double wait = run.mean[Category::input_wait] + run.outside_input_wait;
  const double wall = run.mean.wall + run.outside_input_wait;
  if (wait < kNotable * wall) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("the replicas wait for their next batch {} of the time", percent(wait / wall));
  const TimeUnit in(run.mean.wall);
  v.evidence =
      fmt::format("input_wait {} of {} {} per step ({}); compute {} {}", in(wait), in(wall), in.name(),
                  spread(run, Category::input_wait), in(run.mean[Category::compute]), in.name());
  v.fix =
      "dataset = dataset.map(f, {.num_parallel_calls = tf::data::AUTOTUNE}).cache()"
      ".batch(batch_size).prefetch(tf::data::AUTOTUNE);";
  // The pipeline knows better.
  const InputSummary& input = run.summary->input;
  if (!input.bottleneck.empty()) v.evidence += "; the input's bottleneck is " + input.bottleneck;
  if (!input.fix.empty()) v.fix = input.fix;
  expect_saving(v, wall, wait, "if the input is ready in time");
  return v;
}

std::optional<Verdict> communication_bound(const Run& run) {
  const double wait = run.mean[Category::exposed_communication];
  if (wait < kNotable * run.mean.wall) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("{} of the time is communication that nothing overlaps",
                        percent(run.share(Category::exposed_communication)));
  const TimeUnit in(run.mean.wall);
  v.evidence = fmt::format("exposed_communication {} of {} {} per step ({})", in(wait), in(run.mean.wall),
                           in.name(), spread(run, Category::exposed_communication));
  if (const double bytes = run.mean[Counter::communication_bytes]; bytes > 0)
    v.evidence += fmt::format("; {:.3g} MB sent per step by all replicas", bytes / 1e6);
  const bool rounded = run.summary->sums.find("sent as bfloat16") != std::string::npos;
  v.fix = fmt::format("model.fit(train, {{.batch_size = {}}});  // or half the bytes: {}", batch_size(run, 2),
                      run.summary->workers.empty() || rounded
                          ? "tf::keras::mixed_precision::set_global_policy(\"mixed_bfloat16\")"
                          : "{.communication = {.compression = tf::distribute::Compression::bf16}}");
  v.speedup = 2 * run.mean.wall / (2 * run.mean.wall - wait);
  v.gain = fmt::format(
      "{:.2f}x examples/s with twice the batch, since a step's communication does not grow with it; "
      "at most {:.2f}x if all of it were hidden",
      v.speedup, run.mean.wall / std::max(run.mean.wall - wait, run.mean.wall * 0.01));
  return v;
}

std::optional<Verdict> overhead_bound(const Run& run) {
  const double host = run.mean[Category::host], idle = run.mean[Category::idle];
  // Tracing is host work too, which holds all replicas up, and has a verdict of its own.
  const double traced = run.mean[Counter::trace_ns] / 1e6;
  const double overhead = std::max(0.0, host + idle - traced);
  if (overhead < kOverheadShare * run.mean.wall || overhead <= run.mean[Category::compute])
    return std::nullopt;
  const double work = run.mean.wall - overhead;
  double factor = 2;
  while (factor < kMaxBatchFactor && overhead > kTargetOverhead * (overhead + factor * work)) factor *= 2;
  Verdict v;
  v.cause = fmt::format("the work of a step is too small: {} of the time goes into starting it",
                        percent(overhead / run.mean.wall));
  const TimeUnit in(run.mean.wall);
  v.evidence = fmt::format("host {} and idle {} of {} {} per step; compute {} {}", in(host), in(idle),
                           in(run.mean.wall), in.name(), in(run.mean[Category::compute]), in.name());
  if (run.mean[Counter::examples] > 0)
    v.evidence +=
        fmt::format(" for {} examples per replica", each(run, [](auto& r) { return r[Counter::examples]; }));
  v.fix = fmt::format(
      "model.fit(train, {{.batch_size = {}}});  // or the same batch with .steps_per_execution = 32",
      batch_size(run, factor));
  v.speedup = factor * run.mean.wall / (overhead + factor * work);
  v.gain = fmt::format("about {:.2f}x examples/s with {:.0f} times the batch, if the work grows with it",
                       v.speedup, factor);
  return v;
}

// The replica whose compute is longest, where it is notably longer than the others' median.
std::optional<size_t> slowest_replica(const Run& run) {
  if (run.replicas.size() < 2) return std::nullopt;
  std::vector<std::pair<double, size_t>> computes;
  for (size_t r = 0; r < run.replicas.size(); ++r)
    computes.emplace_back(run.replicas[r][Category::compute], r);
  std::sort(computes.begin(), computes.end());
  const auto [longest, index] = computes.back();
  const double others = computes[(computes.size() - 1) / 2].first;
  const bool slow = longest >= kSlowRatio * others && longest - others >= 0.03 * run.mean.wall;
  return slow ? std::optional(index) : std::nullopt;
}

std::optional<Verdict> slow_replica(const Run& run) {
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
  if (slow.descheduled_share >= kDescheduledShare)
    v.evidence += fmt::format("; {} was descheduled {} of the time: something else runs there", name,
                              percent(slow.descheduled_share));
  if (!run.summary->workers.empty()) {
    v.fix = "lockstep doctor  # on its machine: what it computes with, and what else runs there";
    expect_saving(v, run.mean.wall, compute(slow) - work / speeds, "if all computed alike fast");
    return v;
  }
  std::string weights;
  for (const MeanStep& r : run.replicas)
    weights += fmt::format("{}{:.2f}", weights.empty() ? "" : ", ", speed(r) / speeds);
  v.fix = fmt::format("tf::distribute::MirroredStrategy strategy({{.weights = {{{}}}}});", weights);
  expect_saving(v, run.mean.wall, compute(slow) - work / speeds,
                "if each replica gets the share it can compute in time");
  return v;
}

std::optional<Verdict> waiting_for_others(const Run& run) {
  if (run.share(Category::waiting_for_others) < kNotable || slowest_replica(run)) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("replicas wait for each other {} of the time, though none here is slower on average",
                        percent(run.share(Category::waiting_for_others)));
  const TimeUnit in(run.mean.wall);
  v.evidence = fmt::format(
      "waiting_for_others {} of {} {} per step ({}); compute {} on every replica: steps of uneven length",
      in(run.mean[Category::waiting_for_others]), in(run.mean.wall), in.name(),
      spread(run, Category::waiting_for_others), spread(run, Category::compute));
  v.fix = std::string(kTakeTrace) + "  // shows who arrives last";
  expect_saving(v, run.mean.wall, run.mean[Category::waiting_for_others], "if all arrive together");
  return v;
}

std::optional<Verdict> partial_replicas(const Run& run) {
  const double slots = run.mean[Counter::slots], examples = run.mean[Counter::examples];
  if (slots <= 0 || examples <= 0) return std::nullopt;
  const double replica_steps = static_cast<double>(run.steps) * static_cast<double>(run.replicas.size());
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
  v.fix = always
              ? fmt::format("model.fit(train, {{.batch_size = {}}});  // a multiple of {} replicas",
                            batch_size(run, 1), run.replicas.size())
              : fmt::format("dataset = dataset.batch({}, {{.drop_remainder = true}});", batch_size(run, 1));
  v.speedup = slots / examples;
  v.gain = fmt::format("up to {:.2f}x examples/s, if a full slice takes as long as a partial one", v.speedup);
  return v;
}

std::optional<Verdict> retracing(const Run& run) {
  const double traced = run.mean[Counter::trace_ns] / 1e6;
  if (run.late_traces < kLateTraces || traced < kTracedShare * run.mean.wall) return std::nullopt;
  Verdict v;
  v.cause =
      fmt::format("functions are traced again and again: {} times after the first step", run.late_traces);
  const TimeUnit in(run.mean.wall);
  v.evidence = fmt::format("{} traces in {} steps; tracing takes {} of {} {} per step", run.late_traces,
                           run.steady_steps, in(traced), in(run.mean.wall), in.name());
  v.fix =
      "auto step = tf::function(f, {.input_signature = {...}});  // one shape for all: "
      ".batch(batch_size, {.drop_remainder = true}); numbers that change as tensors: "
      "step(tf::constant(rate))";
  expect_saving(v, run.mean.wall, traced, "if one trace serves all steps");
  return v;
}

std::optional<Verdict> host_copies(const Run& run) {
  const double reads = run.mean[Counter::value_reads], copies = run.mean[Counter::host_copies];
  const double copy = run.mean[Category::copy];
  const bool copies_matter = copies >= 1 && copy >= kCopyShare * run.mean.wall;
  if (reads < 1 && !copies_matter) return std::nullopt;
  Verdict v;
  v.cause = reads >= 1 ? "the program reads a value on the host every step, and the devices wait for it"
                       : "data moves between host and devices inside every step";
  const TimeUnit in(run.mean.wall);
  v.evidence =
      fmt::format("{:.3g} value reads and {:.3g} copies ({:.3g} MB) per step; copy {} of {} {}", reads,
                  copies, run.mean[Counter::host_copy_bytes] / 1e6, in(copy), in(run.mean.wall), in.name());
  v.fix = reads >= 1
              ? "loss_metric.update_state(loss);  // on the device; loss_metric.result() every 100 steps"
              : "auto batches = strategy.experimental_distribute_dataset(dataset);  // sends batches ahead";
  expect_saving(v, run.mean.wall, copy, "if no copy is waited for");
  return v;
}

std::optional<Verdict> descheduled(const Run& run) {
  if (run.mean.descheduled_share < kDescheduledShare) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("threads with work were not run {} of the time: too many threads for the processors",
                        percent(run.mean.descheduled_share));
  v.evidence = fmt::format("descheduled {} of the time on replicas 0 to {}, in the steps that measured it",
                           each(run, [](auto& r) { return r.descheduled_share; }), run.replicas.size() - 1);
  v.fix = "tf::config::threading::set_intra_op_parallelism_threads(n);  // replicas * n <= free processors";
  expect_saving(v, run.mean.wall, run.mean.descheduled_share * run.mean.wall, "on processors of their own");
  return v;
}

std::optional<Verdict> unattributed(const Run& run) {
  if (run.share(Category::unattributed) < kNotable) return std::nullopt;
  Verdict v;
  v.cause = fmt::format("{} of the time was measured by nothing", percent(run.share(Category::unattributed)));
  const TimeUnit in(run.mean.wall);
  v.evidence = fmt::format("unattributed {} of {} {} per step ({})", in(run.mean[Category::unattributed]),
                           in(run.mean.wall), in.name(), spread(run, Category::unattributed));
  v.fix = kTakeTrace;
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
      v.fix =
          "double total = 0; total += loss.item<float>();  // what a step returns is kept by whoever holds "
          "it";
      v.gain = "no speed, but a run that does not end with out_of_memory";
      return v;
    }
  return std::nullopt;
}

struct Rule {
  const char* id;
  std::optional<Verdict> (*judge)(const Run&);
};

constexpr Rule kRules[] = {
    {"input-bound", input_bound},
    {"communication-bound", communication_bound},
    {"overhead-bound", overhead_bound},
    {"slow-replica", slow_replica},
    {"waiting-for-others", waiting_for_others},
    {"partial-replicas", partial_replicas},
    {"retracing", retracing},
    {"host-copies", host_copies},
    {"descheduled", descheduled},
    {"unattributed", unattributed},
    {"memory-grows", memory_grows},
};

}  // namespace

std::vector<Verdict> judge(const RunSummary& summary) {
  std::vector<Verdict> verdicts;
  const std::optional<Run> run = steady_run(summary);
  if (!run) return verdicts;
  for (const Rule& rule : kRules) {
    if (std::optional<Verdict> verdict = rule.judge(*run)) {
      verdict->id = rule.id;
      verdicts.push_back(std::move(*verdict));
    }
  }
  std::stable_sort(verdicts.begin(), verdicts.end(),
                   [](const Verdict& a, const Verdict& b) { return a.speedup > b.speedup; });
  return verdicts;
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
