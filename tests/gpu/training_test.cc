// Training on GPUs against training on the CPU.
#include <cmath>

#include "gpu/gpu.h"
#include "gpu/outcome.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/datasets.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/random.h"
#include "models/models.h"

namespace lockstep::testing {
namespace {

using GpuTraining = Gpu;

Outcome train_mlp(Device& device, int64_t batch, int steps, const ReplicaOptions& replicas = {}) {
  const DeviceScope scope(device);
  models::Mlp model(7);
  auto optimizer = keras::optimizers::Adam();
  FunctionOptions options;
  options.replicas = replicas;
  auto step = function(
      [&](const Tensor& x, const Tensor& y) { return models::train_step(model, optimizer, x, y); }, options);
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const Tensor loss =
        step(models::random_inputs({batch, 784}, seed), models::random_labels(batch, 10, seed));
    outcome.losses.push_back(loss.to_vector<float>()[0]);
  }
  for (const Variable& variable : model.variables())
    outcome.weights.push_back(variable.value().to_vector<float>());
  return outcome;
}

TEST_F(GpuTraining, MlpStepsEqualTheCpus) {
  expect_close(train_mlp(cpu(), 32, 20), train_mlp(gpu(), 32, 20), 1e-4);
}

TEST_F(GpuTraining, MlpRepeatsToTheBit) {
  const Outcome first = train_mlp(gpu(), 48, 10), second = train_mlp(gpu(), 48, 10);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.weights, second.weights);
}

TEST_F(GpuTraining, MemoryDoesNotGrowOverSteps) {
  train_mlp(gpu(), 32, 3);
  const int64_t before = gpu().memory_info().current;
  train_mlp(gpu(), 32, 50);
  EXPECT_EQ(gpu().memory_info().current, before);
}

TEST_F(GpuTraining, ReplicasOnLogicalGpusEqualOne) {
  const Outcome alone = train_mlp(gpu(), 64, 5);
  for (const int count : {1, 2, 4}) {
    SCOPED_TRACE(count);
    ReplicaOptions replicas;
    for (int i = 0; i < count; ++i) replicas.devices.push_back(&gpu(i));
    expect_close(alone, train_mlp(gpu(), 64, 5, replicas), 1e-4);
  }
}

TEST_F(GpuTraining, ReproducibleBitsDoNotDependOnTheNumberOfLogicalGpus) {
  std::vector<Outcome> outcomes;
  for (const int count : {1, 2, 4}) {
    ReplicaOptions replicas{.reproducible = true};
    for (int i = 0; i < count; ++i) replicas.devices.push_back(&gpu(i));
    outcomes.push_back(train_mlp(gpu(), 64, 5, replicas));
  }
  for (size_t i = 1; i < outcomes.size(); ++i) {
    EXPECT_EQ(outcomes[0].losses, outcomes[i].losses);
    EXPECT_EQ(outcomes[0].weights, outcomes[i].weights);
  }
}

std::vector<double> fit_digits(Device& device) {
  const DeviceScope scope(device);
  set_random_seed(3);
  auto [train, test] = keras::datasets::digits();
  keras::Sequential model({keras::layers::Flatten({.input_shape = {28, 28}}),
                           keras::layers::Dense(32, {.activation = "relu"}), keras::layers::Dense(10)});
  model.compile({.optimizer = keras::optimizers::Adam(),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const keras::History history =
      model.fit(train, {.batch_size = 128, .epochs = 2, .verbose = 0, .shuffle = false});
  return history["loss"];
}

TEST_F(GpuTraining, FitEqualsTheCpus) {
  const std::vector<double> on_cpu = fit_digits(cpu()), on_gpu = fit_digits(gpu());
  ASSERT_EQ(on_cpu.size(), on_gpu.size());
  for (size_t i = 0; i < on_cpu.size(); ++i) EXPECT_NEAR(on_cpu[i], on_gpu[i], 2e-3 * on_cpu[i]);
}

}  // namespace
}  // namespace lockstep::testing
