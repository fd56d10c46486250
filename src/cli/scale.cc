#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "cli/child_runs.h"
#include "cli/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/terminal.h"

namespace lockstep::cli {
namespace {

// With fewer timed steps a median says nothing.
constexpr int64_t kLeastSteps = 4;

struct ScaleFlags {
  std::string run;
  std::vector<int64_t> devices{1, 2};
  std::vector<int64_t> workers{1};
  bool weak = false, strong = false;
  int64_t steps = 50;
  int64_t threads = 0;
  int64_t batch_size = 0;
  bool json = false;
  std::string output;
};

struct Count {
  int64_t workers = 1, devices = 1;
  int64_t replicas() const { return workers * devices; }
};

// The part of the time of steady steps that each category takes, over all replicas.
Json breakdown(const Json& result) {
  Json shares = Json::object();
  double wall = 0;
  std::vector<std::pair<std::string, double>> times;
  for (const Json& replica : result.at("step_clock").at("replicas").items()) {
    const Json& first = replica.at("first_step");
    wall += replica.at("wall").at("total_ms").as_double() - first.at("wall_ms").as_double();
    for (const auto& [name, time] : replica.at("times").members()) {
      const Json* in_first = first.at("times_ms").find(name);
      const double total =
          time.at("total_ms").as_double() - (in_first != nullptr ? in_first->as_double() : 0);
      const auto known =
          std::find_if(times.begin(), times.end(), [&](const auto& t) { return t.first == name; });
      (known == times.end() ? times.emplace_back(name, 0).second : known->second) += total;
    }
  }
  for (const auto& [name, time] : times) shares.set(name, wall > 0 ? std::max(0.0, time / wall) : 0);
  return shares;
}

Json row_of(const Count& count, int64_t batch, const Json& result) {
  const double step_s = median_step_s(result);
  Json row = Json::object({{"workers", count.workers},
                           {"devices", count.devices},
                           {"replicas", count.replicas()},
                           {"batch_size", batch},
                           {"steps", steps_of(result)},
                           {"step_ms", step_s * 1000},
                           {"examples_per_s", static_cast<double>(batch) / step_s}});
  row.set("breakdown", breakdown(result));
  row.set("verdicts", result.at("verdicts"));
  return row;
}

// Speed-up and efficiency against the row of fewest replicas.
void compare(Json::List& rows) {
  const Json* base = &rows[0];
  for (const Json& row : rows)
    if (row.at("replicas").as_int() < base->at("replicas").as_int()) base = &row;
  const double rate = base->at("examples_per_s").as_double();
  const auto replicas = static_cast<double>(base->at("replicas").as_int());
  for (Json& row : rows) {
    const double speedup = row.at("examples_per_s").as_double() / rate;
    row.set("speedup", speedup);
    row.set("efficiency", speedup * replicas / static_cast<double>(row.at("replicas").as_int()));
  }
}

Json measure(const ScaleFlags& flags) {
  std::vector<Count> counts;
  for (const int64_t workers : flags.workers)
    for (const int64_t devices : flags.devices) counts.push_back({workers, devices});
  std::stable_sort(counts.begin(), counts.end(),
                   [](const Count& a, const Count& b) { return a.replicas() < b.replicas(); });
  const int64_t cores = usable_cores(), gpus = usable_gpus(), most = counts.back().replicas();
  require(gpus == 0 || most <= gpus, ErrorCode::invalid_argument, std::source_location::current(),
          "--devices: ", most, " replicas were asked for, and there ",
          gpus == 1 ? "is 1 GPU" : "are " + std::to_string(gpus) + " GPUs",
          "; set CUDA_VISIBLE_DEVICES= to measure on the CPU");
  // Every replica has the same cores whatever their number is, so that a row differs from the next by its
  // replicas alone.
  const int64_t threads = flags.threads > 0 ? flags.threads : std::max<int64_t>(1, cores / most);
  const int64_t batch = flags.batch_size > 0 ? flags.batch_size : batch_size_of(flags.run);

  std::vector<const char*> scalings;
  if (flags.strong || !flags.weak) scalings.push_back("strong");
  if (flags.weak || !flags.strong) scalings.push_back("weak");
  const auto batch_of = [&](const std::string& scaling, const Count& count) {
    return scaling == "weak" ? batch * count.replicas() : batch;
  };
  using Key = std::tuple<int64_t, int64_t, int64_t>;
  const auto key = [&](const Count& count, int64_t examples) {
    return Key{count.workers, count.devices, examples};
  };
  std::map<Key, Json> results;
  for (const char* scaling : scalings)
    for (const Count& count : counts) results.try_emplace(key(count, batch_of(scaling, count)));

  ChildRuns runs(static_cast<int>(results.size()), false);
  std::string model;
  for (auto& [what, result] : results) {
    const auto& [workers, devices, examples] = what;
    result = runs.train({.run = flags.run,
                         .devices = devices,
                         .workers = workers,
                         .threads = threads,
                         .batch_size = examples,
                         .steps = flags.steps})
                 .result;
    model = result.at("model").as_string();
    require(steps_of(result) >= kLeastSteps, ErrorCode::failed_precondition, std::source_location::current(),
            "only ", steps_of(result), " steps of ", examples, " examples were made, too few to time: ",
            "the data has no more. Use a smaller --batch-size or more data",
            flags.steps < kLeastSteps ? ", and more --steps" : "");
  }
  Json tables = Json::list();
  for (const char* scaling : scalings) {
    Json::List rows;
    for (const Count& count : counts) {
      const int64_t examples = batch_of(scaling, count);
      rows.push_back(row_of(count, examples, results.at(key(count, examples))));
    }
    compare(rows);
    tables.push_back(Json::object({{"scaling", scaling}, {"rows", Json(std::move(rows))}}));
  }
  return Json::object({{"kind", "lockstep scale"},
                       {"schema", 1},
                       {"run", flags.run},
                       {"model", model},
                       {"cores", cores},
                       {"gpus", gpus},
                       {"threads_per_device", threads},
                       {"tables", std::move(tables)}});
}

// --- for people --------------------------------------------------------------------------------------------

constexpr int kBar = 20;

std::string bar(double part) {
  const int filled = std::clamp(static_cast<int>(std::lround(part * kBar)), 0, kBar);
  return std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(kBar - filled), '.');
}

std::string limit_of(const Json& row) {
  const Json& verdicts = row.at("verdicts");
  return verdicts.items().empty() ? "nothing that would gain" : verdicts.at(size_t{0}).at("id").as_string();
}

std::string shares(const Json& breakdown) {
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [name, share] : breakdown.members()) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    if (share.as_double() >= 0.005) parts.emplace_back(share.as_double(), words);
  }
  std::sort(parts.rbegin(), parts.rend());
  std::string text;
  for (const auto& [share, name] : parts)
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", name, 100 * share);
  return text;
}

