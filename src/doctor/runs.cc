#include "lockstep/doctor/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "doctor/checks.h"
#include "lockstep/base/host.h"
#include "observe/time_unit.h"

namespace lockstep::doctor {
namespace {

using observe::KernelTime;
using observe::RunRecord;
using observe::TimeUnit;

constexpr double kSlower = 0.05;     // of a step: less is noise
constexpr double kDrift = 0.10;      // the same within one run
constexpr size_t kShownKernels = 8;  // that differ most
constexpr int64_t kStalledMs = 60'000;

std::string time_text(double ms) {
  if (ms < 1) return fmt::format("{:.3g} us", ms * 1e3);
  const TimeUnit in(ms);
  return fmt::format("{} {}", in(ms), in.name());
}

// Mean over replicas: milliseconds per step, by category.
struct Step {
  double wall = 0;
  std::vector<double> times = {};
};

Step mean_step(const RunRecord& record) {
  Step mean{.wall = 0, .times = std::vector<double>(record.categories.size())};
  const auto replicas = static_cast<double>(std::max<size_t>(1, record.replicas.size()));
  for (const RunRecord::Replica& replica : record.replicas) {
    mean.wall += replica.mean_ms / replicas;
    for (size_t c = 0; c < mean.times.size(); ++c) mean.times[c] += replica.times_ms[c] / replicas;
  }
  return mean;
}

// The intervals of all replicas whose first step is in a range, as one mean step; times between steps count
// as "between steps", one behind the categories.
std::optional<Step> mean_between(const RunRecord& record, int64_t from, int64_t to) {
  Step mean{.wall = 0, .times = std::vector<double>(record.categories.size() + 1)};
  double steps = 0;
  for (const RunRecord::Replica& replica : record.replicas)
    for (const RunRecord::Interval& interval : replica.intervals) {
      if (interval.first_step < from || interval.first_step >= to) continue;
      steps += static_cast<double>(interval.steps);
      for (size_t c = 0; c < interval.times_ns.size(); ++c)
        mean.times[c] += static_cast<double>(interval.times_ns[c]) / 1e6;
      mean.times.back() += static_cast<double>(interval.outside_ns) / 1e6;
    }
  if (steps < 1) return std::nullopt;
  for (double& time : mean.times) {
    time /= steps;
    mean.wall += time;
  }
  return mean;
}

std::string category_name(const RunRecord& record, size_t category) {
  return category < record.categories.size() ? record.categories[category] : "between steps";
}

const RunRecord::Curve* curve(const RunRecord& record, std::string_view name) {
  for (const RunRecord::Curve& one : record.curves)
    if (one.name == name) return &one;
  return nullptr;
}

double last_value(const RunRecord::Curve& curve) { return curve.values.empty() ? NAN : curve.values.back(); }

std::string state_text(const RunRecord& record) {
  if (observe::looks_dead(record)) return "killed: its process is gone";
  return std::string(name(record.state));
}

Section run_section(const RunRecord& record, const std::string& called) {
  Section section{.title = "Run " + called, .facts = {}};
  const auto fact = [&](std::string key, std::string value) {
    section.facts.emplace_back(std::move(key), std::move(value));
  };
  fact("model", record.model);
  fact("state", state_text(record));
  fact("progress", fmt::format("step {}, epoch {} of {}", record.step, record.epoch, record.epochs));
  fact("time", time_text(static_cast<double>(record.updated_ms - record.started_ms)));
  if (!record.replicas.empty() && record.replicas.front().steps > 0) {
    const RunRecord::Replica& first = record.replicas.front();
    fact("steps",
         fmt::format("mean {} on {} replica{}, median {}, p95 {}; {:.0f} examples/s",
                     time_text(first.mean_ms), record.replicas.size(), record.replicas.size() == 1 ? "" : "s",
                     time_text(first.median_ms), time_text(first.p95_ms), record.examples_per_second));
    const Step mean = mean_step(record);
    std::string shares;
    for (size_t c = 0; c < mean.times.size(); ++c)
      if (mean.wall > 0 && mean.times[c] >= 0.0005 * mean.wall)
        shares += fmt::format("{}{} {:.1f}%", shares.empty() ? "" : ", ", record.categories[c],
                              100 * mean.times[c] / mean.wall);
    fact("time of a step", shares);
  }
  if (record.kernels && !record.kernels->list.empty()) {
    const KernelTime& top = record.kernels->list.front();
    std::string text = fmt::format(
        "{}: {} per step", top.name,
        time_text(static_cast<double>(top.total_ns) / 1e6 / static_cast<double>(record.kernels->steps)));
    if (const std::optional<double> share = observe::share_of_ceiling(top, *record.kernels))
      text += fmt::format(", {:.0f}% of the ceiling", 100 * *share);
    fact("longest kernel", text);
  }
  std::string values;
  for (const RunRecord::Curve& one : record.curves)
    values += fmt::format("{}{} {:.4g}", values.empty() ? "" : ", ", one.name, last_value(one));
  if (!values.empty()) fact("last epoch", values);
  return section;
}

Json step_json(const RunRecord& record) {
  const Step mean = mean_step(record);
  Json times = Json::object();
  for (size_t c = 0; c < mean.times.size(); ++c) times.set(record.categories[c], mean.times[c]);
  return Json::object({{"mean_ms", mean.wall}, {"times_ms", std::move(times)}});
}

Json run_json(const RunRecord& record, const std::string& called) {
  return Json::object({{"name", called},
                       {"model", record.model},
                       {"state", observe::looks_dead(record) ? "killed" : name(record.state)},
                       {"step", record.step},
                       {"epoch", record.epoch},
                       {"epochs", record.epochs},
                       {"seconds", static_cast<double>(record.updated_ms - record.started_ms) / 1e3},
                       {"replicas", static_cast<int64_t>(record.replicas.size())},
                       {"examples_per_second", record.examples_per_second},
                       {"steady_step", step_json(record)}});
}

// --- checks of one run ---

void check_state(const RunRecord& record, int64_t now_ms, std::vector<Finding>& findings) {
  if (observe::looks_dead(record)) {
    findings.push_back(
        {.check = "run_killed",
         .severity = Severity::problem,
         .cause = "The run did not come to its end: its process is gone.",
         .evidence = {fmt::format("process {} on {} wrote last at step {}", record.process, record.host,
                                  record.step)},
         .fix = "look at its last lines, and at dmesg for the kernel's out-of-memory killer; with "
                "--backup DIR the same command goes on where it was"});
  } else if (record.state == RunRecord::State::failed) {
    findings.push_back({.check = "run_failed",
                        .severity = Severity::problem,
                        .cause = "Training ended with an error.",
                        .evidence = {fmt::format("after step {} in epoch {}", record.step, record.epoch + 1)},
                        .fix = "the program has said which"});
  } else if (record.state == RunRecord::State::running && !record.replicas.empty()) {
    const double step_ms = std::max(record.replicas.front().max_ms, 1.0);
    const int64_t silent = now_ms - record.updated_ms;
    if (silent > std::max<int64_t>(kStalledMs, static_cast<int64_t>(10 * step_ms)))
      findings.push_back(
          {.check = "run_stalled",
           .severity = Severity::warning,
           .cause = fmt::format("No step has ended for {}.", time_text(static_cast<double>(silent))),
           .evidence = {fmt::format("the longest step before took {}", time_text(step_ms))},
           .fix = "gdb -p " + std::to_string(record.process) + "  # what its threads wait for"});
  }
}

void check_loss(const RunRecord& record, std::vector<Finding>& findings) {
  const RunRecord::Curve* loss = curve(record, "loss");
  if (!loss || loss->values.empty()) return;
  for (size_t i = 0; i < loss->values.size(); ++i)
    if (!std::isfinite(loss->values[i])) {
      findings.push_back(
          {.check = "loss_not_finite",
           .severity = Severity::problem,
           .cause = fmt::format("The loss is no number from epoch {} on.", record.history_epochs[i] + 1),
           .evidence = {i > 0 ? fmt::format("it was {:.4g} the epoch before", loss->values[i - 1])
                              : "from the first epoch on"},
           .fix = "a smaller learning rate, or clipnorm = 1.0 of the optimizer"});
      return;
    }
  const auto best = std::min_element(loss->values.begin(), loss->values.end());
  if (loss->values.size() >= 3 && loss->values.back() > 1.5 * *best && *best > 0)
    findings.push_back(
        {.check = "loss_grows",
         .severity = Severity::warning,
         .cause = "The loss has grown again.",
         .evidence = {fmt::format("{:.4g} in epoch {}, {:.4g} in the last", *best,
                                  record.history_epochs[static_cast<size_t>(best - loss->values.begin())] + 1,
                                  loss->values.back())},
         .fix = "a smaller learning rate, or a schedule that lowers it"});
}

// Compares the last quarter of the steps with the quarter before the middle, which has nothing of the start.
void check_drift(const RunRecord& record, std::vector<Finding>& findings) {
  int64_t first = INT64_MAX, last = 0;
  for (const RunRecord::Replica& replica : record.replicas)
    if (!replica.intervals.empty()) {
      first = std::min(first, replica.intervals.front().first_step);
      last = std::max(last, replica.intervals.back().first_step + record.interval_steps);
    }
  if (last - first < 16 * record.interval_steps) return;
  const int64_t quarter = (last - first) / 4;
  const std::optional<Step> before = mean_between(record, first + quarter, first + 2 * quarter);
  const std::optional<Step> after = mean_between(record, last - quarter, last);
  if (!before || !after || before->wall <= 0 || after->wall < (1 + kDrift) * before->wall) return;
  size_t most = 0;
  for (size_t c = 0; c < after->times.size(); ++c)
    if (after->times[c] - before->times[c] > after->times[most] - before->times[most]) most = c;
  findings.push_back(
      {.check = "got_slower",
       .severity = Severity::warning,
       .cause = fmt::format("Steps take {:.2f} times as long as earlier in the run, above all {}.",
                            after->wall / before->wall, category_name(record, most)),
       .evidence = {fmt::format("{} per step from step {} on, {} from step {} on", time_text(before->wall),
                                first + quarter, time_text(after->wall), last - quarter),
                    fmt::format("{}: {}, then {}", category_name(record, most),
                                time_text(before->times[most]), time_text(after->times[most]))},
       .fix = "lockstep report DIR  # shows when it began, beside the memory"});
}

// --- two runs ---

struct Difference {
  std::string name;
  double before = 0, after = 0;  // milliseconds per step
  double change() const { return after - before; }
};

Json json_of(const std::vector<Difference>& differences) {
  Json list = Json::list();
  for (const Difference& one : differences)
    list.push_back(Json::object({{"name", one.name}, {"before_ms", one.before}, {"after_ms", one.after}}));
  return list;
}

// The largest change first, whichever way it goes.
void sort_by_change(std::vector<Difference>& differences) {
  std::stable_sort(differences.begin(), differences.end(), [](const Difference& a, const Difference& b) {
    return std::abs(a.change()) > std::abs(b.change());
  });
}

std::vector<Difference> joined(const std::vector<std::pair<std::string, double>>& before,
                               const std::vector<std::pair<std::string, double>>& after) {
  std::map<std::string, Difference> by_name;
  for (const auto& [name, ms] : before) by_name[name].before += ms;
  for (const auto& [name, ms] : after) by_name[name].after += ms;
  std::vector<Difference> all;
  for (auto& [name, difference] : by_name) {
    difference.name = name;
    if (difference.before != 0 || difference.after != 0) all.push_back(difference);
  }
  sort_by_change(all);
  return all;
}

std::vector<std::pair<std::string, double>> categories_of(const RunRecord& record) {
  const Step mean = mean_step(record);
  std::vector<std::pair<std::string, double>> all;
  for (size_t c = 0; c < mean.times.size(); ++c) all.emplace_back(record.categories[c], mean.times[c]);
  return all;
}

std::vector<std::pair<std::string, double>> kernels_of(const RunRecord& record) {
  std::vector<std::pair<std::string, double>> all;
  if (!record.kernels) return all;
  for (const KernelTime& kernel : record.kernels->list)
    all.emplace_back(kernel.name,
                     static_cast<double>(kernel.total_ns) / 1e6 / static_cast<double>(record.kernels->steps));
  return all;
}

void flatten(const Json& json, const std::string& name, std::map<std::string, std::string>& all) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.members())
      flatten(value, name.empty() ? key : name + "." + key, all);
    return;
  }
  all[name] = json.dump();
}

