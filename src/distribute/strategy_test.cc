#include "lockstep/distribute/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "distribute/eight_cpus_test.h"
#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/observe/span.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::distribute {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::names;

Tensor ten() { return range(10, DType::float32); }

TEST(Strategy, RunGivesEveryReplicaItsSlice) {
  const MirroredStrategy strategy(names(3));
  const Distributed doubled =
      strategy.run([](const Tensor& x) { return x * 2.0; }, strategy.distribute(ten()));
  EXPECT_EQ(doubled.replicas(), 3);
  EXPECT_THAT(doubled.at(1).to_vector<float>(), ElementsAre(8, 10, 12, 14));
  EXPECT_THAT(doubled.at(2).to_vector<float>(), ElementsAre(16, 18));
  EXPECT_EQ(strategy.gather(doubled).size(), 10);
}

TEST(Strategy, RunTakesAsManyTensorsAsThereAre) {
  const MirroredStrategy strategy(names(3));
  const Distributed batch = strategy.distribute(ten());
  const Tensor one = Tensor::scalar(1.0F);
  const std::vector<RunArgument> arguments(12, one);
  std::vector<RunArgument> all = {batch};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const std::vector<Distributed> results = strategy.run_tensors(
      [](std::span<const Tensor> in) -> TensorList {
        Tensor sum = in[0];
        for (const Tensor& more : in.subspan(1)) sum = sum + more;
        return {sum, in[1]};
      },
      all);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_THAT(results[0].at(2).to_vector<float>(), ElementsAre(20, 21));
  EXPECT_EQ(results[1].at(0).item<float>(), 1);
}

// TF_CONFIG set to this text while it lives.
class TfConfigSetting {
 public:
  explicit TfConfigSetting(const char* text) { setenv("TF_CONFIG", text, 1); }
  ~TfConfigSetting() { unsetenv("TF_CONFIG"); }
};

TEST(Strategy, AWorkerThatIsAloneTrainsOnAllItsDevices) {
  const TfConfigSetting setting("{}");
  const MultiWorkerMirroredStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 8);
  EXPECT_EQ(strategy.name(), "MultiWorkerMirroredStrategy");
}

TEST(Strategy, AWorkerAmongSeveralDoesNotTrainByItself) {
  const TfConfigSetting setting(
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})");
  EXPECT_THAT(error_of([] {
                const MultiWorkerMirroredStrategy strategy({.communication = {.join_timeout_seconds = 1}});
              }).message(),
              ::testing::AnyOf(HasSubstr("rank 0 at a:1"), HasSubstr("workers cannot be joined")));
}

TEST(Strategy, RunReturnsScalarsOfEachReplicaAndReducesThem) {
  const MirroredStrategy strategy(names(3));
  const Distributed sums =
      strategy.run([](const Tensor& x) { return reduce_sum(x); }, strategy.distribute(ten()));
  EXPECT_THAT(sums.at(0).item<float>(), 6);
  EXPECT_THAT(strategy.reduce(ReduceOp::sum, sums).item<float>(), 45);
  EXPECT_THAT(strategy.reduce(ReduceOp::mean, sums).item<float>(), 15);
}

TEST(Strategy, EmptyReplicasHaveNoValueAndDoNotCount) {
  const MirroredStrategy strategy(names(4));
  const Tensor x = Tensor::from<float>({1, 2}, {2});
  const auto [mine, all] =
      strategy.run([](const Tensor& v) { return std::pair(reduce_sum(v), all_reduce_sum(reduce_sum(v))); },
                   strategy.distribute(x));
  EXPECT_THAT(all.at(0).item<float>(), 3);
  EXPECT_FALSE(mine.has(3));
  EXPECT_THAT(strategy.reduce(ReduceOp::mean, mine).item<float>(), 1.5F);
}

TEST(Strategy, ReplicasKnowTheirNumberAndTheirPartOfAMean) {
  const MirroredStrategy strategy(names(3));
  const auto [id, share] = strategy.run(
      [](const Tensor& x) { return std::pair(replica_id(), global_mean(x)); }, strategy.distribute(ten()));
  EXPECT_THAT(id.at(0).item<int32_t>(), 0);
  EXPECT_THAT(id.at(2).item<int32_t>(), 2);
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::sum, share).item<float>(), 4.5F);
}

