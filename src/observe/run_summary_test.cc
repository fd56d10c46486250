#include "lockstep/observe/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/observe/step_clock.h"
#include "observe/fake_clock.h"

namespace lockstep::observe {
namespace {

// Two replicas, four steps of 8 ms: 6 ms compute, 1 ms host, 1 ms that nothing measures.
RunSummary some_run() {
  FakeClock time;
  StepClock clock({.replicas = 2, .measure_descheduled_every = 1, .clock = &time});
  for (int i = 0; i < 4; ++i) {
    clock.begin_step();
    {
      TimeScopeOfAll compute(clock, Category::compute);
      time.run(6'000'000);
    }
    {
      TimeScopeOfAll host(clock, Category::host);
      time.run(1'000'000);
    }
    time.run(1'000'000);
    for (int r = 0; r < 2; ++r) clock.replica(r).count(Counter::examples, 16);
    clock.end_step();
  }
  return clock.summary();
}

TEST(RunSummary, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (size_t c = 0; c < kCategories; ++c) names.insert(name(static_cast<Category>(c)));
  EXPECT_EQ(names.size(), kCategories);
  EXPECT_EQ(name(Category::unattributed), "unattributed");
  names.clear();
  for (size_t c = 0; c < kCounters; ++c) names.insert(name(static_cast<Counter>(c)));
  EXPECT_EQ(names.size(), kCounters);
  EXPECT_EQ(name(Counter::flops), "flops");
  EXPECT_EQ(name(Counter::half_flops), "half_flops");
}

TEST(RunSummary, TextShowsTheStepAndTheShares) {
  EXPECT_EQ(to_text(some_run()),
            "4 steps on 2 replicas: mean 8 ms, median 8, p95 8, max 8; 4000 examples/s\n"
            "  replica 0: compute 75.0%, host 12.5%, unattributed 12.5%\n"
            "  replica 1: compute 75.0%, host 12.5%, unattributed 12.5%\n");
}

// A worker with one replica: so many milliseconds of computing, then of all_reduce; four steps.
RunSummary some_worker(int compute_ms, int communication_ms) {
  FakeClock time;
  StepClock clock({.measure_descheduled_every = 0, .clock = &time});
  for (int i = 0; i < 4; ++i) {
    clock.begin_step();
    {
      const TimeScopeOfAll compute(clock, Category::compute);
      time.run(compute_ms * 1'000'000);
    }
    {
      const TimeScopeOfAll communication(clock, Category::exposed_communication);
      time.run(communication_ms * 1'000'000);
    }
    clock.replica(0).count(Counter::examples, 16);
    clock.end_step();
  }
  return clock.summary();
}

TEST(RunSummary, OfSeveralWorkersShowsTheSlowestAndWhoWaitsForIt) {
  const RunSummary summary = joined({some_worker(4, 6), some_worker(9, 1)}, {"worker 0 (a)", "worker 1 (b)"});
  EXPECT_EQ(
      to_text(summary),
      "4 steps on 2 replicas of 2 workers: mean 10 ms, median 10, p95 10, max 10; 3200 examples/s\n"
      "  replica 0: compute 40.0%, exposed_communication 10.0%, waiting_for_others 50.0%, descheduled not "
      "measured, unattributed 0.0%\n"
      "  replica 1: compute 90.0%, exposed_communication 10.0%, descheduled not measured, unattributed "
      "0.0%\n"
      "  slowest: worker 1 (b), 9 ms of its own work per step; fastest: worker 0 (a), 4 ms\n"
      "  waiting: worker 0 (a) waits longest for the others, 5 ms per step\n");
  // What a worker waits is taken from nothing else.
  for (const ReplicaSummary& replica : summary.replicas) {
    int64_t all = 0, first = 0;
    for (const Distribution& time : replica.times) all += time.total;
    for (const int64_t time : replica.first.times.values) first += time;
    EXPECT_EQ(all, replica.wall.total);
    EXPECT_EQ(first, replica.first.wall_ns);
  }
  EXPECT_EQ(replica_name(summary, 1), "replica 1 of worker 1 (b)");
  const auto json = nlohmann::json::parse(to_json(summary));
  EXPECT_EQ(json["workers"][1]["name"], "worker 1 (b)");
  EXPECT_EQ(json["workers"][1]["replicas"], 1);
}

TEST(RunSummary, OfManyWorkersShowsSomeOfTheReplicas) {
  std::vector<RunSummary> workers;
  std::vector<std::string> names;
  for (int w = 0; w < 64; ++w) {
    workers.push_back(some_worker(5, 5));
    names.push_back("worker " + std::to_string(w));
  }
  const std::string text = to_text(joined(std::move(workers), names));
  EXPECT_NE(text.find("on 64 replicas of 64 workers"), std::string::npos) << text;
  EXPECT_NE(text.find("and 48 more replicas"), std::string::npos) << text;
  EXPECT_EQ(text.find("waiting:"), std::string::npos) << text;
}

MemorySummary some_memory() {
  constexpr int64_t kMiB = 1 << 20;
  return {.device = "/GPU:0",
          .before = 10 * kMiB,
          .peak = 100 * kMiB,
          .after = 40 * kMiB,
          .peak_ns = 500'000'000,
          .limit = 4096 * kMiB,
          .reserved = 140 * kMiB,
          .largest_free = 75 * kMiB,
          .uses = {{"function train", 0, 70 * kMiB, 20 * kMiB, 0},
                   {"variables", 10 * kMiB, 30 * kMiB, 18 * kMiB, 0},
                   {"tensors", 0, 100, 2 * kMiB, kMiB}},
          .samples = {{0, 10 * kMiB},
                      {250'000'000, 50 * kMiB},
                      {500'000'000, 100 * kMiB},
                      {750'000'000, 40 * kMiB},
                      {1'000'000'000, 40 * kMiB}}};
}

TEST(RunSummary, TextSaysWhoHeldTheMemory) {
  RunSummary summary = some_run();
  summary.sums = "NCCL: every GPU is a device of its own";
  summary.memory = {some_memory()};
  const std::string text = to_text(summary);
  const std::string rest = text.substr(text.find("  all-reduce"));
  EXPECT_EQ(rest,
            "  all-reduce: NCCL: every GPU is a device of its own\n"
            "  memory of /GPU:0: peak 100 MiB of 4 GiB (function train 70 MiB, variables 30 MiB); 140 MiB "
            "held from the GPU, 25% of what is unused in pieces\n"
            "    ▁▁▁▁▁▁▁▁▁▁▅▅▅▅▅▅▅▅▅▅███████████▄▄▄▄▄▄▄▄▄\n"
            "    still held: 30 MiB more than before: function train 20 MiB, variables 8 MiB, tensors 2 MiB\n"
            "    grown since the first epoch: tensors by 1 MiB\n");
}

TEST(RunSummary, FragmentationIsThePartThatTheLargestPieceIsNot) {
  MemorySummary memory = some_memory();
  EXPECT_DOUBLE_EQ(fragmentation(memory), 0.25);
  memory.largest_free = 100 << 20;
  EXPECT_DOUBLE_EQ(fragmentation(memory), 0);
  memory.reserved = 0;
  EXPECT_DOUBLE_EQ(fragmentation(memory), 0);
}

TEST(RunSummary, JsonHoldsTheMemory) {
  RunSummary summary = some_run();
  summary.memory = {some_memory()};
  const auto json = nlohmann::json::parse(to_json(summary));
  const auto& memory = json.at("memory").at(0);
  EXPECT_EQ(memory.at("device"), "/GPU:0");
  EXPECT_EQ(memory.at("peak"), 100 << 20);
  EXPECT_EQ(memory.at("uses").at(0).at("name"), "function train");
  EXPECT_EQ(memory.at("uses").at(2).at("grown"), 1 << 20);
  EXPECT_EQ(memory.at("samples_ms_bytes").at(2).at(0), 500);
  EXPECT_FALSE(nlohmann::json::parse(to_json(some_run())).contains("memory"));
}

TEST(RunSummary, WhatCameBetweenTwoOfThem) {
  FakeClock time;
  StepClock clock({.measure_descheduled_every = 0, .clock = &time});
  const auto step = [&](int64_t ns) {
    clock.begin_step();
    {
      const TimeScopeOfAll compute(clock, Category::compute);
      time.run(ns);
    }
    clock.replica(0).count(Counter::examples, 8);
    clock.end_step();
  };
  for (int i = 0; i < 5; ++i) step(100);
  const RunSummary before = clock.summary();
  for (int i = 0; i < 3; ++i) step(700);
  const ReplicaSummary both = between(before, clock.summary()).replicas[0];
  EXPECT_EQ(both.wall.count, 3);
  EXPECT_EQ(both.wall.total, 2100);
  EXPECT_EQ(both.wall.median, 700);
  EXPECT_EQ(both[Category::compute].mean, 700);
  EXPECT_EQ(both.counts[Counter::examples], 24);
  EXPECT_EQ(both.first.steps, 0) << "the first step came before";
  EXPECT_EQ(between(RunSummary(), before).replicas[0].first.steps, 1);
}

TEST(RunSummary, TextOfNoStepSaysSo) {
  EXPECT_THAT(to_text(RunSummary{}), ::testing::StartsWith("no step was timed: "));
  EXPECT_EQ(to_text(StepClock({.replicas = 2}).summary()), to_text(RunSummary{}));
}

TEST(RunSummary, JsonHoldsTheSameStatistics) {
  const auto json = nlohmann::json::parse(to_json(some_run()));
  ASSERT_EQ(json.at("replicas").size(), 2u);
  const auto& replica = json.at("replicas").at(1);
  EXPECT_EQ(replica.at("wall").at("mean_ms"), 8.0);
  EXPECT_EQ(replica.at("times").at("compute").at("total_ms"), 24.0);
  EXPECT_EQ(replica.at("times").size(), kCategories);
  EXPECT_EQ(replica.at("counts").at("examples"), 64);
  EXPECT_EQ(replica.at("first_step").at("times_ms").at("host"), 1.0);
  EXPECT_TRUE(json.at("measures_descheduled"));
}

}  // namespace
}  // namespace lockstep::observe
