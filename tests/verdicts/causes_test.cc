// Every cause that a machine with CPUs can have, made to happen, and recognised. The causes are large, so
// that nothing else that the machine does is in their way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "execute/asynchronous_device_test.h"
#include "programs.h"

namespace lockstep::testing {
namespace {

using distribute::MirroredStrategy;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

void rest(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// The verdict of this id; an empty one fails the test.
observe::Verdict verdict(const observe::RunSummary& time, const std::string& id) {
  const std::vector<observe::Verdict> all = observe::judge(time);
  EXPECT_LE(all.size(), observe::kMostVerdicts);
  for (const observe::Verdict& each : all)
    if (each.id == id) {
      EXPECT_TRUE(each.speedup >= observe::kMinGain || each.speedup == 1) << each.gain;
      return each;
    }
  ADD_FAILURE() << "not " << id << " but\n" << observe::to_text(time) << observe::to_text(all);
  return {};
}

// What is slow about steps that are too small would be said before other things.
observe::RunSummary without_times(observe::RunSummary time) {
  for (observe::ReplicaSummary& replica : time.replicas) {
    for (observe::Distribution& each : replica.times) each.total = 0;
    replica.first.times = {};
  }
  return time;
}

// What other programs have taken from this one is left out of account.
observe::RunSummary as_if_alone(observe::RunSummary time) {
  time.setting.waited_for_cores_s = 0;
  for (observe::ReplicaSummary& replica : time.replicas) {
    replica.times[static_cast<size_t>(observe::Category::descheduled)].total = 0;
    replica.first.times[observe::Category::descheduled] = 0;
  }
  return time;
}

data::Dataset slow_batches(int64_t batches) {
  const Examples some = examples(4 * batches, {8});
  return data::Dataset::from_tensor_slices({some.x, some.y})
      .batch(4)
      .map([](const Tensor& x, const Tensor& y) {
        rest(30);
        return data::Element(x, y);
      });
}

keras::Model small_model() { return compiled(dense(8, 8)); }

TEST(Causes, ASlowMapOfAPlainFit) {
  const auto found = verdict(small_model().fit(slow_batches(12), {.verbose = 0}).time, "input-bound");
  EXPECT_THAT(found.evidence, HasSubstr("map [causes_test.cc:"));
  EXPECT_THAT(found.fix, HasSubstr("num_parallel_calls"));
}

TEST(Causes, ASlowMapOfALoopOverStrategyRun) {
  const MirroredStrategy strategy(kTwoDevices, {.report = false});
  const auto step = [](const Tensor& x) { return reduce_sum(x * 2.0); };
  for (const auto& batch : strategy.distribute_dataset(slow_batches(12))) strategy.run(step, batch[0]);
  const observe::RunSummary time = strategy.summary();
  verdict(time, "input-bound");
  // Twelve batches of four, eleven of which were waited for, 30 ms each: however quick run() was.
  EXPECT_LT(observe::examples_per_second(time), 48 / 0.33 + 1);
  EXPECT_GT(time.replicas[0][observe::Category::input_wait].median, 25e6);
}

TEST(Causes, ASlowMapOfALoopOverACompiledFunction) {
  auto step = function([](const Tensor& x) { return reduce_sum(x * 2.0); }, {.name = "sum of doubles"});
  for (const data::Element& batch : slow_batches(12)) step(batch[0].tensor());
  const observe::RunReport report = step.report();
  EXPECT_EQ(report.title, "function sum of doubles");
  verdict(report.summary, "input-bound");
  EXPECT_EQ(observe::steps(report.summary), 12);
  EXPECT_LT(observe::examples_per_second(report.summary), 48 / 0.33 + 1);
}

TEST(Causes, WhatALoopDoesItself) {
  auto step = function([](const Tensor& x) { return reduce_sum(x * 2.0); });
  const Tensor x = Tensor::full(DType::float32, {16, 8}, 1);
  for (int i = 0; i < 12; ++i) {
    rest(20);
    step(x);
  }
  EXPECT_THAT(verdict(step.report().summary, "loop-bound").fix, HasSubstr("dataset.map(prepare"));
}

class Dawdling final : public keras::CallbackBase {
  void on_train_batch_end(int64_t, const keras::Logs&) override { rest(20); }
};

TEST(Causes, ACallbackThatTakesItsTime) {
  const Examples some = examples(48, {8});
  const auto time = small_model()
                        .fit({some.x, some.y},
                             {.batch_size = 4, .verbose = 0, .callbacks = {keras::make_callback<Dawdling>()}})
                        .time;
  EXPECT_THAT(verdict(time, "loop-bound").cause, HasSubstr("callbacks take"));
}

TEST(Causes, TheCallsOfAnotherFunctionAreNoWorkOfTheLoop) {
  const Tensor x = random::normal({192, 192});
  const auto work = [](const Tensor& a) {
    Tensor product = a;
    for (int i = 0; i < 8; ++i) product = matmul(product, a) * 0.01;
    return reduce_sum(product);
  };
  auto first = function(work), second = function(work);
  for (int i = 0; i < 20; ++i) first(x), second(x);
  EXPECT_THAT(ids(first.report().verdicts), Not(Contains("loop-bound"))) << observe::to_text(first.report());
}

TEST(Causes, StepsThatAreTooSmall) {
  const distribute::OneDeviceStrategy strategy("/CPU:0", {.report = false});
  // Every call is traced, which takes far longer than what it computes.
  const auto step = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 40; ++i) y = tanh(y) + 1.0;
    return reduce_sum(y);
  };
  const Tensor x = Tensor::full(DType::float32, {4, 2}, 1);
  for (int i = 0; i < 400; ++i) strategy.run(step, strategy.distribute(x));
  EXPECT_THAT(verdict(strategy.summary(), "overhead-bound").fix, HasSubstr("rebatch("));
}

TEST(Causes, ShapesThatChangeWithEveryStep) {
  auto step = function([](const Tensor& x) { return reduce_sum(tanh(x)); });
  for (int64_t rows = 1; rows <= 12; ++rows) step(Tensor::full(DType::float32, {rows, 3}, 1));
  const auto found = verdict(step.report().summary, "retracing");
  EXPECT_THAT(found.cause, HasSubstr("11 times after the first step"));
}

TEST(Causes, APartialLastBatchIsNotRetracing) {
  const MirroredStrategy strategy(kTwoDevices, {.report = false});
  const auto scope = strategy.scope();
  const keras::Model model = compiled(dense(64, 64));
  const Examples some = examples(6 * 16 + 5, {64});
  const auto time = model.fit({some.x, some.y}, {.batch_size = 16, .epochs = 2, .verbose = 0}).time;
  EXPECT_THAT(ids(observe::judge(time)), Not(Contains("retracing"))) << observe::to_text(time);
  EXPECT_EQ(time.replicas[0].counts[observe::Counter::traces], 2);
  EXPECT_GT(time.replicas[0].compiling_ns, 0);
  EXPECT_EQ(time.replicas[0][observe::Category::compiling].total, 0) << "it is no part of the steps";
}

// What the machine does beside it must not take longer than the difference: one attempt of some will do.
TEST(Causes, AReplicaWithMoreToDo) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer slows down what threads share more than the rest";
#endif
  constexpr int kAttempts = 5;
  const MirroredStrategy strategy(kTwoDevices, {.weights = {0.9, 0.1}, .report = false});
  const auto scope = strategy.scope();
  const keras::Model model = compiled(dense());
  const Examples some = examples(80 * 8, {512});
  observe::RunSummary time;
  for (int i = 0; i < kAttempts; ++i) {
    time = as_if_alone(model.fit({some.x, some.y}, {.batch_size = 80, .verbose = 0}).time);
    if (const auto all = ids(observe::judge(time));
        std::find(all.begin(), all.end(), "slow-replica") != all.end())
      break;
  }
  const auto found = verdict(time, "slow-replica");
  EXPECT_THAT(found.cause, HasSubstr("replica 0 computes"));
  EXPECT_THAT(found.fix, HasSubstr("strategy({}, {.weights = {"));
  EXPECT_EQ(time.replicas[1].partial_steps, 0) << "its share is smaller because somebody said so";
}

