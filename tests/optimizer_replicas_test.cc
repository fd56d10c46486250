// Optimizers under replicas: what they see is the sum of all gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "devices.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

using keras::optimizers::Optimizer;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One step: the gradient is the sum over the batch, clipped, scaled and accumulated as `optimizer` says.
auto summed_step(const Optimizer& optimizer, const Variable& w, int devices) {
  return function(
      [=](const Tensor& x) {
        const Tensor scaled = optimizer.scale_loss(reduce_sum(x, {.axis = {0}}));
        optimizer.apply_gradients(TensorList{scaled}, {w});
      },
      {.replicas = {.devices = first_devices(devices)}});
}

class OptimizerReplicas : public ::testing::TestWithParam<const char*> {};

TEST_P(OptimizerReplicas, ManyAreOne) {
  const auto weights = [](int devices) {
    const Json config = Json::object({{"learning_rate", 0.1},
                                      {"global_clipnorm", 1.0},
                                      {"weight_decay", 0.01},
                                      {"use_ema", true},
                                      {"ema_overwrite_frequency", 2},
                                      {"gradient_accumulation_steps", 2}});
    const Optimizer optimizer = keras::optimizers::LossScaleOptimizer(
        Optimizer::deserialize(Json::object({{"class_name", GetParam()}, {"config", config}})));
    const Variable w(Tensor::from(Floats{1, -2, 3, 4, 0.5, 0.25}, {2, 3}));
    auto step = summed_step(optimizer, w, devices);
    for (int t = 1; t <= 6; ++t) {
      Floats x;
      for (int i = 0; i < 30; ++i) x.push_back(std::sin(static_cast<float>(t * i)));
      step(Tensor::from(x, {5, 2, 3}));
    }
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 3);
    return w.value().to_vector<float>();
  };
  const Floats one = weights(1);
  for (const int devices : {2, 3}) {
    const Floats many = weights(devices);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], many[i], 1e-5f) << devices << " devices";
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerReplicas,
                         ::testing::Values("sgd", "adam", "adamw", "adamax", "nadam", "rmsprop", "adagrad",
                                           "adadelta", "lion", "lamb", "ftrl", "adafactor"),
                         [](const auto& info) { return std::string(info.param); });

// One replica's infinity stops all of them, also where another's has the other sign.
TEST(LossScaleReplicas, LookAtEveryGradient) {
  for (const float other : {1.0f, -kInfinity}) {
    const Optimizer optimizer = keras::optimizers::LossScaleOptimizer(keras::optimizers::SGD());
    const Variable w(Tensor::from(Floats{1}, {1}));
    auto step = summed_step(optimizer, w, 2);
    step(Tensor::from(Floats{kInfinity, other}, {2, 1}));
    EXPECT_EQ(w.value().to_vector<float>(), Floats{1});
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 0);
    EXPECT_EQ(optimizer.variables()[1].value().item<float>(), 16384);
    step(Tensor::from(Floats{16384, 16384}, {2, 1}));
    EXPECT_NE(w.value().to_vector<float>(), Floats{1});
  }
}

}  // namespace
}  // namespace lockstep
