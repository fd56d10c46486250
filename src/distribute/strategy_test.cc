#include "lockstep/distribute/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/compile_test.h"
#include "distribute/eight_cpus_test.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
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

TEST(Strategy, AllReductionsGiveTheSameBits) {
  std::vector<float> results;
  for (const CrossDeviceOps ops :
       {CrossDeviceOps::ring, CrossDeviceOps::hierarchical_copy, CrossDeviceOps::reduction_to_one_device}) {
    const MirroredStrategy strategy(names(3), {.cross_device_ops = ops});
    const Distributed sum = strategy.run([](const Tensor& x) { return all_reduce_sum(reduce_sum(x * 0.1)); },
                                         strategy.distribute(ten()));
    results.push_back(sum.at(2).item<float>());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
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