// Which replica has more to do changes from step to step, so that none is slower.
TEST(Causes, ReplicasWhoseStepsAreUneven) {
  const auto rounds_of = [](const Tensor& rounds) {
    const Tensor weights = Tensor::full(DType::float32, {256, 256}, 0.001);
    const TensorList end = while_loop([](std::span<const Tensor> v) { return v[0] < v[1]; },
                                      [](std::span<const Tensor> v) -> TensorList {
                                        return {v[0] + 1.0, v[1], matmul(v[2], v[3]), v[3]};
                                      },
                                      {Tensor::scalar(0.0f), reduce_sum(rounds), weights, weights});
    return all_reduce_sum(reduce_sum(end[2]));
  };
  constexpr int kAttempts = 3;
  observe::RunSummary time;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const MirroredStrategy strategy(kTwoDevices, {.report = false});
    auto step = function(rounds_of, {.replicas = strategy.replica_options()});
    // The first step is judged apart; of the others each replica has as many that are long.
    for (int i = 0; i < 13; ++i)
      step(Tensor::from(i % 2 == 0 ? std::vector{60.0f, 1.0f} : std::vector{1.0f, 60.0f}, {2}));
    time = as_if_alone(step.report().summary);
    if (const auto all = ids(observe::judge(time));
        std::find(all.begin(), all.end(), "waiting-for-others") != all.end())
      break;
  }
  EXPECT_THAT(verdict(time, "waiting-for-others").cause, HasSubstr("though none is slower on average"));
}

