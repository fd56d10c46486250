#include "lockstep/observe/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "lockstep/observe/step_clock.h"
#include "observe/fake_clock.h"

namespace lockstep::observe {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// One replica's part of one step, in milliseconds.
struct Part {
  std::vector<std::pair<Category, double>> times = {};
  std::vector<std::pair<Counter, int64_t>> counts = {};
  double descheduled = 0;
  double input_wait_outside = 0;
};

using Plan = std::function<Part(int replica, int step)>;

// Plays the plan to a step clock. Each replica has a time of its own: they run at once.
RunSummary play(int replicas, int steps, const Plan& plan) {
  RunSummary all;
  for (int r = 0; r < replicas; ++r) {
    FakeClock time;
    StepClock clock({.measure_descheduled_every = 1, .clock = &time});
    ReplicaClock& replica = clock.replica(0);
    for (int i = 0; i < steps; ++i) {
      const Part part = plan(r, i);
      {
        TimeScope wait(&replica, Category::input_wait);
        time.sleep(static_cast<int64_t>(part.input_wait_outside * 1e6));
      }
      replica.begin_step();
      for (const auto& [category, ms] : part.times) {
        TimeScope scope(&replica, category);
        time.run(static_cast<int64_t>(ms * 1e6));
      }
      {
        TimeScope scope(&replica, Category::compute);
        time.sleep(static_cast<int64_t>(part.descheduled * 1e6));
      }
      for (const auto& [counter, amount] : part.counts) replica.count(counter, amount);
      replica.end_step();
    }
    all.replicas.push_back(clock.summary().replicas[0]);
    all.measures_descheduled = true;
  }
  return all;
}

std::vector<std::string> ids(const std::vector<Verdict>& verdicts) {
  std::vector<std::string> all;
  for (const Verdict& v : verdicts) {
    EXPECT_FALSE(v.cause.empty() || v.evidence.empty() || v.fix.empty() || v.gain.empty()) << v.id;
    EXPECT_EQ(v.cause.find('\n'), std::string::npos) << v.id;
    all.push_back(v.id);
  }
  return all;
}

Part healthy(double compute = 9) {
  return {.times = {{Category::compute, compute}, {Category::host, 0.5}},
          .counts = {{Counter::examples, 32}, {Counter::slots, 32}}};
}

TEST(Verdict, AHealthyRunHasNone) {
  EXPECT_THAT(judge(play(4, 20, [](int, int) { return healthy(); })), IsEmpty());
}

TEST(Verdict, TooFewStepsSayNothing) {
  const Plan slow_input = [](int, int) { return Part{.times = {{Category::input_wait, 10}}}; };
  EXPECT_THAT(judge(RunSummary{}), IsEmpty());
  EXPECT_THAT(judge(play(2, kMinSteps, slow_input)), IsEmpty());
  EXPECT_THAT(ids(judge(play(2, kMinSteps + 1, slow_input))), ElementsAre("input-bound"));
}

TEST(Verdict, TheFirstStepIsLeftOut) {
  EXPECT_THAT(judge(play(2, 10,
                         [](int, int step) {
                           if (step > 0) return healthy();
                           return Part{.times = {{Category::input_wait, 5'000}, {Category::host, 9'000}},
                                       .counts = {{Counter::traces, 7}, {Counter::value_reads, 100}}};
                         })),
              IsEmpty());
}

TEST(Verdict, InputBound) {
  const auto verdicts = judge(play(2, 11, [](int, int) {
    return Part{.times = {{Category::input_wait, 4}, {Category::compute, 6}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("input-bound"));
  EXPECT_EQ(verdicts[0].cause, "the replicas wait for their next batch 40% of the time");
  EXPECT_THAT(verdicts[0].evidence,
              HasSubstr("input_wait 4 of 10 ms per step (median 4, p95 4); compute 6 ms"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr(".prefetch(tf::data::AUTOTUNE)"));
  EXPECT_EQ(verdicts[0].gain, "up to 1.67x, from 10 to 6 ms per step, if the input is ready in time");
  EXPECT_NEAR(verdicts[0].speedup, 10.0 / 6, 1e-9);
}

TEST(Verdict, InputBoundByAPipelineThatKnowsItsBottleneck) {
  RunSummary summary = play(1, 11, [](int, int) {
    return Part{.times = {{Category::input_wait, 4}, {Category::compute, 6}}};
  });
  summary.input = {"map [main.cc:7]: map takes 4 ms an element", ".map(f, {...})"};
  const auto verdicts = judge(summary);
  ASSERT_THAT(ids(verdicts), ElementsAre("input-bound"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("the input's bottleneck is map [main.cc:7]: map takes 4 ms"));
  EXPECT_EQ(verdicts[0].fix, ".map(f, {...})");
}

TEST(Verdict, InputThatIsWaitedForBetweenStepsCountsToo) {
  const auto verdicts = judge(play(1, 10, [](int, int) {
    Part part = healthy();
    part.input_wait_outside = 9;
    return part;
  }));
  EXPECT_THAT(ids(verdicts), ElementsAre("input-bound"));
}

TEST(Verdict, CommunicationBound) {
  const auto verdicts = judge(play(2, 11, [](int, int) {
    return Part{
        .times = {{Category::exposed_communication, 5}, {Category::compute, 5}},
        .counts = {{Counter::examples, 64}, {Counter::slots, 64}, {Counter::communication_bytes, 3'000'000}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("communication-bound"));
  EXPECT_THAT(verdicts[0].evidence,
              AllOf(HasSubstr("exposed_communication 5 of 10 ms"), HasSubstr("6 MB sent per step")));
  EXPECT_THAT(verdicts[0].fix, HasSubstr(".batch_size = 256"));
  EXPECT_NEAR(verdicts[0].speedup, 20.0 / 15, 1e-9);
  EXPECT_THAT(verdicts[0].gain, AllOf(HasSubstr("1.33x"), HasSubstr("at most 2.00x")));
}

TEST(Verdict, OverheadBound) {
  const auto verdicts = judge(play(2, 11, [](int, int) {
    return Part{.times = {{Category::host, 0.5}, {Category::idle, 0.3}, {Category::compute, 0.2}},
                .counts = {{Counter::examples, 16}, {Counter::slots, 16}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("overhead-bound"));
  EXPECT_THAT(verdicts[0].evidence,
              HasSubstr("host 0.5 and idle 0.3 of 1 ms per step; compute 0.2 ms for 16, 16"));
  // 64 * 0.2 = 12.8 ms of work beside 0.8 ms of overhead: below a tenth; 32 times is not.
  EXPECT_THAT(verdicts[0].fix, HasSubstr(".batch_size = 2048"));
  EXPECT_NEAR(verdicts[0].speedup, 64 / (0.8 + 12.8), 1e-9);
}

TEST(Verdict, OverheadWithoutCountedExamplesSuggestsAFactor) {
  const auto verdicts = judge(play(1, 11, [](int, int) {
    return Part{.times = {{Category::host, 6}, {Category::compute, 4}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("overhead-bound"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr(".batch_size = 16 * batch_size"));
}

TEST(Verdict, SlowReplica) {
  const auto verdicts = judge(play(3, 11, [](int replica, int) {
    const double compute = replica == 1 ? 8 : 4;
    return Part{.times = {{Category::compute, compute}, {Category::waiting_for_others, 8 - compute}},
                .counts = {{Counter::examples, 32}, {Counter::slots, 32}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("slow-replica"));
  EXPECT_THAT(verdicts[0].cause, HasSubstr("replica 1 computes 2.00 times as long"));
  EXPECT_THAT(verdicts[0].evidence,
              HasSubstr("compute 4, 8, 4 ms per step on replicas 0 to 2, for 32, 32, 32 examples"));
  EXPECT_EQ(verdicts[0].fix, "tf::distribute::MirroredStrategy strategy({.weights = {0.40, 0.20, 0.40}});");
  // 96 examples at 8 + 4 + 8 a millisecond take 4.8 ms.
  EXPECT_NEAR(verdicts[0].speedup, 8 / 4.8, 1e-9);
}

TEST(Verdict, TwoReplicasOneOfThemDescheduled) {
  const auto verdicts = judge(play(2, 11, [](int replica, int) {
    return Part{.times = {{Category::compute, replica == 0 ? 9.0 : 6.0},
                          {Category::waiting_for_others, replica == 0 ? 0.0 : 4.0}},
                .counts = {},
                .descheduled = replica == 0 ? 1.0 : 0.0};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("slow-replica", "descheduled"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("replica 0 was descheduled 10% of the time"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr("{0.40, 0.60}"));
}

TEST(Verdict, WaitingWithoutASlowReplica) {
  const auto verdicts = judge(play(2, 11, [](int replica, int step) {
    const bool longer = (replica + step) % 2 == 0;
    return Part{.times = {{Category::compute, longer ? 10.0 : 6.0},
                          {Category::waiting_for_others, longer ? 0.0 : 4.0}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("waiting-for-others"));
  EXPECT_NEAR(verdicts[0].speedup, 10.0 / 8, 1e-9);
}

TEST(Verdict, PartialReplicasInEveryStep) {
  const auto verdicts = judge(play(3, 10, [](int replica, int) {
    return Part{.times = {{Category::compute, 5}},
                .counts = {{Counter::examples, replica == 2 ? 2 : 4}, {Counter::slots, 4}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("partial-replicas"));
  EXPECT_THAT(verdicts[0].evidence,
              AllOf(HasSubstr("10 examples per step in 12 places, 4, 4, 2 on replicas 0 to 2"),
                    HasSubstr("10 partial and 0 empty slices in 30")));
  EXPECT_THAT(verdicts[0].fix, HasSubstr(".batch_size = 12});  // a multiple of 3 replicas"));
  EXPECT_NEAR(verdicts[0].speedup, 1.2, 1e-9);
}

TEST(Verdict, EmptyReplicasAtTheEndOfShortEpochs) {
  const auto verdicts = judge(play(2, 12, [](int replica, int step) {
    const bool last = step % 4 == 3;
    return Part{.times = {{Category::compute, 5}},
                .counts = {{Counter::examples, last && replica == 1 ? 0 : 8}, {Counter::slots, 8}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("partial-replicas"));
  EXPECT_EQ(verdicts[0].cause, "replica 1 had no example in 3 of 12 steps");
  EXPECT_EQ(verdicts[0].fix, "dataset = dataset.batch(16, {.drop_remainder = true});");
}

TEST(Verdict, OnePartialBatchAnEpochIsNotWorthAWord) {
  EXPECT_THAT(judge(play(2, 50,
                         [](int, int step) {
                           Part part = healthy();
                           if (step == 49) part.counts = {{Counter::examples, 1}, {Counter::slots, 32}};
                           return part;
                         })),
              IsEmpty());
}

TEST(Verdict, RetracingIsNotTakenForOverhead) {
  const auto verdicts = judge(play(1, 11, [](int, int) {
    return Part{.times = {{Category::host, 6}, {Category::compute, 4}},
                .counts = {{Counter::traces, 1}, {Counter::trace_ns, 5'500'000}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("retracing"));
  EXPECT_THAT(verdicts[0].cause, HasSubstr("10 times after the first step"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("10 traces in 10 steps; tracing takes 5.5 of 10 ms"));
  EXPECT_NEAR(verdicts[0].speedup, 10 / 4.5, 1e-9);
}

TEST(Verdict, RetracingThatTakesNoTimeIsNotWorthAWord) {
  EXPECT_THAT(judge(play(1, 1001,
                         [](int, int step) {
                           Part part = healthy();
                           if (step % 100 == 0)
                             part.counts = {{Counter::traces, 1}, {Counter::trace_ns, 10'000'000}};
                           return part;
                         })),
              IsEmpty());
}

TEST(Verdict, HostCopiesAndValueReads) {
  auto verdicts = judge(play(1, 11, [](int, int) {
    return Part{.times = {{Category::copy, 2}, {Category::compute, 8}},
                .counts = {{Counter::host_copies, 2}, {Counter::host_copy_bytes, 4'000'000}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("host-copies"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("0 value reads and 2 copies (4 MB) per step; copy 2 of 10 ms"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr("experimental_distribute_dataset"));
  EXPECT_NEAR(verdicts[0].speedup, 1.25, 1e-9);

  verdicts = judge(play(1, 11, [](int, int) {
    Part part = healthy();
    part.counts.emplace_back(Counter::value_reads, 1);
    return part;
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("host-copies"));
  EXPECT_THAT(verdicts[0].cause, HasSubstr("reads a value on the host every step"));
}

TEST(Verdict, UnattributedTimeIsSaidAndPromisesNothing) {
  FakeClock time;
  StepClock clock({.clock = &time});
  for (int i = 0; i < 5; ++i) {
    clock.begin_step();
    {
      TimeScopeOfAll compute(clock, Category::compute);
      time.run(8'000'000);
    }
    time.sleep(2'000'000);
    clock.end_step();
  }
  const auto verdicts = judge(clock.summary());
  ASSERT_THAT(ids(verdicts), ElementsAre("unattributed"));
  EXPECT_EQ(verdicts[0].cause, "20% of the time was measured by nothing");
  EXPECT_EQ(verdicts[0].speedup, 1);
}

TEST(Verdict, MemoryThatGrowsIsNamed) {
  RunSummary summary = play(1, 11, [](int, int) { return Part{.times = {{Category::compute, 8}}}; });
  summary.memory = {
      {.device = "/GPU:0", .peak = 100 << 20, .uses = {{.name = "tensors", .grown = 512 << 10}}}};
  EXPECT_THAT(ids(judge(summary)), ElementsAre());
  summary.memory[0].uses[0].grown = 20 << 20;
  const auto verdicts = judge(summary);
  ASSERT_THAT(ids(verdicts), ElementsAre("memory-grows"));
  EXPECT_EQ(verdicts[0].cause, "tensors on /GPU:0 take more memory with every epoch");
}

TEST(Verdict, TheLargestGainComesFirstInTextAndJson) {
  const auto verdicts = judge(play(2, 11, [](int, int) {
    return Part{
        .times = {{Category::exposed_communication, 2}, {Category::input_wait, 4}, {Category::compute, 4}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("input-bound", "communication-bound"));
  const std::string text = to_text(verdicts);
  EXPECT_EQ(text.find("input-bound: the replicas wait"), 0u);
  EXPECT_THAT(text, AllOf(HasSubstr("\n  evidence: "), HasSubstr("\n  fix:      "),
                          HasSubstr("\n  gain:     "), HasSubstr("\ncommunication-bound: ")));
  const auto json = nlohmann::json::parse(to_json(verdicts));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0].at("id"), "input-bound");
  EXPECT_EQ(json[1].at("fix"), verdicts[1].fix);
  EXPECT_EQ(json[0].at("speedup"), verdicts[0].speedup);
  EXPECT_EQ(to_text(std::span<const Verdict>()), "");
  EXPECT_EQ(nlohmann::json::parse(to_json(std::span<const Verdict>())), nlohmann::json::array());
}

}  // namespace
}  // namespace lockstep::observe
