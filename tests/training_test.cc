// The three models, trained every way there is: by hand in float64, eagerly, compiled, and as
// replicas on one to eight devices.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "base/error_of_test.h"
#include "devices.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/device/config.h"
#include "lockstep/execute/function.h"
#include "lockstep/observe/span.h"
#include "lockstep/ops/random.h"
#include "models/models.h"

namespace lockstep {
namespace {

using models::Model;

struct ModelCase {
  const char* name;
  std::function<std::unique_ptr<Model>(DType)>
      make;  // with everything that training does: dropout, batch norm
  std::function<Tensor(int64_t, DType)> inputs;
};

std::ostream& operator<<(std::ostream& out, const ModelCase& c) { return out << c.name; }

const ModelCase kCases[] = {
    {"mlp", [](DType dtype) { return std::make_unique<models::Mlp>(7, 0.25, dtype, 50, 32); },
     [](int64_t batch, DType dtype) {
       return models::random_inputs({batch, 50}, 1, dtype);
     }},
    {"convnet", [](DType dtype) { return std::make_unique<models::ConvNet>(7, true, dtype, 14, 4, 16); },
     [](int64_t batch, DType dtype) {
       return models::random_inputs({batch, 14, 14, 1}, 1, dtype);
     }},
    {"transformer", [](DType dtype) { return std::make_unique<models::Transformer>(7, 0.1, dtype); },
     [](int64_t batch, DType) {
       return models::random_tokens({batch, models::Transformer::kLength}, models::Transformer::kVocabulary,
                                    1);
     }},
};

std::vector<std::vector<float>> values_of(const Model& model) {
  std::vector<std::vector<float>> all;
  for (const auto* list : {&model.variables(), &model.statistics()})
    for (const Variable& variable : *list) all.push_back(variable.value().to_vector<float>());
  return all;
}

// max|a - b| <= bound * max|a| for each tensor.
void expect_close(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b,
                  double bound) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t t = 0; t < a.size(); ++t) {
    double scale = 0, worst = 0;
    for (size_t i = 0; i < a[t].size(); ++i) {
      scale = std::max(scale, std::abs(static_cast<double>(a[t][i])));
      worst = std::max(worst, std::abs(static_cast<double>(a[t][i]) - b[t][i]));
    }
    EXPECT_LE(worst, bound * scale) << "tensor " << t;
  }
}

struct Outcome {
  std::vector<std::vector<float>> weights;
  float loss = 0;
};

// `replicas.devices` empty: not replicated. Every step sees another batch.
Outcome train(const ModelCase& c, int64_t batch, int steps, const ReplicaOptions& replicas,
              bool eager = false) {
  set_random_seed(11);
  const auto model = c.make(DType::float32);
  auto optimizer = keras::optimizers::Adam();
  const auto body = [&](const Tensor& x, const Tensor& y) {
    return models::train_step(*model, optimizer, x, y);
  };
  auto step = function(body, {.name = c.name, .replicas = replicas});
  const Tensor x = c.inputs(batch, DType::float32);
  Outcome run;
  for (int i = 0; i < steps; ++i) {
    const Tensor y = models::random_labels(batch, 10, static_cast<uint64_t>(100 + i % 4));
    run.loss = (eager ? body(x, y) : step(x, y)).item<float>();
  }
  run.weights = values_of(*model);
  return run;
}

class Training : public testing::TestWithParam<ModelCase> {};

TEST_P(Training, GradientsMatchFiniteDifferences) {
  const ModelCase& c = GetParam();
  const auto model = c.make(DType::float64);
  const Tensor x = c.inputs(5, DType::float64);
  const Tensor y = models::random_labels(5, 10, 3);
  // Batch norm's statistics do not enter the loss in training; dropout draws the same masks again.
  const auto loss_of = [&] {
    set_random_seed(5);
    return models::mean_loss(model->logits(x, true), y);
  };
  GradientTape tape;
  const Tensor loss = loss_of();
  const TensorList gradients = tape.gradient(loss, model->variables());
  for (size_t v = 0; v < gradients.size(); ++v) {
    const Variable& variable = model->variables()[v];
    ASSERT_TRUE(gradients[v].defined()) << variable.name();
    const std::vector<double> gradient = gradients[v].to_vector<double>();
    std::vector<double> values = variable.value().to_vector<double>();
    const size_t stride = std::max<size_t>(1, values.size() / 5);
    for (size_t i = 0; i < values.size(); i += stride) {
      const double original = values[i], h = 1e-5;
      const auto at = [&](double value) {
        values[i] = value;
        variable.assign(Tensor::from(values, variable.shape()));
        return loss_of().item<double>();
      };
      const double estimate = (at(original + h) - at(original - h)) / (2 * h);
      at(original);
      EXPECT_NEAR(gradient[i], estimate, 1e-7 + 1e-5 * std::abs(estimate))
          << variable.name() << " element " << i;
    }
  }
}

