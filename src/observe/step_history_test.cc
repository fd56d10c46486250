#include "observe/step_history.h"

#include <gtest/gtest.h>

#include "observe/fake_clock.h"
#include "observe/record_parts.h"

namespace lockstep::observe {
namespace {

int64_t steps_in(const Intervals& intervals) {
  int64_t steps = 0;
  for (const RunRecord::Interval& interval : intervals) steps += interval.steps;
  return steps;
}

TEST(StepHistory, HasABoundedNumberOfIntervalsAndLosesNoStep) {
  FakeClock fake;
  StepClock clock({.replicas = 2, .clock = &fake});
  StepHistory history(clock, 0, fake.now_ns());
  constexpr int64_t kSteps = 5000;
  for (int64_t i = 0; i < kSteps; ++i) {
    clock.begin_step();
    fake.run(100);
    clock.replica(1).count(Counter::examples, 8);
    clock.end_step();
    fake.run(10);
    if (i % 50 == 0) history.look(clock);
  }
  history.look(clock);
  EXPECT_EQ(history.width(), 32);
  for (const Intervals& intervals : history.replicas()) {
    EXPECT_LE(intervals.size(), static_cast<size_t>(StepHistory::kMost));
    EXPECT_EQ(steps_in(intervals), kSteps);
    EXPECT_EQ(intervals[3].first_step, 96);
    EXPECT_EQ(intervals[3].steps, 32);
    EXPECT_EQ(intervals[3].wall_ns, 3200);
    EXPECT_EQ(intervals[3].outside_ns, 320);
  }
  EXPECT_EQ(history.replicas()[1][3].examples, 256);
}

TEST(StepHistory, StepsThatTheClockHasForgottenAreMissing) {
  FakeClock fake;
  StepClock clock({.recent = 4, .clock = &fake});
  StepHistory history(clock, 1000, fake.now_ns());
  for (int i = 0; i < 10; ++i) {
    clock.begin_step();
    fake.run(100);
    clock.end_step();
    fake.run(5);
  }
  history.look(clock);
  const Intervals& intervals = history.replicas()[0];
  ASSERT_EQ(intervals.size(), 4u);
  EXPECT_EQ(intervals[0].first_step, 1006) << "numbered over the run";
  EXPECT_EQ(intervals[0].outside_ns, 0) << "what was before it is not known";
  EXPECT_EQ(intervals[1].outside_ns, 5);
  history.look(clock);
  EXPECT_EQ(steps_in(history.replicas()[0]), 4) << "no step is taken twice";
}

TEST(StepHistory, WidenedIntervalsAreSums) {
  Intervals fine;
  for (int64_t s = 0; s < 10; ++s)
    fine.push_back(
        {.first_step = s, .steps = 1, .start_ns = s, .wall_ns = 10, .examples = 2, .times_ns = {s, 1}});
  const Intervals wide = widened(fine, 4);
  ASSERT_EQ(wide.size(), 3u);
  EXPECT_EQ(wide[1].first_step, 4);
  EXPECT_EQ(wide[1].steps, 4);
  EXPECT_EQ(wide[1].wall_ns, 40);
  EXPECT_EQ(wide[1].examples, 8);
  EXPECT_EQ(wide[1].times_ns, (std::vector<int64_t>{4 + 5 + 6 + 7, 4}));
  EXPECT_EQ(wide[2].steps, 2);
}

TEST(StepHistory, WhoSpendsMoreInCollectivesThanOthersWaits) {
  const auto interval = [](int64_t communication) {
    RunRecord::Interval made{.first_step = 0, .steps = 2};
    made.times_ns.assign(kCategories, 0);
    made.times_ns[static_cast<size_t>(Category::exposed_communication)] = communication;
    return made;
  };
  std::vector<Intervals> replicas{{interval(100)}, {interval(700)}};
  attribute_waiting(replicas);
  const auto time = [&](size_t replica, Category category) {
    return replicas[replica][0].times_ns[static_cast<size_t>(category)];
  };
  EXPECT_EQ(time(0, Category::exposed_communication), 100);
  EXPECT_EQ(time(1, Category::exposed_communication), 100);
  EXPECT_EQ(time(0, Category::waiting_for_others), 0);
  EXPECT_EQ(time(1, Category::waiting_for_others), 600);
}

TEST(RecordParts, ManyReplicasHaveFewerIntervals) {
  RunSummary summary;
  summary.replicas.resize(100);
  RunRecord record;
  add_summary(record, summary);
  std::vector<Intervals> all(100);
  for (Intervals& intervals : all)
    for (int64_t s = 0; s < 256; ++s)
      intervals.push_back({.first_step = s, .steps = 1, .times_ns = std::vector<int64_t>(kCategories, 1)});
  add_intervals(record, std::move(all), 1, false, summary);
  EXPECT_EQ(record.interval_steps, 16);
  EXPECT_EQ(record.replicas[0].intervals.size(), 16u);
  EXPECT_EQ(record.replicas[99].intervals.size(), 0u) << "beyond the 64th there are means alone";
  EXPECT_LT(to_json(record).dump().size(), 300'000u);
}

TEST(RecordParts, ThinnedPointsKeepTheirSpacing) {
  ThinnedPoints<int> points(8, 1);
  for (int i = 0; i < 1000; ++i)
    if (points.wants(i)) points.add(i, i);
  ASSERT_LE(points.points().size(), 8u);
  ASSERT_GE(points.points().size(), 4u);
  EXPECT_EQ(points.points()[0], 0);
  const int spacing = points.points()[1] - points.points()[0];
  for (size_t i = 1; i < points.points().size(); ++i)
    EXPECT_EQ(points.points()[i] - points.points()[i - 1], spacing);
}

TEST(RecordParts, ATimelineIsOfWholeSteps) {
  Trace trace;
  const auto span = [&](Name name, Name category, int64_t start, int64_t end, Track track) {
    trace.events.push_back({name, category, start, end, EventKind::span, -1, 0, track});
  };
  span("before", "kernel", 50, 60, 1);
  span("step", "step", 100, 200, 2);
  span("matmul", "kernel", 110, 150, 1);
  span("step", "step", 200, 300, 2);
  span("matmul", "kernel", 210, 250, 1);
  trace.tracks = {{1, "host", "main"}, {2, "steps", "replica 0"}, {3, "host", "nothing"}};
  const RunRecord::Timeline timeline = timeline_of(trace);
  EXPECT_EQ(timeline.steps, 2);
  ASSERT_EQ(timeline.rows.size(), 2u) << "rows without a span are left out";
  ASSERT_EQ(timeline.spans.size(), 4u) << "what was before the first step is left out";
  EXPECT_EQ(timeline.spans[0].start_ns, 0);
  EXPECT_EQ(timeline.names[static_cast<size_t>(timeline.spans[1].name)], "matmul");
  EXPECT_EQ(timeline.rows[static_cast<size_t>(timeline.spans[1].row)].name, "main");
  const RunRecord::Kernels kernels = kernels_of(trace);
  EXPECT_EQ(kernels.steps, 2);
  EXPECT_EQ(kernels.list[0].name, "matmul");
  EXPECT_EQ(kernels.list[0].total_ns, 80);
}

TEST(RecordParts, ATimelineOfMoreSpansThanFitHasFewerSteps) {
  Trace trace;
  for (int64_t s = 0; s < 4; ++s) {
    trace.events.push_back({"step", "step", s * 10000, s * 10000 + 9000, EventKind::span, -1, 0, 1});
    for (int64_t k = 0; k < 1900; ++k)
      trace.events.push_back({"relu", "kernel", s * 10000 + k, s * 10000 + k + 1, EventKind::span, -1, 0, 1});
  }
  trace.tracks = {{1, "host", "main"}};
  const RunRecord::Timeline timeline = timeline_of(trace);
  EXPECT_EQ(timeline.steps, 2);
  EXPECT_EQ(timeline.spans.size(), 2u * 1901);
}

}  // namespace
}  // namespace lockstep::observe
