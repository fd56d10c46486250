#include "lockstep/observe/span.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::observe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Ends with tracing off and nothing recorded; captures warnings.
class SpanTest : public testing::Test {
 protected:
  void SetUp() override {
    previous_ = set_log_sink([this](const LogMessage& m) { messages_.emplace_back(m.text); });
  }
  void TearDown() override {
    stop_tracing();
    take_trace();
    set_log_sink(previous_);
  }

  static std::vector<std::string> names(const Trace& trace) {
    std::vector<std::string> all;
    for (const Event& event : trace.events) all.emplace_back(event.name.c_str());
    return all;
  }
  static std::string row_of(const Trace& trace, const Event& event) {
    for (const TrackInfo& info : trace.tracks)
      if (info.track == event.track) return info.group + "/" + info.row;
    return "";
  }

  std::vector<std::string> messages_;

 private:
  LogSink previous_;
};

TEST_F(SpanTest, RecordsNothingUnlessTracing) {
  { Span span("off", "test"); }
  record_span("off", "test", 1, 2);
  record_counter("off", 1);
  EXPECT_FALSE(tracing());
  EXPECT_TRUE(take_trace().events.empty());
  start_tracing();
  EXPECT_TRUE(tracing());
  { Span span("on", "test"); }
  stop_tracing();
  { Span span("off again", "test"); }
  EXPECT_THAT(names(take_trace()), ElementsAre("on"));
  EXPECT_TRUE(take_trace().events.empty());
}