// "run.fit.batch_size: 32, then 64"
std::vector<std::string> settings_that_differ(const Json& before, const Json& after) {
  std::map<std::string, std::string> a, b;
  flatten(before, "", a);
  flatten(after, "", b);
  std::vector<std::string> all;
  const auto value = [](const std::map<std::string, std::string>& of, const std::string& key) {
    const auto found = of.find(key);
    return found == of.end() ? std::string("not there") : found->second;
  };
  std::map<std::string, std::string> keys = a;
  keys.insert(b.begin(), b.end());
  for (const auto& [key, ignored] : keys)
    if (value(a, key) != value(b, key)) all.push_back(key + ": " + value(a, key) + ", then " + value(b, key));
  return all;
}

std::string change_text(const Difference& one) {
  return fmt::format("{}: {}, then {} ({}{})", one.name, time_text(one.before), time_text(one.after),
                     one.change() < 0 ? "-" : "+", time_text(std::abs(one.change())));
}

Section table(std::string title, const std::vector<Difference>& differences, size_t most) {
  Section section{.title = std::move(title), .facts = {}};
  for (const Difference& one : differences) {
    if (section.facts.size() == most) break;
    section.facts.emplace_back(one.name,
                               fmt::format("{}, then {} ({}{})", time_text(one.before), time_text(one.after),
                                           one.change() < 0 ? "-" : "+", time_text(std::abs(one.change()))));
  }
  return section;
}

