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

RunSummary made_by(RunKind kind, RunSummary summary) {
  summary.setting.kind = kind;
  return summary;
}

std::vector<std::string> ids(const std::vector<Verdict>& verdicts) {
  std::vector<std::string> all;
  for (const Verdict& v : verdicts) {
    EXPECT_FALSE(v.cause.empty() || v.evidence.empty() || v.fix.empty() || v.gain.empty()) << v.id;
    EXPECT_EQ(v.cause.find('\n'), std::string::npos) << v.id;
    EXPECT_TRUE(v.speedup >= kMinGain || v.speedup == 1) << v.id;
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
  EXPECT_EQ(verdicts[0].cause, "the replicas wait for the next batch 40% of the time");
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
  summary.input = {"map [main.cc:7]: map takes 4 ms per element", ".map(f, {...})"};
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
  EXPECT_THAT(verdicts[0].fix, HasSubstr("dataset = dataset.rebatch(256);"));
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
  EXPECT_THAT(verdicts[0].fix, HasSubstr("rebatch(2048)"));
  EXPECT_NEAR(verdicts[0].speedup, 64 / (0.8 + 12.8), 1e-9);
}

TEST(Verdict, ABatchHasNoMoreExamplesThanThereAre) {
  RunSummary summary = play(1, 11, [](int, int) {
    return Part{.times = {{Category::host, 0.8}, {Category::compute, 0.2}},
                .counts = {{Counter::examples, 31}}};
  });
  summary.setting = {.kind = RunKind::arrays, .batch_size = 32, .examples = 1000};
  const auto verdicts = judge(summary);
  ASSERT_THAT(ids(verdicts), ElementsAre("overhead-bound"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr("model.fit(train, {.batch_size = 992});")) << "31 times 32";
  summary.setting.examples = 40;
  EXPECT_THAT(judge(summary), IsEmpty()) << "there is nothing to be gained";
}

TEST(Verdict, OverheadWithoutCountedExamplesSuggestsAFactor) {
  const auto verdicts = judge(play(1, 11, [](int, int) {
    return Part{.times = {{Category::host, 6}, {Category::compute, 4}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("overhead-bound"));
  EXPECT_THAT(
      verdicts[0].fix,
      HasSubstr(
          "dataset.rebatch(batch_size);  // or .batch(batch_size) where it is made; 16 times as large"));
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
  EXPECT_EQ(verdicts[0].fix,
            "tf::distribute::MirroredStrategy strategy({}, {.weights = {0.40, 0.20, 0.40}});");
  // 96 examples at 8 + 4 + 8 a millisecond take 4.8 ms.
  EXPECT_NEAR(verdicts[0].speedup, 8 / 4.8, 1e-9);
}

TEST(Verdict, ASlowReplicaWhichOthersDisturbToo) {
  const auto verdicts = judge(play(2, 11, [](int replica, int) {
    return Part{.times = {{Category::compute, replica == 0 ? 9.0 : 6.0},
                          {Category::waiting_for_others, replica == 0 ? 0.0 : 4.0}},
                .counts = {},
                .descheduled = replica == 0 ? 1.0 : 0.0};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("slow-replica"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr("{0.40, 0.60}"));
}

TEST(Verdict, ASlowReplicaIsNotWorthAWordForTwoPercent) {
  EXPECT_THAT(judge(play(2, 11,
                         [](int replica, int) {
                           return Part{.times = {{Category::compute, replica == 1 ? 1.2 : 1.0},
                                                 {Category::host, replica == 1 ? 8.8 : 9.0}},
                                       .counts = {{Counter::examples, 32}}};
                         })),
              testing::Not(testing::Contains(testing::Field(&Verdict::id, "slow-replica"))));
}

TEST(Verdict, AReplicaThatComputesNothingIsNoReasonForWeights) {
  EXPECT_THAT(judge(play(2, 11,
                         [](int replica, int) {
                           return Part{.times = {{Category::compute, replica == 1 ? 9.99 : 0.01},
                                                 {Category::waiting_for_others, replica == 1 ? 0.0 : 9.98}}};
                         })),
              IsEmpty());
}

TEST(Verdict, WaitingForReplicasThatOtherProgramsDisturbIsNoVerdict) {
  const RunSummary summary = play(2, 11, [](int replica, int step) {
    const bool disturbed = (replica + step) % 2 == 0;
    return Part{.times = {{Category::compute, 6}, {Category::waiting_for_others, disturbed ? 0.0 : 4.0}},
                .counts = {},
                .descheduled = disturbed ? 4.0 : 0.0};
  });
  EXPECT_THAT(judge(summary), IsEmpty());
  EXPECT_THAT(bound_by(summary),
              HasSubstr("compute takes 60% of the time; other programs had its processors 20%"));
}

TEST(Verdict, MoreThreadsThanProcessors) {
  RunSummary summary = play(2, 11, [](int, int) {
    return Part{.times = {{Category::compute, 6}}, .descheduled = 4};
  });
  summary.setting.threads = 8;
  summary.setting.cores = 8;
  EXPECT_THAT(judge(summary), IsEmpty()) << "others have taken the processors";
  summary.setting.threads = 16;
  const auto verdicts = judge(summary);
  ASSERT_THAT(ids(verdicts), ElementsAre("descheduled"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("16 threads on 8 processors"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr("set_intra_op_parallelism_threads(4);"));
  EXPECT_NEAR(verdicts[0].speedup, 10.0 / 6, 1e-9);
}

// Few steps measure the time of their threads; the system counts that of the whole process.
TEST(Verdict, ReplicasThatWaitForProcessorsAreTooMany) {
  RunSummary summary = play(4, 11, [](int, int) {
    return Part{.times = {{Category::compute, 2}, {Category::waiting_for_others, 8}}};
  });
  summary.setting.threads = 4;
  summary.setting.cores = 2;
  EXPECT_THAT(judge(summary), IsEmpty());
  summary.setting.waited_for_cores_s = 11 * 0.02F;  // twenty milliseconds per step, of four replicas
  const auto verdicts = judge(summary);
  ASSERT_THAT(ids(verdicts), ElementsAre("descheduled"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("4 threads on 2 processors"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("all threads together waited 20 ms per step"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr("tf::set_logical_cpus({.count = 2, .threads = 1});"));
  EXPECT_NEAR(verdicts[0].speedup, 2, 1e-6);
}

// A batch that is ready has to be handed over all the same.
TEST(Verdict, WhatHandingOverABatchTakesIsNoWaiting) {
  const auto waiting = [](double ms) {
    return play(1, 11, [=](int, int) {
      return Part{.times = {{Category::input_wait, ms}, {Category::compute, 0.04}}};
    });
  };
  EXPECT_THAT(judge(waiting(0.012)), IsEmpty());
  EXPECT_THAT(ids(judge(waiting(0.04))), ElementsAre("input-bound"));
}

TEST(Verdict, AThreadThatWakesLateOnABusyMachineIsNoOverhead) {
  RunSummary summary = play(2, 11, [](int, int) {
    return Part{.times = {{Category::compute, 2}, {Category::idle, 6}}, .descheduled = 2};
  });
  EXPECT_THAT(judge(summary), IsEmpty());
  summary = play(2, 11, [](int, int) {
    return Part{.times = {{Category::compute, 2}, {Category::idle, 6}}};
  });
  EXPECT_THAT(ids(judge(summary)), ElementsAre("overhead-bound"));
}

TEST(Verdict, ThreadsThatHadNoCoreAreSlowByChance) {
  RunSummary summary = play(2, 11, [](int replica, int) {
    return Part{.times = {{Category::compute, replica == 0 ? 9.0 : 5.0},
                          {Category::waiting_for_others, replica == 0 ? 1.0 : 5.0}}};
  });
  EXPECT_THAT(ids(judge(summary)), ElementsAre("slow-replica"));
  summary.setting.waited_for_cores_s = 11 * 0.004F;  // four milliseconds per step
  EXPECT_THAT(judge(summary), IsEmpty());
  EXPECT_THAT(bound_by(summary), HasSubstr("; other programs had its processors 20% of the time"));
}

TEST(Verdict, WhatALoopDoesBetweenItsSteps) {
  const Plan plan = [](int, int) { return Part{.times = {{Category::loop, 4}, {Category::compute, 6}}}; };
  auto verdicts = judge(play(1, 11, plan));
  ASSERT_THAT(ids(verdicts), ElementsAre("loop-bound"));
  EXPECT_EQ(verdicts[0].cause,
            "what the loop does between two steps takes 40% of the time, while no device works");
  EXPECT_NEAR(verdicts[0].speedup, 10.0 / 6, 1e-9);
  verdicts = judge(made_by(RunKind::arrays, play(1, 11, plan)));
  ASSERT_THAT(ids(verdicts), ElementsAre("loop-bound"));
  EXPECT_THAT(verdicts[0].cause, HasSubstr("callbacks take 40%"));
  // A GPU computes meanwhile: what the host waits for it is what counts.
  RunSummary on_gpu = play(1, 11, plan);
  on_gpu.setting.asynchronous = true;
  EXPECT_THAT(judge(on_gpu), IsEmpty());
}

TEST(Verdict, ChecksOfNumbers) {
  const auto verdicts = judge(play(2, 11, [](int, int) {
    return Part{.times = {{Category::compute, 10}}, .counts = {{Counter::checking_ns, 6'000'000}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("numerics-checked"));
  EXPECT_THAT(verdicts[0].cause, HasSubstr("60% of the time"));
  EXPECT_EQ(verdicts[0].fix, "tf::debugging::disable_check_numerics();");
}

TEST(Verdict, MemoryThatIsNearlyGone) {
  RunSummary summary = play(1, 11, [](int, int) { return healthy(); });
  summary.memory = {{.device = "/GPU:0", .peak = 90, .limit = 100}};
  EXPECT_THAT(judge(summary), IsEmpty());
  summary.memory[0].peak = 97;
  EXPECT_THAT(ids(judge(summary)), ElementsAre("memory-close"));
}

TEST(Verdict, TwoAtMostAndAGainOfFivePercentAtLeast) {
  const auto verdicts = judge(play(1, 11, [](int, int) {
    return Part{.times = {{Category::compute, 3},
                          {Category::input_wait, 4},
                          {Category::loop, 3},
                          {Category::copy, 2}},
                .counts = {{Counter::host_copies, 1}}};
  }));
  EXPECT_THAT(ids(verdicts), ElementsAre("input-bound", "loop-bound"));
  EXPECT_THAT(judge(play(1, 11,
                         [](int, int) {
                           return Part{.times = {{Category::compute, 9.7}, {Category::copy, 0.3}},
                                       .counts = {{Counter::host_copies, 1}}};
                         })),
              IsEmpty());
}

TEST(Verdict, AHealthyRunIsToldWhatBoundsIt) {
  RunSummary summary = play(2, 11, [](int, int) {
    return Part{.times = {{Category::compute, 9}, {Category::host, 1}},
                .counts = {{Counter::flops, 900'000'000}}};
  });
  EXPECT_EQ(bound_by(summary), "compute takes 90% of the time, at 100 GFLOP/s");
  summary.setting.flops_per_second = 400e9;
  EXPECT_EQ(bound_by(summary),
            "compute takes 90% of the time, at 25% of what the device can do (100 of 400 GFLOP/s)");
  summary.setting.flops_per_second = 50e12;
  EXPECT_THAT(bound_by(summary), HasSubstr("at 0% of what the device can do (0.1 of 50 TFLOP/s)"));
  EXPECT_EQ(bound_by(RunSummary{}), "");
}

TEST(Verdict, ProcessorsThatOtherProgramsHadBoundNothing) {
  const RunSummary summary = play(1, 11, [](int, int) {
    return Part{.times = {{Category::compute, 3}}, .descheduled = 7};
  });
  EXPECT_EQ(bound_by(summary),
            "compute takes 30% of the time; other programs had its processors 70% of the time");
}

TEST(Verdict, NumbersOf16BitsHaveACeilingOfTheirOwn) {
  RunSummary summary = play(1, 11, [](int, int) {
    return Part{.times = {{Category::compute, 10}},
                .counts = {{Counter::flops, 1'000'000'000}, {Counter::half_flops, 800'000'000}}};
  });
  summary.setting.flops_per_second = 100e9;
  summary.setting.half_flops_per_second = 400e9;
  // 0.2 G at 100 G/s and 0.8 G at 400 G/s take 4 of the 10 ms.
  EXPECT_EQ(bound_by(summary),
            "compute takes 100% of the time, at 40% of what the device can do (100 of 250 GFLOP/s)");
  summary.setting.half_flops_per_second = 0;
  EXPECT_THAT(bound_by(summary), HasSubstr("(100 of 100 GFLOP/s)"));
}

TEST(Verdict, ReplicasThatComputeTheSameExamples) {
  RunSummary summary = play(2, 11, [](int, int) { return Part{.times = {{Category::compute, 10}}}; });
  summary.setting.kind = RunKind::strategy;
  EXPECT_THAT(judge(summary), IsEmpty());
  summary.setting.same_examples = 2;
  std::vector<Verdict> verdicts = judge(summary);
  ASSERT_THAT(ids(verdicts), ElementsAre("not-sharded"));
  EXPECT_EQ(verdicts[0].speedup, 2);
  EXPECT_THAT(verdicts[0].cause, HasSubstr("2 replicas compute the same examples"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr("strategy.distribute_dataset(dataset)"));
  summary.workers = {{"worker 0", 1}, {"worker 1", 1}};
  verdicts = judge(summary);
  EXPECT_THAT(verdicts[0].cause, HasSubstr("2 workers"));
  EXPECT_THAT(verdicts[0].fix, HasSubstr("AutoShardPolicy::data"));
}

TEST(Verdict, WhatRunsOnTheCpuInPlaceOfAGpuIsSaidFirst) {
  RunSummary summary = play(1, 11, [](int, int) {
    return Part{.times = {{Category::input_wait, 4}, {Category::compute, 3}, {Category::loop, 3}}};
  });
  summary.on_cpu = "all ops, while the machine's GPU is not used: plugin cuda is not loaded: x";
  const std::vector<Verdict> verdicts = judge(summary);
  ASSERT_THAT(ids(verdicts), ElementsAre("ops-on-cpu", "input-bound"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("plugin cuda is not loaded: x"));
  EXPECT_EQ(verdicts[0].fix, "lockstep doctor  # what keeps the GPU from being used");
  EXPECT_EQ(verdicts[0].speedup, 1);
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
  const auto verdicts =
      judge(made_by(RunKind::arrays, play(3, 10, [](int replica, int) {
                      return Part{.times = {{Category::compute, 5}},
                                  .counts = {{Counter::examples, replica == 2 ? 2 : 4}, {Counter::slots, 4}}};
                    })));
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
  EXPECT_THAT(verdicts[0].fix, HasSubstr("dataset = dataset.rebatch(16, true);"));
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
    return Part{.times = {{Category::compiling, 5.5}, {Category::host, 0.5}, {Category::compute, 4}},
                .counts = {{Counter::traces, 1}}};
  }));
  ASSERT_THAT(ids(verdicts), ElementsAre("retracing"));
  EXPECT_THAT(verdicts[0].cause, HasSubstr("10 times after the first step"));
  EXPECT_THAT(verdicts[0].evidence, HasSubstr("10 traces in 10 steps; compiling takes 5.5 of 10 ms"));
  EXPECT_NEAR(verdicts[0].speedup, 10 / 4.5, 1e-9);
}

TEST(Verdict, APartialLastBatchIsNoRetracing) {
  // On 64 replicas, in a run of seven steps, with a second of compiling for each of two shapes.
  EXPECT_THAT(judge(play(64, 7,
                         [](int, int step) {
                           Part part = healthy();
                           if (step == 0 || step == 6) {
                             part.times.emplace_back(Category::compiling, 1000);
                             part.counts.emplace_back(Counter::traces, 1);
                           }
                           return part;
                         })),
              IsEmpty());
}

TEST(Verdict, RetracingThatTakesNoTimeIsNotWorthAWord) {
  EXPECT_THAT(judge(play(1, 1001,
                         [](int, int step) {
                           Part part = healthy();
                           if (step % 100 == 0) {
                             part.times.emplace_back(Category::compiling, 10);
                             part.counts = {{Counter::traces, 1}};
                           }
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
  EXPECT_THAT(verdicts[0].fix, HasSubstr("prefetch_to_device"));
  EXPECT_NEAR(verdicts[0].speedup, 1.25, 1e-9);

  RunSummary reading = play(1, 11, [](int, int) {
    return Part{.times = {{Category::loop, 3}, {Category::host, 1}, {Category::compute, 6}},
                .counts = {{Counter::value_reads, 1}}};
  });
  reading.setting.asynchronous = true;
  verdicts = judge(reading);
  ASSERT_THAT(ids(verdicts), ElementsAre("host-copies"));
  EXPECT_NEAR(verdicts[0].speedup, 10.0 / 6, 1e-9) << "the host works while the device does";
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