// As a forgotten distribute() makes it: each replica computes all of the batch.
TEST(Causes, ReplicasThatAreGivenTheSameTensors) {
  const auto run = [](bool distributes) {
    const MirroredStrategy strategy(kTwoDevices, {.report = false});
    const auto step = [](const Tensor& x) {
      return distribute::all_reduce(distribute::ReduceOp::sum, reduce_sum(matmul(x, x)));
    };
    const Tensor x = random::normal({256, 256});
    for (int i = 0; i < 8; ++i)
      if (distributes)
        strategy.run([](const Tensor& y) { return reduce_sum(y); }, strategy.distribute(x));
      else
        strategy.run(step, x);
    return strategy.summary();
  };
  const auto found = verdict(run(false), "not-sharded");
  EXPECT_EQ(found.speedup, 2);
  EXPECT_THAT(found.fix, HasSubstr("strategy.distribute_dataset(dataset)"));
  EXPECT_THAT(ids(observe::judge(run(true))), Not(Contains("not-sharded")));
}

TEST(Causes, ReplicasWithEmptyPlaces) {
  const MirroredStrategy strategy(kTwoDevices, {.report = false});
  const auto scope = strategy.scope();
  const keras::Model model = small_model();
  const Examples some = examples(30, {8});
  const auto time = model.fit({some.x, some.y}, {.batch_size = 3, .verbose = 0}).time;
  EXPECT_EQ(verdict(without_times(time), "partial-replicas").fix,
            "model.fit(train, {.batch_size = 4});  // a multiple of 2 replicas");
}

TEST(Causes, ValuesThatGoFromDeviceToDevice) {
  auto step = function([](const Tensor& x) {
    Tensor y = x * 2.0;
    for (int i = 0; i < 4; ++i) {
      const DeviceScope there = device(kTwoDevices[static_cast<size_t>(i % 2)]);
      y = y + 1.0;
    }
    return reduce_sum(y);
  });
  const Tensor x = Tensor::full(DType::float32, {1 << 20}, 1);
  for (int i = 0; i < 10; ++i) step(x);
  verdict(step.report().summary, "host-copies");
}

