#include "lockstep/observe/run_summary.h"

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
}

TEST(RunSummary, TextShowsTheStepAndTheShares) {
  EXPECT_EQ(to_text(some_run()),
            "4 steps on 2 replicas: mean 8 ms, median 8, p95 8, max 8; 4000 examples/s\n"
            "  replica 0: compute 75.0%, host 12.5%, unattributed 12.5%\n"
            "  replica 1: compute 75.0%, host 12.5%, unattributed 12.5%\n");
}

TEST(RunSummary, TextOfNoStepSaysSo) {
  EXPECT_EQ(to_text(RunSummary{}), "step clock: no step was timed\n");
  EXPECT_EQ(to_text(StepClock({.replicas = 2}).summary()), "step clock: no step was timed\n");
}

TEST(RunSummary, JsonHoldsTheSameFigures) {
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
