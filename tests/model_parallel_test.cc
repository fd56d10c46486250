// A model split by hand over two devices trains to the numbers of one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "devices.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr int64_t kBatch = 16, kIn = 12, kHidden = 24, kOut = 5;
constexpr int kSteps = 10;

// Numbers between -1 and 1 that repeat themselves late.
Tensor numbers(const Shape& shape, int start) {
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((static_cast<int>(i) * 37 + start) % 101 - 50) / 50;
  return Tensor::from(values, shape);
}

struct Counted {
  DeviceCounters first, second;
};

// Two layers, each on the device of its name.
class Network {
 public:
  Network(std::string first, std::string second) : first_(std::move(first)), second_(std::move(second)) {
    {
      const auto scope = device(first_);
      w1_ = Variable(numbers({kIn, kHidden}, 1) * 0.3, {.name = "w1"});
      b1_ = Variable(zeros({kHidden}), {.name = "b1"});
    }
    const auto scope = device(second_);
    w2_ = Variable(numbers({kHidden, kOut}, 7) * 0.3, {.name = "w2"});
    b2_ = Variable(zeros({kOut}), {.name = "b2"});
  }

  Tensor loss(const Tensor& x, const Tensor& y) const {
    Tensor h;
    {
      const auto scope = device(first_);
      h = relu(matmul(x, w1_) + b1_);
    }
    const auto scope = device(second_);
    return reduce_mean(square(matmul(h, w2_) + b2_ - y));
  }

  std::vector<Variable> variables() const { return {w1_, b1_, w2_, b2_}; }

  std::vector<std::vector<float>> weights() const {
    std::vector<std::vector<float>> all;
    for (const Variable& variable : variables()) all.push_back(variable.value().to_vector<float>());
    return all;
  }

 private:
  std::string first_, second_;
  Variable w1_, b1_, w2_, b2_;
};

class ModelParallel : public testing::Test {
 protected:
  void SetUp() override {
    for (Device* each : first_devices(2)) each->reset_counters();
  }
  static Counted counted() {
    Counted result{device_by_name("/CPU:0").counters(), device_by_name("/CPU:1").counters()};
    for (Device* each : first_devices(2)) each->reset_counters();
    return result;
  }
  const Tensor x_ = numbers({kBatch, kIn}, 3), y_ = numbers({kBatch, kOut}, 11);
};

TEST_F(ModelParallel, ATapeTrainsToTheSameBits) {
  const auto train = [&](const char* second) {
    const Network network("/CPU:0", second);
    const auto optimizer = keras::optimizers::Adam({.learning_rate = 0.01});
    for (int step = 0; step < kSteps; ++step) {
      GradientTape tape;
      const Tensor loss = network.loss(x_, y_);
      optimizer.apply_gradients(tape.gradient(loss, network.variables()), network.variables());
    }
    // Adam's moments live beside their variables.
    for (const Variable& slot : optimizer.variables()) {
      if (slot.name().find("w2/") == std::string::npos) continue;
      EXPECT_EQ(&slot.value().device(), &device_by_name(second)) << slot.name();
    }
    return network.weights();
  };
  const auto one = train("/CPU:0");
  const Counted alone = counted();
  EXPECT_EQ(alone.second.kernels, 0);
  EXPECT_EQ(alone.first.bytes_copied_in, 0);
  const auto two = train("/CPU:1");
  const Counted split = counted();
  EXPECT_EQ(one, two);
  EXPECT_EQ(split.first.flops + split.second.flops, alone.first.flops);
  EXPECT_EQ(split.first.bytes_copied_in, split.second.bytes_copied_out);
  EXPECT_EQ(split.first.bytes_copied_out, split.second.bytes_copied_in);
  EXPECT_GE(split.first.bytes_copied_in, kSteps * kBatch * kHidden * 4);
}