TEST(Strategy, TensorsFromOutsideMayChangeWithoutCompilingAgain) {
  const MirroredStrategy strategy(names(2));
  for (float factor = 1; factor < 4; ++factor) {
    const Tensor scale = Tensor::scalar(factor);
    const Distributed y =
        strategy.run([&](const Tensor& x) { return x * scale; }, strategy.distribute(ten()));
    EXPECT_EQ(strategy.gather(y).to_vector<float>()[9], 9 * factor);
  }
}

TEST(Strategy, CentralStorageUpdatesOnceAndTheOthersSeeIt) {
  const CentralStorageStrategy strategy(names(2));
  Variable w;
  {
    const auto scope = strategy.scope();
    w = Variable(Tensor::scalar(1.0F), {.name = "w"});
  }
  for (int step = 0; step < 3; ++step)
    strategy.run([&](const Tensor& x) { w.assign_add(all_reduce_sum(reduce_sum(x * w))); },
                 strategy.distribute(Tensor::from<float>({1, 1}, {2})));
  EXPECT_EQ(w.value().item<float>(), 27);
}

TEST(Strategy, AVariableFromOutsideIsAnErrorThatNamesItAndTheFix) {
  const MirroredStrategy strategy(names(2));
  const Variable w(Tensor::scalar(1.0F), {.name = "forgotten"});
  const auto step = [&] { strategy.run([&](const Tensor& x) { return x * w; }, strategy.distribute(ten())); };
  const std::string error = error_of(step).message();
  EXPECT_THAT(error, HasSubstr("\"forgotten\" made at"));
  EXPECT_THAT(error, HasSubstr("strategy_test.cc"));
  EXPECT_THAT(error, HasSubstr("adopt"));
  strategy.adopt({w});
  step();
}

TEST(Strategy, ScopesOfTwoStrategiesDoNotNest) {
  const MirroredStrategy one(names(2)), other(names(2));
  const auto scope = one.scope();
  EXPECT_THAT(error_of([&] { const auto inner = other.scope(); }).message(), HasSubstr("another strategy"));
  const auto again = one.scope();
}

TEST(Strategy, ADeviceTwiceIsAnError) {
  const std::string name = names(2)[0];
  EXPECT_THAT(error_of([&] { MirroredStrategy({name, name}); }).message(), HasSubstr("listed twice"));
}

// Three values of different sizes, summed over the replicas; the first alone is larger than some buckets.
std::vector<std::vector<float>> summed(const Strategy& strategy, const Tensor& x) {
  const Distributed results = strategy.run(
      [](const Tensor& rows) {
        const Tensor column = reduce_sum(rows, {.axis = {0}}) * 0.1;
        const TensorList sums = {all_reduce_sum(sin(column)),
                                 all_reduce_sum(reshape(reduce_sum(cos(rows)), {1})),
                                 all_reduce_sum(exp(column * 0.01))};
        return concat(sums, 0);
      },
      strategy.distribute(x));
  std::vector<std::vector<float>> all;
  for (const Tensor& result : results.local_results()) all.push_back(result.to_vector<float>());
  return all;
}

TEST(Strategy, AllReductionsAndBucketsGiveTheSameBits) {
  const random::Generator generator(3);
  for (const int devices : {2, 3, 5, 8}) {
    // The last batch leaves devices without examples.
    for (const int64_t batch : {devices * 3 + 1, 2}) {
      const Tensor x = random::normal({batch, 5000}, {.generator = &generator});
      for (const bool reproducible : {false, true}) {
        const auto expected =
            summed(MirroredStrategy(names(devices), {.bucket_bytes = 0, .reproducible = reproducible}), x);
        for (const std::vector<float>& result : expected) EXPECT_EQ(result, expected[0]);
        for (const CrossDeviceOps ops : {CrossDeviceOps::ring, CrossDeviceOps::hierarchical_copy,
                                         CrossDeviceOps::reduction_to_one_device, CrossDeviceOps::tree})
          for (const int64_t bytes : {0, 1, 4096, 1 << 20, -1}) {
            SCOPED_TRACE(detail::concat(devices, " devices, batch ", batch, ", ops ", static_cast<int>(ops),
                                        ", ", bytes, " bytes", reproducible ? ", reproducible" : ""));
            const MirroredStrategy strategy(
                names(devices),
                {.cross_device_ops = ops, .bucket_bytes = bytes, .reproducible = reproducible});
            ASSERT_EQ(summed(strategy, x), expected);
          }
      }
    }
  }
}

