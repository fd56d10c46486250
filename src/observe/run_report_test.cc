#include "lockstep/observe/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Ten steps, most of whose time is waited for the next batch.
RunSummary input_bound_run() {
  ReplicaSummary replica;
  replica.wall = {.count = 10, .total = 10'000'000, .max = 1'000'000, .mean = 1e6, .median = 1e6, .p95 = 1e6};
  replica.first.wall_ns = 1'000'000;
  replica.first.times[Category::input_wait] = 900'000;
  replica.times[static_cast<size_t>(Category::input_wait)].total = 9'000'000;
  replica.counts[Counter::examples] = 320;
  return {.replicas = {replica}};
}

TEST(RunReport, HoldsTheSummaryAndWhatFollowsFromIt) {
  const RunReport report = report_on(input_bound_run());
  ASSERT_FALSE(report.verdicts.empty());
  EXPECT_EQ(report.verdicts[0].id, "input-bound");
  EXPECT_EQ(to_text(report), to_text(report.summary) + to_text(report.verdicts));
  EXPECT_THAT(to_text(report_on(input_bound_run(), "MirroredStrategy::run")),
              StartsWith("MirroredStrategy::run\n10 steps on 1 replica"));
}

TEST(RunReport, IsPrintedAsItsText) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "lockstep_run_report.txt").string();
  std::FILE* out = std::fopen(path.c_str(), "w");
  ASSERT_NE(out, nullptr);
  const RunReport report = report_on(input_bound_run(), "a run");
  print(report, out);
  std::fclose(out);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), to_text(report));
  EXPECT_THAT(text.str(), HasSubstr("input-bound"));
  std::filesystem::remove(path);
}

TEST(RunSummary, CountsStepsAndExamplesOverReplicas) {
  RunSummary summary = input_bound_run();
  EXPECT_EQ(steps(summary), 10);
  EXPECT_DOUBLE_EQ(examples_per_second(summary), 32000);
  summary.replicas.push_back(summary.replicas[0]);
  summary.replicas[1].wall.total *= 2;
  EXPECT_EQ(steps(summary), 10);
  EXPECT_DOUBLE_EQ(examples_per_second(summary), 32000) << "the slowest replica's time";
  EXPECT_EQ(steps({}), 0);
  EXPECT_EQ(examples_per_second({}), 0);
}

}  // namespace
}  // namespace lockstep::observe