std::string table_text(const Json& table, bool workers) {
  std::string text =
      fmt::format("{} scaling: {}\n", table.at("scaling").as_string(),
                  table.at("scaling").as_string() == "weak" ? "the batch grows with the replicas"
                                                            : "the batch of all replicas stays the same");
  text += fmt::format("  {}devices   batch  ms/step  examples/s  speed-up  efficiency\n",
                      workers ? "workers  " : "");
  for (const Json& row : table.at("rows").items())
    text +=
        fmt::format("  {}{:7}  {:6}  {:7.4g}  {:10.0f}  {:7.2f}x  {:10.2f}  {}\n",
                    workers ? fmt::format("{:7}  ", row.at("workers").as_int()) : "",
                    row.at("devices").as_int(), row.at("batch_size").as_int(), row.at("step_ms").as_double(),
                    row.at("examples_per_s").as_double(), row.at("speedup").as_double(),
                    row.at("efficiency").as_double(), bar(row.at("efficiency").as_double()));
  for (const Json& row : table.at("rows").items())
    text += fmt::format("  {:7}  {}; limited by: {}\n", row.at("replicas").as_int(),
                        shares(row.at("breakdown")), limit_of(row));
  return text;
}

std::string to_text(const Json& result) {
  const int64_t gpus = result.at("gpus").as_int();
  std::string text =
      fmt::format("{} on {}\n", result.at("model").as_string(),
                  gpus > 0 ? fmt::format("{} GPUs", gpus)
                           : fmt::format("{} cores; {} thread{} per device", result.at("cores").as_int(),
                                         result.at("threads_per_device").as_int(),
                                         result.at("threads_per_device").as_int() == 1 ? "" : "s"));
  bool workers = false, shares_cores = false;
  for (const Json& table : result.at("tables").items())
    for (const Json& row : table.at("rows").items()) {
      workers = workers || row.at("workers").as_int() > 1;
      shares_cores = shares_cores || row.at("replicas").as_int() * result.at("threads_per_device").as_int() >
                                         result.at("cores").as_int();
    }
  for (const Json& table : result.at("tables").items()) text += table_text(table, workers);
  if (gpus == 0 && shares_cores)
    text += fmt::format("With more than {} threads in all, devices share cores: they cannot become faster.\n",
                        result.at("cores").as_int());
  return text;
}