// Whoever is the last to fill a bucket sums its part before it computes the next.
TEST(Strategy, BucketsAreSummedWhileTheBackwardPassGoesOn) {
  const Tensor x = fill({DType::float32, {8, 64}}, 1);
  const auto sums_before_the_last_kernel = [&](int64_t bucket_bytes) {
    const MirroredStrategy strategy(names(2), {.bucket_bytes = bucket_bytes});
    const auto step = [&] {
      strategy.run(
          [](const Tensor& rows) {
            Tensor y = rows, total = all_reduce_sum(reduce_sum(rows, {.axis = {0}}));
            for (int i = 0; i < 4; ++i) {
              y = matmul(transpose(y), y);
              total = total + all_reduce_sum(reduce_sum(y, {.axis = {0}}));
            }
            return total;
          },
          strategy.distribute(x));
    };
    step();
    observe::start_tracing();
    step();
    observe::stop_tracing();
    const observe::Trace trace = observe::take_trace();
    int64_t early = 0;
    for (int device = 0; device < 2; ++device) {
      int64_t last_kernel = 0;
      for (const observe::Event& event : trace.events)
        if (event.device == device && event.replica >= 0 &&
            std::string_view(event.category.c_str()) == "kernel")
          last_kernel = std::max(last_kernel, event.start_ns);
      for (const observe::Event& event : trace.events)
        early += event.device == device && std::string_view(event.category.c_str()) == "communication" &&
                 event.start_ns < last_kernel;
    }
    return early;
  };
  EXPECT_EQ(sums_before_the_last_kernel(0), 0);
  EXPECT_GE(sums_before_the_last_kernel(1), 4);
}

TEST(Strategy, ALoopWrittenByHandEndsWithWhereItsTimeWent) {
  for (const bool report : {true, false}) {
    ::testing::internal::CaptureStdout();
    {
      const MirroredStrategy strategy(names(2), {.report = report});
      for (int step = 0; step < 10; ++step)
        strategy.run([](const Tensor& x) { return all_reduce_sum(reduce_sum(x)); },
                     strategy.distribute(ten()));
      for (const observe::ReplicaSummary& replica : strategy.summary().replicas) {
        EXPECT_EQ(replica.counts[observe::Counter::examples], 50);
        EXPECT_EQ(replica.counts[observe::Counter::slots], 50);
        EXPECT_GT(replica.counts[observe::Counter::communication_bytes], 0);
      }
      EXPECT_EQ(strategy.summary().replicas[0].counts[observe::Counter::traces], 1);
    }
    const std::string text = ::testing::internal::GetCapturedStdout();
    if (report)
      EXPECT_THAT(text, ::testing::AllOf(HasSubstr("MirroredStrategy::run"), HasSubstr("replica 1")));
    else
      EXPECT_EQ(text, "");
  }
}

// A body is traced anew with every call, and stays the same program.
TEST(Strategy, BranchesAndLoopsAreCompiledOnce) {
  using Values = std::span<const Tensor>;
  const auto doubled = [](Values v) { return TensorList{v[0] * 2.0}; };
  const auto doublings = [&](const Tensor& x) {
    return while_loop([](Values v) { return reduce_sum(v[0]) < 1000.0; }, doubled, {x},
                      {.maximum_iterations = 20})[0];
  };
  const auto nested = [&](const Tensor& x) {
    return cond(
        reduce_sum(x) > 10.0, [&] { return doublings(x); }, [&] { return x - 1.0; });
  };
  const auto of_the_scan = [](const Tensor& x) {
    return foldl([](const Tensor& sum, const Tensor& row) { return sum + row * row; }, zeros({}), x);
  };
  const auto gradient = [&](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    const Tensor y = reduce_sum(nested(x)) + of_the_scan(x);
    return tape.gradient(y, {x})[0];
  };
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {doublings, nested, of_the_scan,
                                                                       gradient};
  for (size_t i = 0; i < functions.size(); ++i) {
    const MirroredStrategy strategy(names(2), {.report = false});
    for (int step = 0; step < 3; ++step) strategy.run(functions[i], strategy.distribute(ten()));
    EXPECT_EQ(strategy.summary().replicas[0].counts[observe::Counter::traces], 1) << "function " << i;
  }
}

