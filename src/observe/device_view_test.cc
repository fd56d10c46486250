#include "observe/device_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/observe/run_report.h"
#include "lockstep/observe/step_clock.h"
#include "observe/fake_clock.h"

namespace lockstep::observe {
namespace {

// Ten steps of 10 ms: the host waits 2 ms for its input and works 2 ms, and waits for the device in the rest.
RunSummary run(bool asynchronous, int64_t reads = 0, int64_t compute_ms = 6) {
  FakeClock time;
  StepClock clock({.measure_descheduled_every = 0, .clock = &time});
  for (int i = 0; i < 10; ++i) {
    clock.begin_step();
    for (const auto& [category, ms] : {std::pair{Category::input_wait, int64_t{2}},
                                       {Category::host, int64_t{2}},
                                       {Category::compute, compute_ms}}) {
      const TimeScopeOfAll scope(clock, category);
      time.sleep(ms * 1'000'000);
    }
    clock.replica(0).count(Counter::value_reads, reads);
    clock.end_step();
  }
  RunSummary summary = clock.summary();
  summary.setting.asynchronous = asynchronous;
  return summary;
}

TEST(DeviceView, WhatTheHostDoesBesideADeviceTakesNoneOfItsTime) {
  const RunSummary seen = device_view(run(true));
  EXPECT_EQ(seen.replicas[0][Category::compute].total, 100'000'000);
  EXPECT_EQ(seen.replicas[0][Category::input_wait].total, 0);
  EXPECT_EQ(seen.replicas[0][Category::host].total, 0);
  EXPECT_EQ(seen.replicas[0].first.times[Category::compute], 10'000'000);
  EXPECT_LE(seen.replicas[0][Category::compute].median, seen.replicas[0].wall.median);
  EXPECT_EQ(seen.replicas[0].wall.total, 100'000'000);
  const RunSummary twice = device_view(seen);
  EXPECT_EQ(twice.replicas[0][Category::compute].total, 100'000'000);
}

TEST(DeviceView, OtherRunsStayAsTheyAre) {
  for (const RunSummary& summary : {run(false), run(true, 1), run(true, 0, 0)})
    EXPECT_EQ(device_view(summary).replicas[0][Category::host].total, 20'000'000);
}

TEST(DeviceView, IsWhatTheReportTells) {
  EXPECT_THAT(to_text(report_on(run(true))), testing::HasSubstr("compute 100.0%, "));
  EXPECT_THAT(to_text(report_on(run(false))),
              testing::HasSubstr("input_wait 20.0%, compute 60.0%, host 20.0%"));
  EXPECT_EQ(report_on(run(true)).summary.replicas[0][Category::host].total, 0);
}

TEST(DeviceView, IntervalsInWhichTheHostDidNotWaitStayAsTheyAre) {
  RunRecord::Interval waits{.wall_ns = 100, .times_ns = std::vector<int64_t>(kCategories)}, works = waits;
  waits.times_ns[static_cast<size_t>(Category::compute)] = 60;
  waits.times_ns[static_cast<size_t>(Category::host)] = 40;
  works.times_ns[static_cast<size_t>(Category::host)] = 100;
  std::vector<Intervals> replicas{{waits, works}};
  show_devices(replicas);
  EXPECT_EQ(replicas[0][0].times_ns[static_cast<size_t>(Category::compute)], 100);
  EXPECT_EQ(replicas[0][0].times_ns[static_cast<size_t>(Category::host)], 0);
  EXPECT_EQ(replicas[0][1].times_ns[static_cast<size_t>(Category::host)], 100);
}

}  // namespace
}  // namespace lockstep::observe