int scale(const ScaleFlags& flags) {
  std::optional<AtomicFile> file;
  if (!flags.output.empty()) file.emplace(flags.output);
  const Json result = measure(flags);
  if (file) {
    file->write(result.dump(2) + "\n");
    file->commit();
  }
  const std::optional<int> columns = terminal::columns();
  const std::string text = flags.json ? result.dump(2) + "\n" : to_text(result);
  print_result(columns && !flags.json ? terminal::wrapped(text, *columns) : text);
  return 0;
}

}  // namespace

void add_scale(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "scale", "Train the same on 1, 2, ... devices and say how much faster that is, and what limits it");
  auto f = std::make_shared<ScaleFlags>();
  command->add_option("run", f->run, "A run file, or the name of a network, as lockstep train takes it")
      ->required();
  command->add_option("--devices", f->devices, "How many devices, one measurement each: 1,2,4")
      ->delimiter(',')
      ->check(whole_number(1, 256))
      ->capture_default_str();
  command->add_option("--workers", f->workers, "How many processes, each with --devices: 1,2")
      ->delimiter(',')
      ->check(whole_number(1, 256))
      ->capture_default_str();
  command->add_flag("--strong", f->strong,
                    "Only strong scaling: the run's batch is divided among the replicas");
  command->add_flag("--weak", f->weak, "Only weak scaling: every replica has the run's batch");
  command->add_option("--steps", f->steps, "Steps of each measurement")
      ->check(whole_number(1, 1000000))
      ->capture_default_str();
  command->add_option("--threads", f->threads, "Threads of each device; 0: the cores among the most replicas")
      ->check(whole_number(0, kMostThreads))
      ->capture_default_str();
  command->add_option("--batch-size", f->batch_size, "Instead of the run's")->check(whole_number(1));
  command->add_flag("--json", f->json, "The result as one JSON object (docs/plan.md)");
  command->add_option("--output", f->output, "Also write that object to this file")->check(path());
  command->footer(
      "Every count is a process of its own, timed by the median of its steps. Efficiency is the speed-up as "
      "a part "
      "of what as many times the devices should bring: 1 is perfect.\n"
      "\n"
      "  lockstep scale run.json --devices 1,2,4\n"
      "  lockstep scale lenet --devices 1,2 --workers 1,2 --weak --output scale.json\n"
      "\n"
      "What it will be on machines that are not there: lockstep plan.\n"
      "\n"
      "Exit status: 0 where all went well, 1 where a training failed, 2 where the call is wrong, 130 after "
      "Ctrl-C.");
  command->callback([f, &status] {
    try {
      status = scale(*f);
    } catch (const Interrupted& interrupted) {
      status = 128 + interrupted.signal;
    }
  });
}

}  // namespace lockstep::cli