// A device that says of itself that it computes beside the host, as GPUs do: there is none that does in every
// machine.
TEST(Causes, AValueThatIsReadAfterEveryStep) {
  Device beside(std::make_unique<AsynchronousDevice>(95));
  const DeviceScope scope(beside);
  auto step = function([](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 8; ++i) y = matmul(y, x) * 0.01;
    return reduce_sum(y);
  });
  const Tensor x = random::normal({256, 256});
  double total = 0;
  for (int i = 0; i < 12; ++i) {
    total += step(x).item<float>();
    rest(10);
  }
  EXPECT_TRUE(std::isfinite(total));
  const auto found = verdict(step.report().summary, "host-copies");
  EXPECT_THAT(found.cause, HasSubstr("reads a value on the host every step"));
  EXPECT_THAT(found.fix, HasSubstr("mean.update_state(loss)"));
}

TEST(Causes, MoreThreadsThanProcessors) {
  if (!Clock::system().has_fine_thread_cpu())
    GTEST_SKIP() << "this system counts a thread's processor time too coarsely";
  if (std::thread::hardware_concurrency() >= 16) GTEST_SKIP() << "there are processors for 16 threads";
  const MirroredStrategy strategy(kManyThreads, {.report = false});
  const auto scope = strategy.scope();
  const keras::Model model = compiled(dense());
  const Examples some = examples(256, {512});
  const auto time = model.fit({some.x, some.y}, {.batch_size = 64, .epochs = 10, .verbose = 0}).time;
  EXPECT_GT(time.setting.threads, time.setting.cores);
  verdict(time, "descheduled");
}

TEST(Causes, NumbersThatAreChecked) {
  debugging::enable_check_numerics();
  auto step = function([](const Tensor& x) { return reduce_sum(tanh(x + 1.0)) + x; });
  const Tensor x = Tensor::full(DType::float32, {1 << 20}, 1);
  for (int i = 0; i < 8; ++i) step(x);
  debugging::disable_check_numerics();
  verdict(step.report().summary, "numerics-checked");
}

class Keeping final : public keras::CallbackBase {
 public:
  void on_epoch_end(int, const keras::Logs&) override {
    kept.push_back(Tensor::full(DType::float32, {1 << 20}, 1));
  }
  std::vector<Tensor> kept;
};

TEST(Causes, MemoryThatGrows) {
  const Examples some = examples(64, {8});
  const auto time =
      small_model()
          .fit({some.x, some.y},
               {.batch_size = 16, .epochs = 4, .verbose = 0, .callbacks = {keras::make_callback<Keeping>()}})
          .time;
  EXPECT_THAT(verdict(without_times(time), "memory-grows").cause,
              HasSubstr("take more memory with every epoch"));
}

TEST(Causes, MemoryThatIsNearlyUsedUp) {
  const distribute::OneDeviceStrategy strategy("/CPU:1", {.report = false});
  const auto scope = strategy.scope();
  const keras::Model model = compiled(dense());
  const Examples some = examples(256, {512});
  const auto fit = [&] { return model.fit({some.x, some.y}, {.batch_size = 64, .verbose = 0}).time; };
  fit();
  Device& device = device_by_name("/CPU:1");
  device.reset_peak_memory();
  const observe::RunSummary unlimited = fit();
  EXPECT_THAT(ids(observe::judge(without_times(unlimited))), Not(Contains("memory-close")));
  device.set_memory_limit(device.memory_info().peak * 102 / 100);
  const auto found = verdict(without_times(fit()), "memory-close");
  device.set_memory_limit(0);
  EXPECT_EQ(found.cause, "/CPU:1 was nearly out of memory");
  EXPECT_EQ(found.fix, "model.fit(train, {.batch_size = 32});  // half of the activations");
}

