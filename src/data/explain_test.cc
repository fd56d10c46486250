#include "lockstep/data/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "data/statistics.h"
#include "lockstep/base/clock.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

constexpr double kMs = 1e6;

// A stage of a run in which the root gave 100 elements, with what it took altogether, in milliseconds.
StageStatistics stage(std::string name, double ms, std::vector<StageStatistics> inputs = {},
                      int64_t elements = 100) {
  return {.name = std::move(name),
          .where = "main.cc:7",
          .elements = elements,
          .caller_ns = ms * kMs,
          .inputs = std::move(inputs)};
}

// One with threads: `fetch_ms` is the whole of its calls to the inputs.
StageStatistics threaded(StageStatistics statistics, int threads, double work_ms, double fetch_ms,
                         double waited_ms) {
  statistics.threads = threads;
  statistics.slots = 4;
  statistics.work_ns = work_ms * kMs;
  statistics.fetch_ns = fetch_ms * kMs;
  statistics.consumer_wait_ns = waited_ms * kMs;
  return statistics;
}

Explanation explained(const StageStatistics& root, double elapsed_ms, int cores = 4) {
  return explain(PipelineStatistics{root, elapsed_ms * kMs, cores});
}

TEST(Explain, NothingHasToChangeWhereTheConsumerTakesTheTime) {
  const Explanation e =
      explained(threaded(stage("prefetch", 1, {stage("batch", 80, {stage("range", 1)})}), 1, 0, 81, 2), 200);
  EXPECT_EQ(e.advice, "consumer");
  EXPECT_NEAR(e.consumer, 0.985, 1e-9);
  EXPECT_EQ(e.bottleneck, "");
  EXPECT_THAT(e.cause, HasSubstr("not what limits: the consumer took 98% of the time"));
  EXPECT_THAT(to_text(e), HasSubstr("the consumer took 98%"));
}

TEST(Explain, ASlowMapShouldBeParallel) {
  const Explanation e = explained(
      stage("batch", 5, {stage("map", 90, {stage("from_tensor_slices", 1, {}, 12800)}, 12800)}), 100);
  EXPECT_EQ(e.bottleneck, "map");
  EXPECT_EQ(e.advice, "parallel-map");
  EXPECT_THAT(e.fix, HasSubstr("num_parallel_calls = tf::data::AUTOTUNE"));
  EXPECT_NEAR(e.speedup, 100 / 24.0, 0.5) << "all work on four cores";
}

TEST(Explain, ACheapMapShouldBeOnBatches) {
  const Explanation e = explained(
      stage("batch", 5, {stage("map", 40, {stage("from_tensor_slices", 1, {}, 128000)}, 128000)}), 50);
  EXPECT_EQ(e.bottleneck, "map");
  EXPECT_EQ(e.advice, "batch-first");
}

TEST(Explain, AConsumerThatMakesItsElementsItselfShouldPrefetch) {
  const Explanation e = explained(stage("shuffle", 50, {stage("range", 1)}), 100);
  EXPECT_EQ(e.advice, "prefetch");
  EXPECT_NEAR(e.consumer, 0.49, 1e-9);
  EXPECT_NEAR(e.speedup, 100 / 51.0, 0.01);
}

TEST(Explain, FilesShouldBeReadSideBySide) {
  const auto read = [](const std::string& name, std::vector<StageStatistics> inputs = {}) {
    return explained(threaded(stage("prefetch", 1, {stage("batch", 5, {stage(name, 90, std::move(inputs))})}),
                              1, 0, 95, 95),
                     100);
  };
  for (const Explanation& e : {read("TFRecordDataset"), read("flat_map", {stage("list_files", 1)}),
                               read("interleave", {stage("list_files", 1)})}) {
    EXPECT_EQ(e.advice, "interleave") << e.bottleneck;
    EXPECT_GT(e.speedup, 3);
  }
}

TEST(Explain, FilesThatAreReadSideBySideWantMoreThreads) {
  // Its threads ask the files' datasets: 180 of the 190 ms of work are theirs.
  const Explanation e =
      explained(threaded(stage("interleave", 1, {stage("list_files", 1), stage("TFRecordDataset", 180)}), 2,
                         190, 2, 95),
                100, 8);
  EXPECT_EQ(e.bottleneck, "interleave");
  EXPECT_EQ(e.advice, "more-threads");
  EXPECT_NEAR(e.speedup, 4, 0.1);
}

TEST(Explain, ASlowBatchShouldBeParallel) {
  const Explanation e =
      explained(threaded(stage("prefetch", 1, {stage("batch", 90, {stage("range", 5)})}), 1, 0, 95, 95), 100);
  EXPECT_EQ(e.bottleneck, "batch");
  EXPECT_EQ(e.advice, "parallel-batch");
}

TEST(Explain, AStageOfOneThreadShouldHaveItAlone) {
  const Explanation e = explained(
      threaded(stage("prefetch", 1, {stage("batch", 40, {stage("shuffle", 60, {stage("range", 1)})})}), 1, 0,
               101, 100),
      102);
  EXPECT_EQ(e.bottleneck, "shuffle");
  EXPECT_EQ(e.advice, "own-thread");
  EXPECT_THAT(e.fix, HasSubstr("behind shuffle"));
  EXPECT_NEAR(e.speedup, 101 / 61.0, 0.01);
}

