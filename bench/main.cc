// lockstep_bench: Lockstep's steps against the floors of this processor and against other frameworks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "bench/all_reduce.h"
#include "bench/bench.h"
#include "bench/checkpoint.h"
#include "bench/data.h"
#include "bench/engine.h"
#include "bench/first_step.h"
#include "bench/floors/floor.h"
#include "bench/peers.h"
#include "bench/suite.h"
#include "bench/summary.h"
#include "bench/workers.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::bench {
namespace {

struct Options {
  bool quick = false, json = false, no_peers = false, list = false, all = false, large = false;
  bool first_step = false;
  std::vector<int> threads;
  std::string filter = ".*", peers = ".*";
  std::string profile = {}, once = {};
};

// One piece of work; the floor comes first among its candidates.
struct Work {
  std::string name;
  int64_t batch = 0;
  double bytes = 0;
  std::function<std::vector<Candidate>(int threads)> candidates = {};
  int most_rounds = std::numeric_limits<int>::max();  // of works that take long
  bool on_gpu = false;
  double items = 0;  // see Measurement
  std::string item = {};
  std::optional<Row> row = {};  // of works that are a network's

  std::string id() const { return row ? row->id() : batch > 0 ? fmt::format("{}/{}", name, batch) : name; }
};

Candidate floor_candidate(std::shared_ptr<Floor> floor) {
  std::string note = floor->chosen();
  return in_process(
      "floor", [floor = std::move(floor)] { floor->step(); }, std::move(note));
}

void add(std::vector<Candidate>& candidates, const char* name, Step step) {
  if (step) candidates.push_back(in_process(name, std::move(step)));
}

Work network_work(const Row& row) {
  return {.name = row.work(),
          .batch = row.batch,
          .candidates = [row](int threads) { return row_candidates(row, threads); },
          .most_rounds = 10,
          .on_gpu = row.on_gpu,
          .items = static_cast<double>(row.batch * row.network->items),
          .item = row.network->item,
          .row = row};
}

std::vector<Work> all_works(const Options& options) {
  std::vector<Work> works;
  for (const int64_t batch : {32L, 128L, 1024L})
    works.push_back({.name = "mlp", .batch = batch, .candidates = [=](int threads) {
                       std::vector<Candidate> list{floor_candidate(mlp_floor(batch, threads))};
                       add(list, "Lockstep compiled", engine_mlp(batch, threads, Mode::compiled));
                       add(list, "Lockstep eager", engine_mlp(batch, threads, Mode::eager));
                       return list;
                     }});
  for (const int64_t batch : {32L, 128L})
    works.push_back({.name = "fit", .batch = batch, .candidates = [=](int threads) {
                       std::vector<Candidate> list;
                       add(list, "bare step", engine_fit_step(batch, threads, Batches::same));
                       add(list, "bare step, next batch", engine_fit_step(batch, threads, Batches::next));
                       const int64_t steps = (kFitExamples + batch - 1) / batch;
                       list.push_back(whole("Lockstep fit", engine_fit_epoch(batch, threads), steps));
                       return list;
                     }});
  constexpr int64_t kConvnetBatch = 64;
  works.push_back({.name = "convnet", .batch = kConvnetBatch, .candidates = [](int threads) {
                     std::vector<Candidate> list{floor_candidate(convnet_floor(kConvnetBatch, threads))};
                     add(list, "Lockstep compiled", engine_convnet(kConvnetBatch, threads));
                     return list;
                   }});
  works.push_back({.name = "replicas/mlp", .batch = 1024, .candidates = [](int) {
                     std::vector<Candidate> list;
                     add(list, "one replica, two threads", engine_mlp(1024, 2, Mode::compiled));
                     add(list, "two replicas, one thread", engine_mlp_replicas(1024));
                     return list;
                   }});
  works.push_back({.name = "replicas/convnet", .batch = 128, .candidates = [](int) {
                     std::vector<Candidate> list;
                     add(list, "one replica, two threads", engine_convnet(128, 2));
                     add(list, "two replicas, one thread", engine_convnet_replicas(128));
                     return list;
                   }});
  for (const int replicas : {2, 4})
    works.push_back({.name = fmt::format("all_reduce/{}", replicas),
                     .bytes = 2.0 * kReducedBytes * replicas,
                     .candidates = [=](int) { return all_reduce_candidates(replicas); }});
  constexpr int kWorkerRounds = 15;
  for (const auto& [engine, engine_name] :
       {std::pair(WorkerEngine::gloo, "gloo"), std::pair(WorkerEngine::mpi, "mpi")})
    for (const int workers : {2, 4})
      for (const auto& [bytes, size] :
           {std::pair(int64_t{1} << 10, "1KiB"), std::pair(int64_t{1} << 16, "64KiB"),
            std::pair(int64_t{1} << 20, "1MiB"), std::pair(int64_t{1} << 24, "16MiB"),
            std::pair(int64_t{1} << 28, "256MiB")})
        works.push_back(
            {.name = fmt::format("workers/all_reduce/{}/{}/{}", engine_name, workers, size),
             .bytes = static_cast<double>(bytes),
             .candidates = [=, engine = engine, bytes = bytes](
                               int) { return worker_all_reduce_candidates(engine, workers, bytes); },
             .most_rounds = bytes > (1 << 24) ? 5 : kWorkerRounds});
  works.push_back({.name = "workers/lenet",
                   .candidates = [](int) { return worker_lenet_candidates(); },
                   .most_rounds = kWorkerRounds,
                   .items = kWorkersBatch,
                   .item = "images"});
  works.push_back({.name = "workers/recovery",
                   .candidates = [](int) { return worker_recovery_candidates(); },
                   .most_rounds = kWorkerRounds});
  constexpr int64_t kChainBytes = kChainElements * static_cast<int64_t>(sizeof(float));
  works.push_back({.name = "chain", .bytes = 2.0 * kChainBytes, .candidates = [](int threads) {
                     std::vector<Candidate> list{floor_candidate(copy_floor(kChainBytes, threads))};
                     add(list, "Lockstep fused chain", engine_chain(threads));
                     return list;
                   }});
  constexpr int64_t kSliceBatch = 128;
  works.push_back({.name = "data/slices",
                   .batch = kSliceBatch,
                   .bytes = 2.0 * kSliceBatch * kSliceColumns * sizeof(float),
                   .candidates = [](int) { return slices_candidates(kSliceBatch); }});
  works.push_back({.name = "data/map", .candidates = map_candidates});
  works.push_back({.name = "data/tfrecord",
                   .bytes = static_cast<double>(kRecords * kRecordBytes),
                   .candidates = [](int) { return tfrecord_candidates(); }});
  works.push_back({.name = "data/jpeg", .candidates = jpeg_candidates});
  works.push_back({.name = "data/hidden", .candidates = [](int) { return hidden_candidates(); }});
  constexpr int kCheckpointRounds = 10;
  const auto saved = static_cast<double>(checkpoint_bytes());
  const auto add_checkpoint = [&](const char* name, double bytes, auto candidates) {
    works.push_back(
        {.name = name, .bytes = bytes, .candidates = candidates, .most_rounds = kCheckpointRounds});
  };
  add_checkpoint("checkpoint_delay", 2 * saved, [](int) { return checkpoint_delay(); });
  add_checkpoint("checkpoint_write", saved, [](int) { return checkpoint_write(); });
  add_checkpoint("checkpoint_steps", 0, [](int threads) { return checkpoint_steps(threads); });
  for (const Row& row : all_rows())
    if (row.standard || options.all) works.push_back(network_work(row));
  if (options.large)
    for (const Row& row : large_rows()) works.push_back(network_work(row));
  return works;
}

std::string plan_table(const std::vector<MemoryPlan>& plans) {
  if (plans.empty()) return {};
  constexpr double kMiB = 1 << 20;
  std::string text =
      fmt::format("memory plans\n  {:<14}{:>12}{:>12}{:>12}\n", "MiB", "planned", "unplanned", "least");
  for (const MemoryPlan& plan : plans)
    text += fmt::format("  {:<14}{:>12.2f}{:>12.2f}{:>12.2f}\n", fmt::format("{}/{}", plan.work, plan.batch),
                        static_cast<double>(plan.planned_bytes) / kMiB,
                        static_cast<double>(plan.unplanned_bytes) / kMiB,
                        static_cast<double>(plan.least_bytes) / kMiB);
  return text;
}

// How a reading is taken: as the command line asks, and as the work needs it.
Effort effort_for(const Work& work, const Options& options) {
  Effort effort = options.quick ? Effort::quick() : Effort{};
  effort.rounds = std::min(effort.rounds, work.most_rounds);
  // Processes have to come together first.
  if (work.name.starts_with("workers/")) effort.reading_us = 30000;
  if (work.on_gpu) {  // many steps a reading: a GPU is waited for once
    effort.reading_us = options.quick ? 100000 : 200000;
    effort.rounds = options.quick ? 5 : effort.rounds;
  }
  return effort;
}

void add_first_steps(std::vector<Result>& results, const Work& work, int threads, const Peers* peers) {
  std::map<std::string, std::vector<std::string>> commands;
  if (peers) commands = peers->first_step_commands(work.name, work.batch);
  commands["Lockstep"] = {std::filesystem::read_symlink("/proc/self/exe"), "--once", work.id(), "--threads",
                          std::to_string(threads)};
  for (Result& result : results) {
    const auto command = commands.find(result.name);
    if (command == commands.end() || !result.error.empty()) continue;
    try {
      const FirstStep seconds = first_step(result.name, command->second);
      result.first_step_s = seconds.cold_s;
      result.first_step_again_s = seconds.again_s;
    } catch (const std::exception& e) {
      result.note = fmt::format("no first step: {}", e.what());
    }
  }
}

Measurement measured(Work work, int threads, const Options& options, const Peers* peers) {
  const bool large = work.row && work.row->large;
  if (large) {
    Row row = *work.row;
    row.batch = largest_batch(row, device_of(row, threads), memory_for_steps());
    work = network_work(row);
  }
  std::vector<Candidate> others;
  if (peers && work.batch > 0) others = peers->candidates(work.name, work.batch);
  std::vector<Candidate> candidates = work.candidates(threads);
  const Effort effort = effort_for(work, options);
  Measurement m{.work = work.name,
                .batch = work.batch,
                .threads = threads,
                .bytes = work.bytes,
                .on_gpu = work.on_gpu,
                .items = work.items,
                .item = work.item};
  if (large) {
    m.results = measure_apart(std::move(candidates), others, effort, [&] {
      if (peers) peers->release();
    });
  } else {
    candidates.insert(candidates.end(), others.begin(), others.end());
    m.results = measure(candidates, effort);
    candidates.clear();
    if (peers) peers->release();
  }
  if (work.row) m.ceiling = ceiling_of(device_of(*work.row, threads), work.row->policy);
  if (work.row && options.first_step) add_first_steps(m.results, work, threads, peers);
  return m;
}

int run(const Options& options) {
  configure_devices();
  configure_gpus(options.large || !options.once.empty());
  if (!options.once.empty()) {
    make_one_step(row_of(options.once), options.threads.back());
    fmt::print("{}\n", nlohmann::json{{"first_step", true}}.dump());
    return 0;
  }
  if (!options.profile.empty()) {
    fmt::print("{}", network_profile(options.profile, options.threads.back()));
    return 0;
  }
  std::vector<Work> works = all_works(options);
  const std::regex filter(options.filter);
  std::erase_if(works, [&](const Work& work) { return !std::regex_search(work.id(), filter); });
  require(!works.empty(), ErrorCode::not_found, std::source_location::current(), "no work matches \"",
          options.filter, "\"; --list --all names them, --all runs those that a plain run leaves out");
  if (options.list) {
    for (const Work& work : works) fmt::print("{}\n", work.id());
    return 0;
  }

  // The reports go to standard output; with --json only the document does.
  std::FILE* progress = options.json ? stderr : stdout;
  if (double load = 0; getloadavg(&load, 1) == 1 && load > std::thread::hardware_concurrency())
    fmt::print(progress,
               "The machine is busy (load {:.1f} on {} cores): trust ratios with many clean readings.\n\n",
               load, std::thread::hardware_concurrency());
  std::vector<Measurement> measurements;
  bool failed = false;
  const auto run_works = [&](bool on_gpu, int threads) {
    const auto runs = [&](const Work& work) { return work.on_gpu == on_gpu; };
    if (std::ranges::none_of(works, runs)) return;
    if (const std::string reason = on_gpu ? why_no_gpu() : std::string(); !reason.empty()) {
      fmt::print(progress, "works on a GPU are left out: {}\n\n", reason);
      return;
    }
    std::optional<Peers> peers;
    if (!options.no_peers) {
      on_gpu ? peers.emplace(Peers::on_gpu(options.peers)) : peers.emplace(threads, options.peers);
      fmt::print(progress, "peers {}:",
                 on_gpu ? "on the GPU" : fmt::format("at {} thread{}", threads, threads == 1 ? "" : "s"));
      for (const std::string& line : peers->inventory()) fmt::print(progress, "\n  {}", line);
      fmt::print(progress, "\n");
      std::vector<std::pair<std::string, int64_t>> to_prepare;
      for (const Work& work : works)
        if (runs(work) && work.batch > 0) to_prepare.emplace_back(work.name, work.batch);
      peers->prepare(to_prepare, [&](const std::string& line) {
        fmt::print(progress, "  {}\n", line);
        std::fflush(progress);
      });
      fmt::print(progress, "\n");
    }
    for (const Work& work : works) {
      if (!runs(work)) continue;
      try {
        measurements.push_back(measured(work, threads, options, peers ? &*peers : nullptr));
        fmt::print(progress, "{}\n", as_table(measurements.back()));
      } catch (const std::exception& e) {  // the other works go on
        fmt::print(progress, "{}: {}\n\n", work.id(), e.what());
        failed = true;
      }
      std::fflush(progress);
    }
  };
  for (const int threads : options.threads) run_works(false, threads);
  run_works(true, 1);
  const std::vector<Standing> compared = standings(measurements);
  fmt::print(progress, "{}{}", as_table(compared), compared.empty() ? "" : "\n");
  nlohmann::json document{{"results", as_json(measurements)}, {"summary", as_json(compared)}};
  if (std::ranges::any_of(works, [](const Work& work) { return !work.on_gpu && !work.row; })) {
    const std::vector<MemoryPlan> plans = engine_memory_plans();
    fmt::print(progress, "{}", plan_table(plans));
    document["memory_plans"] = nlohmann::json::array();
    for (const MemoryPlan& plan : plans)
      document["memory_plans"].push_back({{"work", plan.work},
                                          {"batch", plan.batch},
                                          {"planned_bytes", plan.planned_bytes},
                                          {"unplanned_bytes", plan.unplanned_bytes},
                                          {"least_bytes", plan.least_bytes}});
  }
  if (options.json) fmt::print("{}\n", document.dump(2));
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  if (const auto status = lockstep::bench::run_as_bench_worker(argc, argv)) return *status;
  // Advice on a loop means nothing where candidates take turns, each on one of many logical devices.
  if (std::getenv("LOCKSTEP_LOG") == nullptr) lockstep::set_log_level(lockstep::LogLevel::error);
  lockstep::bench::Options options;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  options.threads = cores == 1 ? std::vector{1} : std::vector{1, cores};
  CLI::App app("Lockstep's steps against the floors of this processor and against other frameworks.");
  app.add_flag("--quick", options.quick, "Fewer rounds");
  app.add_flag("--json", options.json, "One JSON document on standard output, the tables on standard error");
  app.add_option("--threads", options.threads, "Thread counts to measure at")->delimiter(',');
  app.add_option("filter,--filter", options.filter,
                 "Only works whose name (see --list) matches this regular expression");
  app.add_flag("--all", options.all,
               "Networks under every policy and at every batch, not only the rows that a plain run has");
  app.add_flag("--large", options.large, "Also networks at batches as large as fit on the GPU (.../large)");
  app.add_flag(
      "--first-step", options.first_step,
      "Also the time from a process' start to its first step, with nothing compiled before and again");
  app.add_option("--profile", options.profile,
                 "Instead: which kernels a training step spends its time in; NETWORK[/POLICY[/BATCH]], "
                 "as in lenet/float32/128");
  app.add_option("--once", options.once, "Instead: make one step of this work of a network, and end");
  app.add_option("--peers", options.peers,
                 "Only other frameworks whose name matches this regular expression");
  app.add_flag("--no-peers", options.no_peers, "Leave the other frameworks out");
  app.add_flag("--list", options.list, "Name the works and stop; with --all and --large those too");
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::bench::run(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "lockstep_bench: {}\n", e.what());
    return 1;
  }
}