// Half a minute: what came in the last ten seconds is judged, and compared with the ten before.
TEST(CausesLong, AMapThatBecomesSlowIsToldWhileTraining) {
  class Messages {
   public:
    Messages()
        : before_(set_log_sink([this](const LogMessage& message) { texts.emplace_back(message.text); })) {}
    ~Messages() { set_log_sink(before_); }
    std::vector<std::string> texts;

   private:
    LogSink before_;
  } messages;
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  const Examples some = examples(64, {512});
  const data::Dataset dataset = data::Dataset::from_tensor_slices({some.x, some.y})
                                    .batch(64)
                                    .repeat()
                                    .map([&](const Tensor& x, const Tensor& y) {
                                      if (seconds() > 13) rest(50);
                                      return data::Element(x, y);
                                    });
  class UntilTold final : public keras::CallbackBase {
   public:
    UntilTold(const std::function<bool()>& over) : over_(over) {}
    void on_train_batch_end(int64_t, const keras::Logs&) override {
      if (over_()) model().stop_training();
    }

   private:
    std::function<bool()> over_;
  };
  const auto told = [&] {
    return std::any_of(messages.texts.begin(), messages.texts.end(), [](const std::string& text) {
      return text.find("on the run is input-bound: ") != std::string::npos;
    });
  };
  const auto over = [&] { return told() || seconds() > 60; };
  compiled(dense()).fit(
      dataset,
      {.verbose = 0, .callbacks = {keras::make_callback<UntilTold>(over)}, .steps_per_epoch = 1'000'000});
  EXPECT_TRUE(told()) << ::testing::PrintToString(messages.texts);
}

// What a program has asked for once stays known.
TEST(CausesInOwnProcess, AGpuThatSoftPlacementReplaces) {
  config::set_soft_device_placement(true);
  auto step = function([](const Tensor& x) {
    const DeviceScope there = device("/GPU:0");
    return reduce_sum(matmul(x, x));
  });
  const Tensor x = random::normal({64, 64});
  for (int i = 0; i < 8; ++i) step(x);
  const auto all = observe::judge(step.report().summary);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].id, "ops-on-cpu") << observe::to_text(all);
  EXPECT_THAT(all[0].evidence, AllOf(HasSubstr("ops of \"/GPU:0\" at "), HasSubstr("causes_test.cc:")));
  EXPECT_THAT(all[0].fix, HasSubstr("set_soft_device_placement(false)"));
}

// Whatever else a process has run would count.
TEST(CausesInOwnProcess, TheReportIsThatOfTheLongestLoop) {
  const Tensor x = Tensor::full(DType::float32, {4}, 1);
  auto shorter = function([](const Tensor& y) { return reduce_sum(y); }, {.name = "the shorter"});
  for (int i = 0; i < 4; ++i) shorter(x);
  {
    auto step = function([](const Tensor& y) { return reduce_sum(y); }, {.name = "the longest"});
    for (int i = 0; i < 6; ++i) {
      rest(100);
      step(x);
    }
  }
  EXPECT_EQ(observe::report().title, "function the longest") << "also when the function has gone";
  EXPECT_THAT(observe::to_text(observe::report()), HasSubstr("function the longest\n6 steps on 1 replica"));
}

TEST(Causes, APlainFitEndsWithItsReportUnlessItIsSilent) {
  const auto printed = [](keras::FitOptions options) {
    const Examples some = examples(64, {8});
    const keras::Model model = small_model();
    ::testing::internal::CaptureStdout();
    options.batch_size = 4;
    model.fit({some.x, some.y}, options);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(printed({.verbose = 2}),
              AllOf(HasSubstr("16 steps on 1 replica: mean "), HasSubstr("compiling: ")));
  EXPECT_THAT(printed({.verbose = 0}), IsEmpty());
  EXPECT_THAT(printed({.verbose = 2, .report = false}), Not(HasSubstr("steps on 1 replica")));
}

}  // namespace
}  // namespace lockstep::testing
