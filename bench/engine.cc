#include "engine.h"

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/compile/function.h"
#include "lockstep/ops/math.h"
#include "models/models.h"

namespace lockstep::bench {
namespace {

// One logical device for each number of threads, so that all are measured in one process.
Device& device_with(int threads) {
  set_logical_cpus({.threads_of = {1, 2, 4, 8, 16}});
  for (Device* device : logical_devices())
    if (device->threads() == threads) return *device;
  fail(ErrorCode::invalid_argument, std::source_location::current(),
       "the benchmark knows 1, 2, 4, 8 and 16 threads, received ", threads);
}

struct Training {
  std::unique_ptr<models::Model> model;
  keras::optimizers::Optimizer optimizer = keras::optimizers::Adam();
  Tensor x, labels;
  Tensor step() { return models::train_step(*model, optimizer, x, labels); }
};

auto compiled(const std::shared_ptr<Training>& training) {
  return function([training](const Tensor& x, const Tensor& labels) {
    return models::train_step(*training->model, training->optimizer, x, labels);
  });
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

MemoryPlan plan_of(const char* work, int64_t batch, const std::shared_ptr<Training>& training) {
  const ProgramFigures figures = compiled(training).figures(training->x, training->labels);
  return {.work = work,
          .batch = batch,
          .planned_bytes = figures.arena_bytes,
          .unplanned_bytes = figures.unplanned_bytes,
          .least_bytes = figures.peak_bytes};
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
