// lockstep_bench: Lockstep's steps against the floors of this processor and against other frameworks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
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
#include "bench/floors/floor.h"
#include "bench/gpu.h"
#include "bench/networks.h"
#include "bench/peers.h"
#include "bench/workers.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

struct Options {
  bool quick = false, json = false, no_peers = false, list = false;
  std::vector<int> threads;
  std::string filter = ".*", peers = ".*";
  std::string profile = {};
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

  std::string id() const { return batch > 0 ? fmt::format("{}/{}", name, batch) : name; }
};

Candidate floor_candidate(std::shared_ptr<Floor> floor) {
  std::string note = floor->chosen();
  return in_process(
      "floor", [floor = std::move(floor)] { floor->step(); }, std::move(note));
}

void add(std::vector<Candidate>& candidates, const char* name, Step step) {
  if (step) candidates.push_back(in_process(name, std::move(step)));
}

std::vector<Work> all_works() {
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
  const auto add_gpu = [&](const char* name, int64_t batch, auto candidates, double items = 0,
                           const char* item = "") {
    works.push_back({.name = name,
                     .batch = batch,
                     .candidates = [=](int) { return candidates(batch); },
                     .most_rounds = 10,
                     .on_gpu = true,
                     .items = items,
                     .item = item});
  };
  for (const int64_t batch : {32L, 128L, 1024L}) add_gpu("gpu/mlp", batch, gpu_mlp_candidates);
  add_gpu("gpu/resnet50", 256, gpu_resnet50_candidates, 256, "images");
  add_gpu("gpu/gpt2", 32, gpu_gpt2_candidates, 32.0 * kGptContext, "tokens");
  constexpr int kCheckpointRounds = 10;
  const auto saved = static_cast<double>(checkpoint_bytes());
  const auto add_checkpoint = [&](const char* name, double bytes, auto candidates) {
    works.push_back(
        {.name = name, .bytes = bytes, .candidates = candidates, .most_rounds = kCheckpointRounds});
  };
  add_checkpoint("checkpoint_delay", 2 * saved, [](int) { return checkpoint_delay(); });
  add_checkpoint("checkpoint_write", saved, [](int) { return checkpoint_write(); });
  add_checkpoint("checkpoint_steps", 0, [](int threads) { return checkpoint_steps(threads); });
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

int run(const Options& options) {
  configure_devices();
  configure_gpus();
  if (!options.profile.empty()) {
    const std::string reason = why_no_gpu();
    require(reason.empty(), ErrorCode::failed_precondition, std::source_location::current(), reason);
    fmt::print("{}", gpu_profile(options.profile));
    return 0;
  }
  std::vector<Work> works = all_works();
  const std::regex filter(options.filter);
  std::erase_if(works, [&](const Work& work) { return !std::regex_search(work.id(), filter); });
  if (options.list) {
    for (const Work& work : works) fmt::print("{}\n", work.id());
    return 0;
  }

  const Effort effort = options.quick ? Effort::quick() : Effort{};
  // The reports go to standard output; with --json only the document does.
  std::FILE* progress = options.json ? stderr : stdout;
  if (double load = 0; getloadavg(&load, 1) == 1 && load > std::thread::hardware_concurrency())
    fmt::print(progress,
               "The machine is busy (load {:.1f} on {} cores): trust ratios with many clean readings.\n\n",
               load, std::thread::hardware_concurrency());
  std::vector<Measurement> measurements;
  const auto run_works = [&](bool on_gpu, int threads) {
    const auto runs = [&](const Work& work) { return work.on_gpu == on_gpu; };
    if (std::ranges::none_of(works, runs)) return;
    if (const std::string reason = on_gpu ? why_no_gpu() : std::string(); !reason.empty()) {
      fmt::print(progress, "works on a GPU are left out: {}\n\n", reason);
      return;
    }
    std::optional<Peers> peers;
    if (!options.no_peers) {
      on_gpu ? peers.emplace(Peers::on_gpu(options.peers)) : peers.emplace(threads);
      fmt::print(progress, "peers {}:",
                 on_gpu ? "on the GPU" : fmt::format("at {} thread{}", threads, threads == 1 ? "" : "s"));
      for (const std::string& line : peers->inventory()) fmt::print(progress, "\n  {}", line);
      fmt::print(progress, "\n");
      std::vector<std::pair<std::string, int64_t>> to_prepare;
      for (const Work& work : works)
        if (runs(work)) to_prepare.emplace_back(work.name, work.batch);
      peers->prepare(to_prepare, [&](const std::string& line) {
        fmt::print(progress, "  {}\n", line);
        std::fflush(progress);
      });
      fmt::print(progress, "\n");
    }
    for (const Work& work : works) {
      if (!runs(work)) continue;
      std::vector<Candidate> candidates = work.candidates(threads);
      Effort own = effort;
      own.rounds = std::min(own.rounds, work.most_rounds);
      // Processes have to come together first.
      if (work.name.starts_with("workers/")) own.reading_us = 30000;
      if (on_gpu) {  // many steps a reading: a GPU is waited for once
        own.reading_us = options.quick ? 100000 : 200000;
        own.rounds = options.quick ? 5 : own.rounds;
      }
      if (peers && work.batch > 0)
        for (Candidate& peer : peers->candidates(work.name, work.batch))
          if (std::regex_search(peer.name, std::regex(options.peers))) candidates.push_back(std::move(peer));
      measurements.push_back({.work = work.name,
                              .batch = work.batch,
                              .threads = threads,
                              .bytes = work.bytes,
                              .on_gpu = on_gpu,
                              .items = work.items,
                              .item = work.item,
                              .results = measure(candidates, own)});
      fmt::print(progress, "{}\n", as_table(measurements.back()));
      std::fflush(progress);
    }
  };
  for (const int threads : options.threads) run_works(false, threads);
  run_works(true, 1);
  if (std::ranges::all_of(works, [](const Work& work) { return work.on_gpu; })) {
    if (options.json) fmt::print("{}\n", nlohmann::json{{"results", as_json(measurements)}}.dump(2));
    return 0;
  }
  const std::vector<MemoryPlan> plans = engine_memory_plans();
  fmt::print(progress, "{}", plan_table(plans));
  if (options.json) {
    auto document =
        nlohmann::json{{"results", as_json(measurements)}, {"memory_plans", nlohmann::json::array()}};
    for (const MemoryPlan& plan : plans)
      document["memory_plans"].push_back({{"work", plan.work},
                                          {"batch", plan.batch},
                                          {"planned_bytes", plan.planned_bytes},
                                          {"unplanned_bytes", plan.unplanned_bytes},
                                          {"least_bytes", plan.least_bytes}});
    fmt::print("{}\n", document.dump(2));
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  if (const auto status = lockstep::bench::run_as_bench_worker(argc, argv)) return *status;
  lockstep::bench::Options options;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  options.threads = cores == 1 ? std::vector{1} : std::vector{1, cores};
  CLI::App app("Lockstep's steps against the floors of this processor and against other frameworks.");
  app.add_flag("--quick", options.quick, "Fewer rounds");
  app.add_flag("--json", options.json, "One JSON document on standard output, the tables on standard error");
  app.add_option("--threads", options.threads, "Thread counts to measure at")->delimiter(',');
  app.add_option("filter,--filter", options.filter,
                 "Only works whose name (see --list) matches this regular expression");
  app.add_option(
      "--profile", options.profile,
      "Instead: which kernels a step of this network (resnet50, gpt2) spends its time in, on the first GPU");
  app.add_option("--peers", options.peers,
                 "Only other frameworks whose name matches this regular expression");
  app.add_flag("--no-peers", options.no_peers, "Leave the other frameworks out");
  app.add_flag("--list", options.list, "Name the works and stop");
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::bench::run(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "lockstep_bench: {}\n", e.what());
    return 1;
  }
}