TEST_P(Training, Float32GradientsMatchFloat64) {
  const ModelCase& c = GetParam();
  const auto gradients = [&](DType dtype) {
    set_random_seed(5);
    const auto model = c.make(dtype);
    GradientTape tape;
    const Tensor loss =
        models::mean_loss(model->logits(c.inputs(9, dtype), true), models::random_labels(9, 10, 3));
    std::vector<std::vector<float>> all;
    for (const Tensor& g : tape.gradient(loss, model->variables())) {
      if (dtype == DType::float32) {
        all.push_back(g.to_vector<float>());
      } else {
        const auto wide = g.to_vector<double>();
        all.emplace_back(wide.begin(), wide.end());
      }
    }
    return all;
  };
  expect_close(gradients(DType::float64), gradients(DType::float32), 2e-5);
}

TEST_P(Training, EagerCompiledAndReplicatedAgree) {
  constexpr int64_t kBatch = 33;
  constexpr int kSteps = 10;
  const ModelCase& c = GetParam();
  const Outcome whole = train(c, kBatch, kSteps, {});
  // Dropout's masks depend on the op's place in the traced function, so only a model without random
  // numbers gives the same numbers eagerly.
  if (std::string(c.name) == "convnet")
    expect_close(whole.weights, train(c, kBatch, kSteps, {}, true).weights, 1e-5);
  for (const int devices : {2, 3, 4}) {
    SCOPED_TRACE(devices);
    const Outcome replicated = train(c, kBatch, kSteps, {.devices = first_devices(devices)});
    expect_close(whole.weights, replicated.weights, 2e-5);
    EXPECT_NEAR(whole.loss, replicated.loss, 1e-5 * std::abs(whole.loss));
  }
}

TEST_P(Training, ReproducibleBitsDoNotDependOnTheNumberOfDevices) {
  constexpr int kSteps = 200;
  const ModelCase& c = GetParam();
  for (const int64_t batch : {64, 61}) {
    SCOPED_TRACE(batch);
    const auto run = [&](const std::vector<Device*>& devices) {
      return train(c, batch, kSteps, {.devices = devices, .reproducible = true});
    };
    const Outcome one = run(first_devices(1));
    for (const int devices : {2, 3, 4, 8})
      EXPECT_EQ(one.weights, run(first_devices(devices)).weights) << devices << " devices";
    EXPECT_TRUE(std::isfinite(one.loss));
  }
}

TEST_P(Training, ReproducibleBitsDoNotDependOnTheNumberOfThreads) {
  const ModelCase& c = GetParam();
  const Outcome one = train(c, 29, 20, {.devices = first_devices(1), .reproducible = true});
  const DeviceScope scope(two_thread_device());
  const Outcome two = train(c, 29, 20, {.devices = {&two_thread_device()}, .reproducible = true});
  EXPECT_EQ(one.weights, two.weights);
}

TEST_P(Training, ReproducibleBitsWantKernelsThatAddUpInOneOrder) {
  const auto run = [] { train(GetParam(), 29, 1, {.devices = first_devices(2), .reproducible = true}); };
  config::enable_op_determinism(false);
  const Error error = error_of(run);
  config::enable_op_determinism();
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_NE(error.message().find("enable_op_determinism"), std::string::npos) << error.message();
  run();
}

TEST_P(Training, DevicesShareTheWork) {
  const ModelCase& c = GetParam();
  constexpr int kSteps = 3;
  const auto measure = [&](int count) {
    const auto devices = first_devices(count);
    for (Device* device : devices) device->reset_counters();
    train(c, 64, kSteps, {.devices = devices, .reproducible = true});
    std::vector<DeviceCounters> counters;
    for (Device* device : devices) counters.push_back(device->counters());
    return counters;
  };
  const int64_t alone = measure(1)[0].flops;
  observe::start_tracing();
  const std::vector<DeviceCounters> shared = measure(4);
  observe::stop_tracing();
  for (size_t d = 0; d < shared.size(); ++d) {
    // A quarter of the replicas each, and the update of all weights.
    EXPECT_LT(shared[d].flops, alone * 2 / 3) << "device " << d;
    EXPECT_GT(shared[d].flops, alone / 5) << "device " << d;
    EXPECT_GT(shared[d].kernels, 0);
    EXPECT_GT(shared[d].bytes_copied_in, 0);
    EXPECT_GT(shared[d].bytes_copied_out, 0);
  }
  std::set<int> computing, communicating;
  for (const observe::Event& event : observe::take_trace().events) {
    if (std::string(event.category.c_str()) == "kernel") computing.insert(event.device);
    if (std::string(event.category.c_str()) == "communication") communicating.insert(event.device);
  }
  for (int d = 0; d < 4; ++d) {
    EXPECT_TRUE(computing.contains(d)) << d;
    EXPECT_TRUE(communicating.contains(d)) << d;
  }
}

TEST_P(Training, LossFalls) {
  const ModelCase& c = GetParam();
  set_random_seed(1);
  const auto model = c.make(DType::float32);
  auto optimizer = keras::optimizers::Adam({.learning_rate = 3e-3});
  auto step =
      function([&](const Tensor& x, const Tensor& y) { return models::train_step(*model, optimizer, x, y); });
  const Tensor x = c.inputs(32, DType::float32);
  const Tensor y = models::random_labels(32, 10, 3);
  const float first = step(x, y).item<float>();
  float last = first;
  for (int i = 0; i < 150; ++i) last = step(x, y).item<float>();
  EXPECT_LT(last, first / 2);
}

INSTANTIATE_TEST_SUITE_P(Models, Training, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lockstep