TEST(Strategy, ALoopWithAnotherBodyIsAnotherProgram) {
  const MirroredStrategy strategy(names(2), {.report = false});
  const auto powers = [&](double factor) {
    const Distributed result = strategy.run(
        [&](const Tensor& x) {
          return foldl([&](const Tensor& sum, const Tensor& row) { return sum * factor + row; }, zeros({}),
                       x);
        },
        strategy.distribute(Tensor::from<float>({1, 1, 1, 1}, {4})));
    return result.at(0).item<float>();
  };
  EXPECT_EQ(powers(2), 3);
  EXPECT_EQ(powers(3), 4);
  EXPECT_EQ(powers(2), 3);
  EXPECT_EQ(strategy.summary().replicas[0].counts[observe::Counter::traces], 2);
}

TEST(Strategy, AVariableMayHaveAPartInEveryReplica) {
  const MirroredStrategy strategy(names(3));
  Variable seen;
  {
    const auto scope = strategy.scope();
    seen = Variable(Tensor::scalar(100.0F), {.name = "seen", .trainable = false, .per_replica = true});
  }
  const auto step = [&](const Tensor& batch) {
    return strategy.run(
        [&](const Tensor& x) {
          seen.assign_add(reduce_sum(x));
          return seen.value();
        },
        strategy.distribute(batch));
  };
  step(ten());
  const Distributed parts = step(ten());
  EXPECT_EQ(parts.at(0).item<float>(), 112);
  EXPECT_EQ(parts.at(2).item<float>(), 34);
  EXPECT_EQ(seen.value().item<float>(), 190);
  // Replicas without examples hand over what they have.
  step(ten());
  const Distributed of_one = step(Tensor::from<float>({1}, {1}));
  EXPECT_EQ(of_one.at(0).item<float>(), 236);
  EXPECT_EQ(seen.value().item<float>(), 236);
  // Outside of replicas, and for another number of them, it is a variable like any other.
  seen.assign(Tensor::scalar(1.0F));
  EXPECT_EQ(seen.value().item<float>(), 1);
  step(ten());
  const MirroredStrategy two(names(2));
  two.adopt({seen});
  const Distributed of_two = two.run(
      [&](const Tensor& x) {
        seen.assign_add(reduce_sum(x));
        return seen.value();
      },
      two.distribute(ten()));
  EXPECT_EQ(of_two.at(0).item<float>(), 56);
  EXPECT_EQ(of_two.at(1).item<float>(), 35);
}

TEST(Strategy, APartThatIsTheSameInAllReplicasIsAnError) {
  const MirroredStrategy strategy(names(2));
  Variable seen;
  {
    const auto scope = strategy.scope();
    seen = Variable(Tensor::scalar(1.0F), {.name = "seen", .per_replica = true});
  }
  const auto step = [&] {
    strategy.run([&](const Tensor& x) { seen.assign(all_reduce_sum(reduce_sum(x))); },
                 strategy.distribute(ten()));
  };
  EXPECT_THAT(error_of(step).message(), HasSubstr("\"seen\" keeps a part in every replica"));
}

TEST(Strategy, WeightsGiveDevicesUnequalShares) {
  const MirroredStrategy strategy(names(2), {.weights = {3, 1}});
  const Distributed x = strategy.distribute(range(8, DType::float32));
  EXPECT_EQ(x.at(0).size(), 6);
  const Distributed y = strategy.run([](const Tensor& v) { return reduce_sum(v); }, x);
  EXPECT_EQ(y.at(1).item<float>(), 13);
}

TEST(Strategy, AnUnbatchedDatasetIsAnErrorThatSaysToBatchIt) {
  const MirroredStrategy strategy(names(2));
  const auto data = strategy.distribute_dataset(data::Dataset::range(4));
  EXPECT_THAT(error_of([&] { data.begin(); }).message(), HasSubstr(".batch("));
}

}  // namespace
}  // namespace lockstep::distribute
