#include "bench/gpu.h"

#include <fmt/format.h>

#include <memory>

#include "bench/engine.h"
#include "bench/networks.h"
#include "lockstep/base/error.h"
#include "lockstep/device/config.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/observe/kernel_profile.h"
#include "models/models.h"

namespace lockstep::bench {
namespace {

// A GPU works behind the program's back: so many steps are made before it is waited for.
constexpr int64_t kSmallSteps = 500, kLargeSteps = 5;
constexpr int64_t kResnetBatch = 256, kGptBatch = 32;

struct Mlp {
  models::Mlp model{7};
  keras::optimizers::Optimizer optimizer = keras::optimizers::Adam();
};

Device& gpu(int index = 0) { return device_by_name("/GPU:" + std::to_string(index)); }

// `steps` calls of `step`, until the GPU has done them.
Candidate on_gpu(const char* name, int64_t steps, std::function<void()> step) {
  const auto run = [steps, step = std::move(step)] {
    const DeviceScope here(gpu());
    for (int64_t i = 0; i < steps; ++i) step();
    gpu().synchronize();
  };
  return whole(name, run, steps);
}

Candidate mlp_step(const char* name, const Tensor& x, const Tensor& y) {
  const DeviceScope scope(gpu());
  auto mlp = std::make_shared<Mlp>();
  auto step = function([mlp](const Tensor& images, const Tensor& labels) {
    return models::train_step(mlp->model, mlp->optimizer, images, labels);
  });
  return on_gpu(name, kSmallSteps, [=]() mutable { step(x, y); });
}

// The next rows of arrays on the GPU with every step, and many steps with one launch.
Candidate mlp_steps_at_once(int64_t batch) {
  constexpr int64_t kAtOnce = 50;
  const DeviceScope scope(gpu());
  auto mlp = std::make_shared<Mlp>();
  const auto step = std::make_shared<FunctionCore>(
      [mlp](std::span<const Tensor> in) -> TensorList {
        return {models::train_step(mlp->model, mlp->optimizer, in[0], in[1])};
      },
      FunctionOptions{}, std::source_location::current());
  const TensorList arrays = {models::random_inputs({kAtOnce * batch, 784}, 1).to(gpu()),
                             models::random_labels(kAtOnce * batch, 10, 1).to(gpu())};
  const auto run = [=] {
    const DeviceScope here(gpu());
    const std::source_location where = std::source_location::current();
    Tensor loss;
    for (int64_t i = 0; i < kSmallSteps / kAtOnce; ++i)
      require(step->call({.arrays = arrays, .order = {}, .first = 0, .rows = batch, .runs = kAtOnce},
                         std::span(&loss, 1), where),
              ErrorCode::unsupported, where, "the step is not one kernel");
    gpu().synchronize();
  };
  return whole("Lockstep, 50 steps per launch", run, kSmallSteps);
}

Candidate mlp_fit(int64_t batch) {
  constexpr int kFitEpochs = 5;
  const DeviceScope scope(gpu());
  const keras::Sequential model(
      {keras::layers::Dense(128, {.activation = "relu", .input_shape = {784}}), keras::layers::Dense(10)});
  model.compile(
      {.optimizer = "adam", .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const keras::Data data(models::random_inputs({kFitExamples, 784}, 1).to(gpu()),
                         models::random_labels(kFitExamples, 10, 2).to(gpu()));
  const auto run = [=] {
    const DeviceScope here(gpu());
    model.fit(data, {.batch_size = batch, .epochs = kFitEpochs, .verbose = 0});
  };
  return whole("Lockstep fit", run, kFitEpochs * ((kFitExamples + batch - 1) / batch));
}

Candidate network_step(const char* name, const Training& training) {
  return on_gpu(name, kLargeSteps, [training] { training(); });
}

Training training_of(const std::string& network) {
  require(network == "resnet50" || network == "gpt2", ErrorCode::invalid_argument,
          std::source_location::current(), "there is no network \"", network,
          "\"; there are resnet50 and gpt2");
  return network == "resnet50" ? resnet50_training(kResnetBatch) : gpt2_training(kGptBatch);
}

}  // namespace

void configure_gpus() {
  const auto gpus = config::list_physical_devices("GPU");
  if (gpus.empty()) return;
  constexpr double kShare = 0.45;
  config::LogicalDeviceConfiguration half;
  half.memory_limit_mb =
      static_cast<int64_t>(kShare * static_cast<double>(config::get_device_details(gpus[0]).memory >> 20));
  config::set_logical_device_configuration(gpus[0], {half, half});
}

std::string why_no_gpu() {
  try {
    config::require_gpus(1);
    return {};
  } catch (const Error& error) {
    return error.message();
  }
}

std::vector<Candidate> gpu_mlp_candidates(int64_t batch) {
  const Tensor x = models::random_inputs({batch, 784}, 1).to(gpu());
  const Tensor y = models::random_labels(batch, 10, 1).to(gpu());
  Device& host = device_by_name("/CPU:0");
  return {mlp_step("Lockstep", x, y), mlp_steps_at_once(batch), mlp_fit(batch),
          mlp_step("Lockstep, batch from the host", x.to(host), y.to(host))};
}

std::vector<Candidate> gpu_resnet50_candidates(int64_t batch) {
  const DeviceScope scope(gpu());
  return {network_step("Lockstep", resnet50_training(batch)),
          network_step("Lockstep, two logical GPUs",
                       resnet50_training(batch, {.replicas = {.devices = {&gpu(0), &gpu(1)}}}))};
}

std::vector<Candidate> gpu_gpt2_candidates(int64_t batch) {
  const DeviceScope scope(gpu());
  return {network_step("Lockstep", gpt2_training(batch))};
}

std::string gpu_profile(const std::string& network) {
  const DeviceScope scope(gpu());
  const Training training = training_of(network);
  for (int i = 0; i < 3; ++i) training();
  constexpr int kSteps = 3;
  observe::start_tracing();
  for (int i = 0; i < kSteps; ++i) training();
  gpu().synchronize();
  observe::stop_tracing();
  return to_text(observe::kernel_profile(observe::take_trace()), {.steps = kSteps});
}

}  // namespace lockstep::bench
