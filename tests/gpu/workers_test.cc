// Workers whose GPUs are joined by NCCL, through the strategy: two processes on one GPU, each with a host id
// of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "comm/communicator.h"
#include "gpu/gpu.h"
#include "gpu/ranks.h"
#include "lockstep/lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

void become_worker(int rank, int size, const std::string& address) {
  setenv("LOCKSTEP_RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCKSTEP_WORKERS", std::to_string(size).c_str(), 1);
  setenv("LOCKSTEP_ADDRESS", address.c_str(), 1);
}

class DiesInTheMiddle final : public keras::CallbackBase {
 public:
  void on_train_batch_end(int64_t batch, const keras::Logs&) override {
    if (batch == 5) kill(getpid(), SIGKILL);
  }
};

void train(bool dies, bool reproducible = false) {
  set_random_seed(3);
  const distribute::MultiWorkerMirroredStrategy strategy(
      {.reproducible = reproducible, .report = false, .communication = {.timeout_seconds = 30}});
  keras::Model model;
  {
    const auto scope = strategy.scope();
    model = keras::applications::resnet18({.input_shape = {28, 28, 1}});
    model.compile({.optimizer = keras::optimizers::SGD({.learning_rate = 0.05}),
                   .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  }
  const auto [digits, test] = keras::datasets::digits({.train_size = 1024, .test_size = 16});
  const Tensor x = reshape(cast(digits.x, DType::float32) / 255.0, {-1, 28, 28, 1});
  std::vector<keras::Callback> callbacks;
  if (dies) callbacks.push_back(keras::make_callback<DiesInTheMiddle>());
  const keras::History history =
      model.fit(x, digits.y, {.batch_size = 64, .epochs = 2, .verbose = 0, .callbacks = callbacks});
  std::printf("loss %.9g\n", history["loss"].back());
  uint64_t hash = 14695981039346656037U;  // FNV-1a over the bits of all weights
  for (const Tensor& weight : model.get_weights())
    for (const float value : weight.to_vector<float>())
      hash = (hash ^ std::bit_cast<uint32_t>(value)) * 1099511628211U;
  std::printf("weights %016lx\n", static_cast<unsigned long>(hash));
}

void strategy_trains(int rank, int size, const std::string& address) {
  become_worker(rank, size, address);
  // Batch normalisation looks at the examples of a replica: there are two, in one process or in two.
  if (size == 1)
    config::set_logical_device_configuration(
        config::list_physical_devices("GPU")[0],
        std::vector(2, config::LogicalDeviceConfiguration{.memory_limit_mb = 8192}));
  train(false);
}
void strategy_repeats(int rank, int size, const std::string& address) {
  become_worker(rank, size, address);
  train(false, true);
}
void strategy_is_killed(int rank, int size, const std::string& address) {
  become_worker(rank, size, address);
  train(rank == size - 1);
}
const RegisterScenario trains("strategy trains", strategy_trains);
const RegisterScenario repeats("strategy repeats", strategy_repeats);
const RegisterScenario killed("strategy is killed", strategy_is_killed);

double loss_of(const RankResult& rank) {
  const size_t at = rank.output.rfind("loss ");
  return at == std::string::npos ? -1 : std::atof(rank.output.c_str() + at + 5);
}

class GpuWorkers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (config::list_physical_devices("GPU").empty()) GTEST_SKIP() << "there is no GPU";
    if (const std::string missing = comm::missing_backend("nccl"); !missing.empty()) GTEST_SKIP() << missing;
  }
};

TEST_F(GpuWorkers, LongTwoTrainToTheNumbersOfOne) {
  const auto alone = run_ranks("strategy trains", 1, 120);
  const auto both = run_ranks("strategy trains", 2, 120);
  ASSERT_EQ(alone[0].status, 0) << alone[0].output;
  for (const RankResult& rank : both) {
    ASSERT_EQ(rank.status, 0) << rank.output;
    EXPECT_NEAR(loss_of(rank), loss_of(alone[0]), 1e-4);
  }
}

std::string weights_of(const RankResult& rank) {
  const size_t at = rank.output.rfind("weights ");
  return at == std::string::npos ? "none"
                                 : rank.output.substr(at, std::string("weights 0123456789abcdef").size());
}

TEST_F(GpuWorkers, LongReproducibleOnesTrainToTheBitsOfOne) {
  const auto alone = run_ranks("strategy repeats", 1, 120);
  ASSERT_EQ(alone[0].status, 0) << alone[0].output;
  ASSERT_NE(weights_of(alone[0]), "none") << alone[0].output;
  for (const int size : {2, 3})
    for (const RankResult& rank : run_ranks("strategy repeats", size, 120)) {
      ASSERT_EQ(rank.status, 0) << rank.output;
      EXPECT_EQ(weights_of(rank), weights_of(alone[0])) << size << " workers";
    }
}

TEST_F(GpuWorkers, LongAKilledOneIsNamed) {
  const auto ranks = run_ranks("strategy is killed", 2, 120);
  EXPECT_EQ(ranks[1].status, -SIGKILL) << ranks[1].output;
  EXPECT_EQ(ranks[0].status, 1) << ranks[0].output;
  EXPECT_THAT(ranks[0].output, HasSubstr("rank 1 (process "));
}

}  // namespace
}  // namespace lockstep::testing
