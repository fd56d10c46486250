#include "engine.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "models/models.h"

namespace lockstep::bench {

void configure_devices() { set_logical_cpus({.threads_of = {1, 1, 1, 1, 2, 4, 8, 16}}); }

Device& device_with(int threads) {
  configure_devices();
  for (Device* device : logical_devices())
    if (device->threads() == threads) return *device;
  fail(ErrorCode::invalid_argument, std::source_location::current(),
       "the benchmark knows 1, 2, 4, 8 and 16 threads, received ", threads);
}

namespace {

struct Training {
  std::unique_ptr<models::Model> model;
  keras::optimizers::Optimizer optimizer = keras::optimizers::Adam();
  Tensor x, labels;
  Tensor step() { return models::train_step(*model, optimizer, x, labels); }
};

auto compiled(const std::shared_ptr<Training>& training, const ReplicaOptions& replicas = {}) {
  return function(
      [training](const Tensor& x, const Tensor& labels) {
        return models::train_step(*training->model, training->optimizer, x, labels);
      },
      {.replicas = replicas});
}

std::shared_ptr<Training> mlp(int64_t batch) {
  auto training = std::make_shared<Training>();
  training->model = std::make_unique<models::Mlp>(7);
  training->x = models::random_inputs({batch, 784}, 1);
  training->labels = models::random_labels(batch, 10, 2);
  return training;
}

std::shared_ptr<Training> convnet(int64_t batch) {
  auto training = std::make_shared<Training>();
  training->model = std::make_unique<models::ConvNet>(7, /*batch_norm=*/false);
  training->x = models::random_inputs({batch, 28, 28, 1}, 1);
  training->labels = models::random_labels(batch, 10, 2);
  return training;
}

Step compiled_step(const std::shared_ptr<Training>& training, Device& device) {
  return [training, step = compiled(training), &device]() mutable {
    const DeviceScope scope(device);
    step(training->x, training->labels);
  };
}

Step replicated_step(const std::shared_ptr<Training>& training) {
  configure_devices();
  std::vector<Device*> devices(logical_devices().begin(), logical_devices().begin() + 2);
  return [training, step = compiled(training, {.devices = devices})]() mutable {
    step(training->x, training->labels);
  };
}

keras::Sequential keras_mlp() {
  return keras::Sequential(
      {keras::layers::Dense(128, {.activation = "relu", .input_shape = {784}}), keras::layers::Dense(10)});
}
keras::Loss crossentropy() { return keras::losses::SparseCategoricalCrossentropy({.from_logits = true}); }

// Standard output goes nowhere for a scope.
class Muted {
 public:
  Muted() : saved_(dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
  ~Muted() {
    std::fflush(stdout);
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
  }
  Muted(const Muted&) = delete;
  Muted& operator=(const Muted&) = delete;

 private:
  int saved_;
};

MemoryPlan plan_of(const char* work, int64_t batch, const std::shared_ptr<Training>& training) {
  const ProgramStatistics statistics = compiled(training).statistics(training->x, training->labels);
  return {.work = work,
          .batch = batch,
          .planned_bytes = statistics.arena_bytes,
          .unplanned_bytes = statistics.unplanned_bytes,
          .least_bytes = statistics.peak_bytes};
}

}  // namespace

Step engine_mlp(int64_t batch, int threads, Mode mode) {
  Device& device = device_with(threads);
  const DeviceScope scope(device);
  const auto training = mlp(batch);
  if (mode == Mode::compiled) return compiled_step(training, device);
  return [training, &device] {
    const DeviceScope inner(device);
    training->step();
  };
}

Step engine_fit_epoch(int64_t batch, int threads) {
  Device& device = device_with(threads);
  const DeviceScope scope(device);
  const keras::Sequential model = keras_mlp();
  model.compile({.optimizer = "adam", .loss = crossentropy(), .metrics = {"accuracy"}});
  const keras::Data data(models::random_inputs({kFitExamples, 784}, 1),
                         models::random_labels(kFitExamples, 10, 2));
  return [model, data, batch, &device] {
    const DeviceScope inner(device);
    const Muted muted;
    model.fit(data, {.batch_size = batch});
  };
}

Step engine_fit_step(int64_t batch, int threads, Batches batches) {
  Device& device = device_with(threads);
  const DeviceScope scope(device);
  auto step = function([model = keras_mlp(), optimizer = keras::optimizers::Adam(), loss_of = crossentropy()](
                           const Tensor& x, const Tensor& labels) {
    GradientTape tape;
    const Tensor loss = loss_of(labels, model(x, {.training = true}));
    const std::vector<Variable> weights = model.trainable_weights();
    optimizer.apply_gradients(tape.gradient(loss, weights), weights);
    return loss;
  });
  const int64_t count = batches == Batches::same ? 1 : kFitExamples / batch;
  const std::vector<Tensor> x =
      split(models::random_inputs({count * batch, 784}, 1), static_cast<int>(count), 0);
  const std::vector<Tensor> labels =
      split(models::random_labels(count * batch, 10, 2), static_cast<int>(count), 0);
  return [step, x, labels, at = size_t{0}, &device]() mutable {
    const DeviceScope inner(device);
    step(x[at], labels[at]);
    at = (at + 1) % x.size();
  };
}

Step engine_mlp_replicas(int64_t batch) { return replicated_step(mlp(batch)); }
Step engine_convnet_replicas(int64_t batch) { return replicated_step(convnet(batch)); }

Step engine_convnet(int64_t batch, int threads) {
  Device& device = device_with(threads);
  const DeviceScope scope(device);
  return compiled_step(convnet(batch), device);
}

Step engine_chain(int threads) {
  Device& device = device_with(threads);
  const DeviceScope scope(device);
  auto x = std::make_shared<Tensor>(Tensor::full(DType::float32, {kChainElements}, 0.5));
  auto chain = function([](const Tensor& x) {
    Tensor y = maximum(x * 1.01 + 0.25, -4.0);
    y = maximum(y * 0.99 + -0.125, -3.0);
    return y * 1.5 + 0.5;
  });
  return [x, chain, &device]() mutable {
    const DeviceScope inner(device);
    chain(*x);
  };
}

std::vector<MemoryPlan> engine_memory_plans() {
  const DeviceScope scope(device_with(1));
  std::vector<MemoryPlan> plans;
  for (const int64_t batch : {32, 128, 1024}) plans.push_back(plan_of("mlp", batch, mlp(batch)));
  plans.push_back(plan_of("convnet", 64, convnet(64)));
  return plans;
}

}  // namespace lockstep::bench