TEST(Explain, AParallelMapUsesTheCoresThereAre) {
  const auto with = [](int threads, int cores, double work) {
    return explained(threaded(stage("map", 1, {stage("range", 1)}), threads, work, 1, 95), 100, cores);
  };
  const Explanation more = with(2, 8, 196);
  EXPECT_EQ(more.bottleneck, "map");
  EXPECT_EQ(more.advice, "more-threads");
  EXPECT_NEAR(more.speedup, 4, 0.1);
  EXPECT_THAT(more.fix, HasSubstr("num_parallel_calls = 8"));
  EXPECT_EQ(with(16, 4, 1590).advice, "fewer-threads");
  const Explanation all = with(4, 4, 396);
  EXPECT_EQ(all.advice, "cache");
  EXPECT_THAT(all.fix, HasSubstr("behind map"));
}

TEST(Explain, UnevenElementsNeedALargerBuffer) {
  StageStatistics root =
      threaded(stage("prefetch", 1, {stage("map", 50, {stage("range", 1)})}), 1, 0, 51, 30);
  root.producer_wait_ns = 20 * kMs;
  const Explanation e = explained(root, 100, 2);
  EXPECT_EQ(e.advice, "larger-buffer");
  EXPECT_EQ(e.fix, ".prefetch(16)");
  EXPECT_NEAR(e.speedup, 1 / 0.7, 0.1);
}

TEST(Explain, SharesAndFillAndSkippedElementsAreShown) {
  StageStatistics root =
      threaded(stage("map", 1, {stage("ignore_errors", 3, {stage("range", 1)})}), 2, 100, 4, 20);
  root.arguments = "num_parallel_calls=2";
  root.ready = 250;
  root.inputs[0].skipped = 3;
  const Explanation e = explained(root, 100);
  EXPECT_DOUBLE_EQ(e.root.self_ns, 1.01 * kMs);
  EXPECT_DOUBLE_EQ(e.root.busy, 1.01);
  EXPECT_DOUBLE_EQ(e.root.ready, 2.5);
  EXPECT_DOUBLE_EQ(e.root.waited, 0.2);
  EXPECT_DOUBLE_EQ(e.root.elements_per_s, 1000);
  const std::string text = to_text(e);
  EXPECT_THAT(text, HasSubstr("map(num_parallel_calls=2)"));
  EXPECT_THAT(text, HasSubstr("2.5/4"));
  EXPECT_THAT(text, HasSubstr("└ ignore_errors (3 skipped)"));
  EXPECT_THAT(text, HasSubstr("  └ range"));
  const auto json = nlohmann::json::parse(to_json(e));
  EXPECT_EQ(json["root"]["inputs"][0]["skipped"], 3);
  EXPECT_EQ(json["bottleneck"], e.bottleneck);
}

void busy_wait(int64_t ns) {
  for (const int64_t end = monotonic_ns() + ns; monotonic_ns() < end;) {
  }
}

TEST(Explain, TheSlowMapOfARealDatasetIsNamed) {
  const Dataset data = Dataset::range(1000)
                           .map([](const Tensor& x) { return x; })
                           .map([](const Tensor& x) {
                             busy_wait(500'000);
                             return x;
                           })
                           .batch(4)
                           .prefetch();
  const Explanation e = explain(data.with_options({.threads = 4}), {.elements = 20});
  EXPECT_EQ(e.bottleneck, "map") << to_text(e);
  EXPECT_EQ(e.advice, "parallel-map") << to_text(e);
  EXPECT_EQ(e.elements, 20);
  const StageExplanation& slow = e.root.inputs[0].inputs[0];
  EXPECT_THAT(e.where, HasSubstr("explain_test.cc:"));
  EXPECT_EQ(slow.where, e.where);
  EXPECT_GE(slow.elements, 80);
  EXPECT_GE(slow.self_ns, 400'000);
  EXPECT_GT(slow.self_ns, slow.inputs[0].self_ns);
}

TEST(Explain, AConsumerThatIsSlowIsSeenInALiveIterator) {
  Iterator iterator(Dataset::range(100));
  Element element;
  for (int i = 0; i < 40 && iterator.next(element); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Explanation e = explain(iterator);
  EXPECT_EQ(e.advice, "consumer") << to_text(e);
}

TEST(Explain, AutotuneGivesASlowMapItsThreads) {
  const auto slow = [](const Tensor& x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return x;
  };
  // One batch takes 200 ms of work: the threads must come before the first one is there.
  Iterator iterator(Dataset::range(2000)
                        .map(slow, {.num_parallel_calls = AUTOTUNE})
                        .batch(200)
                        .with_options({.threads = 3}));
  Element element;
  ASSERT_TRUE(iterator.next(element));
  const Explanation e = explain(iterator);
  EXPECT_GE(e.root.inputs[0].threads, 2) << to_text(e);
  EXPECT_GE(e.root.inputs[0].slots, 4);
  std::vector<int64_t> expected(200);
  for (int64_t i = 0; i < 200; ++i) expected[static_cast<size_t>(i)] = i;
  EXPECT_EQ(element.tensor().to_vector<int64_t>(), expected);
}

}  // namespace
}  // namespace lockstep::data