// Milliseconds for an example: runs with another batch can be compared by it.
double per_example(const RunRecord& record) {
  return record.examples_per_second > 0 ? 1e3 / record.examples_per_second : 0;
}

}  // namespace

Report examine_run(const RunRecord& record, const std::string& name, int64_t now_ms) {
  Report report;
  report.sections.push_back(run_section(record, name));
  report.facts.set("run", run_json(record, name));
  check_state(record, now_ms > 0 ? now_ms : milliseconds_since_1970(), report.findings);
  check_loss(record, report.findings);
  check_drift(record, report.findings);
  for (const observe::Verdict& verdict : record.verdicts)
    report.findings.push_back({.check = verdict.id,
                               .severity = Severity::warning,
                               .cause = verdict.cause,
                               .evidence = {verdict.evidence, "gain: " + verdict.gain},
                               .fix = verdict.fix});
  put_problems_first(report.findings);
  return report;
}

Report compare_runs(const RunRecord& before, const std::string& before_name, const RunRecord& after,
                    const std::string& after_name) {
  Report report;
  report.sections.push_back(run_section(before, before_name));
  report.sections.push_back(run_section(after, after_name));
  const std::vector<Difference> categories = joined(categories_of(before), categories_of(after));
  const std::vector<Difference> kernels = joined(kernels_of(before), kernels_of(after));
  report.sections.push_back(
      table("Time of a mean step, by what changed most", categories, categories.size()));
  if (before.kernels && after.kernels)
    report.sections.push_back(table("Kernels, by what changed most", kernels, kShownKernels));
  std::vector<std::string> differs = settings_that_differ(before.configuration, after.configuration);
  for (std::string& version : settings_that_differ(before.versions, after.versions))
    differs.push_back(std::move(version));

  const double step_before = mean_step(before).wall, step_after = mean_step(after).wall;
  const bool by_example = per_example(before) > 0 && per_example(after) > 0;
  const double ratio = by_example        ? per_example(after) / per_example(before)
                       : step_before > 0 ? step_after / step_before
                                         : 1;
  report.facts.set("before", run_json(before, before_name));
  report.facts.set("after", run_json(after, after_name));
  report.facts.set("slowdown", ratio);
  report.facts.set("categories", json_of(categories));
  report.facts.set("kernels", json_of(kernels));
  report.facts.set("settings", Json::List(differs.begin(), differs.end()));

  Finding finding{.check = ratio >= 1 + kSlower         ? "slower"
                           : ratio <= 1 / (1 + kSlower) ? "faster"
                                                        : "same_speed",
                  .severity = ratio >= 1 + kSlower ? Severity::problem : Severity::note,
                  .cause = {},
                  .evidence = {},
                  .fix = {}};
  const std::string speeds =
      fmt::format("{} per step, then {}", time_text(step_before), time_text(step_after)) +
      (by_example ? fmt::format("; {:.0f} examples/s, then {:.0f}", before.examples_per_second,
                                after.examples_per_second)
                  : "");
  if (finding.check == "same_speed") {
    finding.cause = fmt::format("{} is as fast as {}.", after_name, before_name);
    finding.evidence = {speeds};
  } else {
    finding.cause = fmt::format("{} is {:.2f} times as {} as {}.", after_name, ratio > 1 ? ratio : 1 / ratio,
                                ratio > 1 ? "slow" : "fast", before_name);
    finding.evidence = {speeds};
    const auto explains = [&](const Difference& one) {
      return (one.change() > 0) == (step_after > step_before);
    };
    if (const auto most = std::find_if(categories.begin(), categories.end(), explains);
        most != categories.end())
      finding.evidence.push_back("most of it is " + change_text(*most));
    if (const auto most = std::find_if(kernels.begin(), kernels.end(), explains);
        before.kernels && after.kernels && most != kernels.end())
      finding.evidence.push_back("of kernels, above all " + change_text(*most));
    if (ratio > 1)
      finding.fix = differs.empty()
                        ? "nothing that was recorded differs: look at what else ran on the machine"
                        : "what differs: " + differs.front() +
                              (differs.size() > 1 ? fmt::format(", and {} more", differs.size() - 1) : "");
  }
  report.findings.push_back(std::move(finding));
  if (!differs.empty()) {
    report.findings.push_back({.check = "other_settings",
                               .severity = Severity::note,
                               .cause = "The runs were not set up alike.",
                               .evidence = differs,
                               .fix = ""});
  }
  put_problems_first(report.findings);
  return report;
}

}  // namespace lockstep::doctor