TEST_F(ModelParallel, AFunctionTrainsToTheSameBitsAndCopiesWhatCrosses) {
  const auto train = [&](const char* second) {
    const Network network("/CPU:0", second);
    auto step = function([&](const Tensor& x, const Tensor& y) {
      GradientTape tape;
      const Tensor loss = network.loss(x, y);
      const TensorList gradients = tape.gradient(loss, network.variables());
      for (size_t i = 0; i < gradients.size(); ++i) network.variables()[i].assign_sub(gradients[i] * 0.1);
      return loss;
    });
    step(x_, y_);
    counted();
    Tensor loss;
    for (int i = 1; i < kSteps; ++i) loss = step(x_, y_);
    EXPECT_EQ(&loss.device(), &device_by_name(second));
    EXPECT_EQ(step.traces(), 1);
    return network.weights();
  };
  const auto one = train("/CPU:0");
  const Counted alone = counted();
  const auto two = train("/CPU:1");
  const Counted split = counted();
  EXPECT_EQ(one, two);

  constexpr int64_t kRuns = kSteps - 1, kActivations = kBatch * kHidden * 4, kTargets = kBatch * kOut * 4;
  EXPECT_EQ(split.second.bytes_copied_in, kRuns * (kActivations + kTargets));
  EXPECT_EQ(split.second.bytes_copied_out, kRuns * kActivations) << "the activations' gradient";
  EXPECT_EQ(split.first.bytes_copied_in, split.second.bytes_copied_out);
  EXPECT_EQ(split.first.bytes_copied_out, split.second.bytes_copied_in);
  EXPECT_EQ(alone.first.bytes_copied_in + alone.second.bytes_copied_in, 0);
  EXPECT_EQ(split.first.flops + split.second.flops, alone.first.flops);
  // Two products of the first layer, three of the second.
  EXPECT_GE(split.first.flops, kRuns * 2 * 2 * kBatch * kIn * kHidden);
  EXPECT_GE(split.second.flops, kRuns * 3 * 2 * kBatch * kHidden * kOut);
}

TEST_F(ModelParallel, FitTrainsToTheSameBits) {
  const auto train = [&](const char* second) {
    const keras::KerasTensor in = keras::Input({kIn});
    keras::KerasTensor h, out;
    {
      const auto scope = device("/CPU:0");
      h = keras::layers::Dense(
          kHidden,
          {.activation = "relu", .kernel_initializer = keras::initializers::GlorotUniform({.seed = 1})})(in);
    }
    {
      const auto scope = device(second);
      out = keras::layers::Dense(kOut,
                                 {.kernel_initializer = keras::initializers::GlorotUniform({.seed = 2})})(h);
    }
    const keras::Model model(in, out);
    model.compile(
        {.optimizer = keras::optimizers::Adam({.learning_rate = 0.01}), .loss = "mse", .metrics = {"mae"}});
    const Tensor x = numbers({50, kIn}, 3), y = numbers({50, kOut}, 11);
    model.fit({x, y}, {.batch_size = kBatch, .epochs = 3, .verbose = 0, .shuffle = false});
    for (const Variable& weight : model.weights())
      EXPECT_EQ(&weight.value().device(), &device_by_name(weight.shape()[-1] == kOut ? second : "/CPU:0"))
          << weight.name();
    std::vector<std::vector<float>> results;
    for (const Tensor& weight : model.get_weights()) results.push_back(weight.to_vector<float>());
    results.push_back(model.predict(x, {.verbose = 0}).to_vector<float>());
    return results;
  };
  const auto one = train("/CPU:0");
  counted();
  const auto two = train("/CPU:1");
  const Counted split = counted();
  EXPECT_EQ(one, two);
  EXPECT_GT(split.second.flops, 3 * 50 * 3 * 2 * kHidden * kOut);
  EXPECT_GE(split.second.bytes_copied_in, 3 * 50 * kHidden * 4);
  EXPECT_GE(split.second.bytes_copied_out, 3 * 50 * kHidden * 4);
}

TEST_F(ModelParallel, ReplicasRefuseLayersThatLiveOnADevice) {
  const keras::Layer layer = [] {
    const auto scope = device("/CPU:1");
    return keras::layers::Dense(kOut);
  }();
  EXPECT_EQ(layer.base()->device(), &device_by_name("/CPU:1"));
  auto step =
      function([&](const Tensor& x) { return layer(x); }, {.replicas = {.devices = first_devices(2)}});
  try {
    step(x_);
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("runs as replicas"));
    EXPECT_THAT(error.what(), HasSubstr("in layer \"dense"));
  }
}

}  // namespace
}  // namespace lockstep
