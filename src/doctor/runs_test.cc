#include "lockstep/doctor/runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>

#include "doctor/schema_test.h"
#include "observe/record_mutations_test.h"

namespace lockstep::doctor {
namespace {

using observe::RunRecord;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> checks(const Report& report) {
  std::vector<std::string> names;
  for (const Finding& finding : report.findings) names.push_back(finding.check);
  return names;
}

const Finding& finding(const Report& report, const std::string& check) {
  for (const Finding& one : report.findings)
    if (one.check == check) return one;
  static const Finding none;
  return none;
}

RunRecord healthy() {
  RunRecord record = observe::sample_record();
  record.state = RunRecord::State::finished;
  record.verdicts.clear();
  return record;
}

// 64 intervals of 4 steps, whose compute takes `ns(interval)` per step.
template <class F>
RunRecord with_intervals(F ns) {
  RunRecord record = healthy();
  record.replicas.resize(1);
  record.replicas[0].intervals.clear();
  for (int64_t i = 0; i < 64; ++i)
    record.replicas[0].intervals.push_back(
        {.first_step = 4 * i, .steps = 4, .wall_ns = 4 * ns(i) + 4, .times_ns = {4 * ns(i), 4}});
  return record;
}

TEST(DoctorRuns, AHealthyRunHasNoFinding) {
  const Report report = examine_run(healthy(), "runs/7");
  EXPECT_THAT(checks(report), IsEmpty());
  EXPECT_TRUE(report.healthy());
  const std::string text = report.to_text();
  EXPECT_THAT(text, HasSubstr("Run runs/7"));
  EXPECT_THAT(text, HasSubstr("compute 75.0%, host 25.0%"));
  EXPECT_THAT(text, HasSubstr("loss 1.5, val_loss 1.75"));
  EXPECT_THAT(text, HasSubstr("No problems found."));
}

TEST(DoctorRuns, VerdictsOfTheRunAreWarnings) {
  const Report report = examine_run(observe::sample_record(), "run");
  EXPECT_THAT(checks(report), ElementsAre("input-bound"));
  EXPECT_EQ(report.findings[0].severity, Severity::warning);
  EXPECT_EQ(report.findings[0].fix, "fix");
  EXPECT_TRUE(report.healthy());
}

TEST(DoctorRuns, ARunThatFailedIsAProblem) {
  RunRecord record = healthy();
  record.state = RunRecord::State::failed;
  EXPECT_THAT(checks(examine_run(record, "run")), ElementsAre("run_failed"));
  EXPECT_FALSE(examine_run(record, "run").healthy());
}

TEST(DoctorRuns, ARunThatWasKilledIsAProblem) {
  RunRecord record = healthy();
  record.state = RunRecord::State::running;
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  record.host = host.data();
  record.process = 0x7ffffffe;
  EXPECT_THAT(checks(examine_run(record, "run")), ElementsAre("run_killed"));
}

TEST(DoctorRuns, ARunningRunIsStalledWhenNoStepEnds) {
  RunRecord record = healthy();
  record.state = RunRecord::State::running;
  EXPECT_THAT(checks(examine_run(record, "run", record.updated_ms + 30'000)), IsEmpty());
  EXPECT_THAT(checks(examine_run(record, "run", record.updated_ms + 90'000)), ElementsAre("run_stalled"));
  record.replicas[0].max_ms = 60'000;  // its steps take a minute
  EXPECT_THAT(checks(examine_run(record, "run", record.updated_ms + 90'000)), IsEmpty());
}

TEST(DoctorRuns, ALossThatIsNoNumberIsAProblem) {
  RunRecord record = healthy();
  record.curves[0].values = {2.5, NAN};
  const Report report = examine_run(record, "run");
  EXPECT_THAT(checks(report), ElementsAre("loss_not_finite"));
  EXPECT_THAT(report.findings[0].cause, HasSubstr("from epoch 2 on"));
}

TEST(DoctorRuns, ALossThatGrowsAgainIsAWarning) {
  RunRecord record = healthy();
  record.history_epochs = {0, 1, 2};
  record.curves = {{"loss", {2.5, 1.0, 1.4}}};
  EXPECT_THAT(checks(examine_run(record, "run")), IsEmpty());
  record.curves = {{"loss", {2.5, 1.0, 1.8}}};
  EXPECT_THAT(checks(examine_run(record, "run")), ElementsAre("loss_grows"));
}

TEST(DoctorRuns, StepsThatBecomeSlowerAreNamedWithTheirCategory) {
  EXPECT_THAT(checks(examine_run(with_intervals([](int64_t i) { return i == 0 ? 1'000'000 : 1000; }), "run")),
              IsEmpty())
      << "the first step compiles";
  const Report report = examine_run(with_intervals([](int64_t i) { return i < 40 ? 1000 : 1300; }), "run");
  EXPECT_THAT(checks(report), ElementsAre("got_slower"));
  EXPECT_THAT(report.findings[0].cause,
              HasSubstr("1.30 times as long as earlier in the run, above all compute"));
}

TEST(DoctorRuns, TwoRunsAreComparedByCategoryAndKernel) {
  const RunRecord before = healthy();
  RunRecord after = healthy();
  after.examples_per_second = before.examples_per_second / 1.5;
  for (RunRecord::Replica& replica : after.replicas) replica.mean_ms = 3, replica.times_ms = {2.4, 0.6};
  after.kernels->list[0].total_ns *= 3;
  after.configuration = Json::object({{"batch_size", 16}});
  const Report report = compare_runs(before, "a", after, "b");
  EXPECT_FALSE(report.healthy());
  EXPECT_THAT(checks(report), ElementsAre("slower", "other_settings"));
  EXPECT_EQ(report.findings[0].cause, "b is 1.50 times as slow as a.");
  EXPECT_THAT(report.findings[0].evidence,
              Contains(HasSubstr("most of it is compute: 1.5 ms, then 2.4 ms (+900 us)")));
  EXPECT_THAT(report.findings[0].evidence,
              Contains(HasSubstr("of kernels, above all matmul: 0.5 us, then 1.5 us")));
  EXPECT_THAT(finding(report, "other_settings").evidence, ElementsAre("batch_size: 32, then 16"));

  const Report back = compare_runs(after, "b", before, "a");
  EXPECT_TRUE(back.healthy());
  EXPECT_EQ(back.findings[0].cause, "a is 1.50 times as fast as b.");
  EXPECT_THAT(checks(compare_runs(before, "a", before, "a again")), ElementsAre("same_speed"));
}

TEST(DoctorRuns, TheJsonFollowsTheSchema) {
  RunRecord after = healthy();
  after.examples_per_second /= 2;
  const Schema schema(LOCKSTEP_SOURCE_DIR "/docs/doctor.schema.json");
  EXPECT_EQ(schema.mismatch(Json::parse(examine_run(observe::sample_record(), "a").to_json()), "run"), "");
  EXPECT_EQ(schema.mismatch(Json::parse(compare_runs(healthy(), "a", after, "b").to_json()), "comparison"),
            "");
}

// Whatever a file may hold.
TEST(DoctorRuns, EveryRecordThatCanBeReadIsJudged) {
  const Json right = to_json(observe::sample_record());
  for (uint64_t seed = 0; seed < 300; ++seed) {
    observe::RecordMutation mutation(seed);
    try {
      const RunRecord record = observe::record_from_json(mutation(mutation(right)));
      examine_run(record, "a").to_text();
      compare_runs(record, "a", healthy(), "b").to_json();
    } catch (const Error&) {
      // Refused when it was read.
    }
  }
}

}  // namespace
}  // namespace lockstep::doctor