TEST_F(SpanTest, KeepsWhatItWasGiven) {
  start_tracing();
  const Track stream = track("GPU:1", "compute");
  record_span("matmul", "kernel", 100, 250,
              {.device = 1, .replica = 3, .track = stream, .flops = 1'000, .bytes = 64});
  record_counter("memory", 2.5, {.device = 1});
  const Trace trace = take_trace();
  ASSERT_EQ(trace.events.size(), 2u);
  const Event& span = trace.events[0];
  EXPECT_STREQ(span.name.c_str(), "matmul");
  EXPECT_STREQ(span.category.c_str(), "kernel");
  EXPECT_EQ(span.kind, EventKind::span);
  EXPECT_EQ(span.start_ns, 100);
  EXPECT_EQ(span.end_ns, 250);
  EXPECT_EQ(span.device, 1);
  EXPECT_EQ(span.replica, 3);
  EXPECT_EQ(span.value, 1'000);
  EXPECT_EQ(span.bytes, 64);
  EXPECT_EQ(row_of(trace, span), "GPU:1/compute");
  const Event& counter = trace.events[1];
  EXPECT_EQ(counter.kind, EventKind::counter);
  EXPECT_EQ(counter.value, 2.5);
  EXPECT_EQ(counter.device, 1);
}

TEST_F(SpanTest, ComesSortedWithTheOuterSpanFirst) {
  start_tracing();
  record_span("late", "test", 50, 60);
  record_span("inner", "test", 10, 20);
  record_span("outer", "test", 10, 40);
  EXPECT_THAT(names(take_trace()), ElementsAre("outer", "inner", "late"));
}

TEST_F(SpanTest, NestedSpansLieInsideEachOther) {
  start_tracing();
  {
    Span outer("outer", "test");
    Span inner("inner", "test");
  }
  const Trace trace = take_trace();
  ASSERT_EQ(trace.events.size(), 2u);
  const bool outer_first = std::string_view(trace.events[0].name.c_str()) == "outer";
  const Event& outer = trace.events[outer_first ? 0 : 1];
  const Event& inner = trace.events[outer_first ? 1 : 0];
  EXPECT_LE(outer.start_ns, inner.start_ns);
  EXPECT_LE(inner.start_ns, inner.end_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
}

TEST_F(SpanTest, CountsAndReportsWhatDoesNotFit) {
  start_tracing({.events_per_thread = 5});  // rounded up to 8
  for (int i = 0; i < 20; ++i) record_span("event", "test", i, i + 1);
  Trace trace = take_trace();
  EXPECT_EQ(trace.events.size(), 8u);
  EXPECT_EQ(trace.dropped, 12);
  EXPECT_EQ(trace.events.back().start_ns, 7);
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("12 events did not fit")));
  for (int i = 0; i < 8; ++i) record_span("event", "test", i, i + 1);
  trace = take_trace();
  EXPECT_EQ(trace.events.size(), 8u);
  EXPECT_EQ(trace.dropped, 0);
  EXPECT_EQ(messages_.size(), 1u);
}

TEST_F(SpanTest, ANewTraceForgetsTheOldOneAndTakesTheNewCapacity) {
  start_tracing({.events_per_thread = 2});
  record_span("old", "test", 0, 1);
  start_tracing({.events_per_thread = 16});
  for (int i = 0; i < 16; ++i) record_span("new", "test", i, i + 1);
  const Trace trace = take_trace();
  EXPECT_EQ(trace.events.size(), 16u);
  EXPECT_EQ(trace.dropped, 0);
  EXPECT_STREQ(trace.events[0].name.c_str(), "new");
  EXPECT_THROW(start_tracing({.events_per_thread = 0}), Error);
}

TEST_F(SpanTest, InternsNamesAndTracksOnce) {
  std::string text = "layer dense_1";
  const Name first = intern(text);
  text[0] = 'L';
  EXPECT_STREQ(first.c_str(), "layer dense_1");
  EXPECT_EQ(intern("layer dense_1"), first);
  EXPECT_NE(intern(text), first);
  EXPECT_EQ(track("a", "b"), track("a", "b"));
  EXPECT_NE(track("a", "b"), track("b", "a"));
  EXPECT_NE(track("a", "b"), kThisThread);
}

TEST_F(SpanTest, EventsOfAThreadThatEndedAreKeptOnItsRow) {
  start_tracing();
  std::thread([] {
    name_this_thread("loader");
    record_span("read", "input", 1, 2);
  }).join();
  std::thread([] {
    record_span("read", "input", 3, 4);
    name_this_thread("loader");
  }).join();
  const Trace trace = take_trace();
  ASSERT_EQ(trace.events.size(), 2u);
  EXPECT_EQ(row_of(trace, trace.events[0]), "host/loader");
  EXPECT_EQ(row_of(trace, trace.events[1]), "host/loader");
  EXPECT_NE(trace.events[0].track, trace.events[1].track);
}

TEST_F(SpanTest, NoEventIsLostOrDoubledWhileThreadsRecordAndAnotherTakes) {
  constexpr int kThreads = 4, kEvents = 5'000;
  start_tracing({.events_per_thread = 64});
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t, &running] {
      for (int i = 0; i < kEvents; ++i) record_span("event", "test", i, i + 1, {.replica = t});
      --running;
    });
  std::set<std::pair<int, int64_t>> seen;
  int64_t dropped = 0;
  size_t taken = 0;
  const auto take = [&] {
    const Trace trace = take_trace();
    for (const Event& event : trace.events) seen.emplace(event.replica, event.start_ns);
    taken += trace.events.size();
    dropped += trace.dropped;
  };
  while (running > 0) take();
  for (std::thread& thread : threads) thread.join();
  take();
  EXPECT_EQ(seen.size(), taken);
  EXPECT_EQ(static_cast<int64_t>(taken) + dropped, kThreads * kEvents);
}

TEST_F(SpanTest, TracingMayStartAndStopWhileThreadsRecord) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&stop] {
      while (!stop) Span span("event", "test");
    });
  for (int i = 0; i < 50; ++i) {
    start_tracing({.events_per_thread = 1 << 8});
    std::this_thread::yield();
    if (i % 2 == 0) stop_tracing();
    for (const Event& event : take_trace().events) ASSERT_LE(event.start_ns, event.end_ns);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep::observe
