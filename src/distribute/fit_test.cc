// Training under strategies: on any number of replicas what one device makes of the whole batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>

#include "base/test_folder_test.h"
#include "distribute/eight_cpus_test.h"
#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/keras/verify_invariance.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/tf/nn.h"
#include "lockstep/train/checkpoint.h"

namespace lockstep::distribute {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::names;
namespace layers = keras::layers;

// --- models ------------------------------------------------------------------------------------------------

keras::Model mlp() {
  return keras::Sequential(
      {layers::Dense(16, {.activation = "relu", .input_shape = {12}}), layers::Dense(4)});
}

keras::Model mlp_with_dropout() {
  return keras::Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {12}}),
                            layers::Dropout(0.3), layers::Dense(4)});
}

keras::Model convnet() {
  return keras::Sequential({layers::Reshape({4, 3, 1}, {.input_shape = {12}}),
                            layers::Conv2D(4, {2, 2}, {.use_bias = false}),
                            layers::BatchNormalization({.synchronized = true}), layers::ReLU(),
                            layers::Flatten(), layers::Dense(4)});
}

keras::Model transformer() {
  const keras::KerasTensor input = keras::Input({12});
  keras::KerasTensor x = layers::Reshape({3, 4})(input);
  const keras::KerasTensor attended = layers::MultiHeadAttention(2, 2)({x, x});
  x = layers::LayerNormalization()(layers::Add()({x, attended}));
  x = layers::Add()({x, layers::Dense(4)(layers::Dense(8, {.activation = "gelu"})(x))});
  return keras::Model(input, layers::Dense(4)(layers::Flatten()(x)));
}

// Adds a mean over its examples, and what does not depend on them.
class Added final : public keras::LayerBase {
 public:
  explicit Added(keras::LayerBaseOptions options = {}) : LayerBase("Added", std::move(options)) {}
  void build(const Shape& input) override {
    scale_ = add_weight("scale", {input[-1]}, {.initializer = "ones"});
  }
  Tensor call(const Tensor& x, const keras::CallContext&) override {
    const Tensor scaled = x * scale_;
    add_loss(3.0 * reduce_mean(square(scaled)));
    add_loss(reduce_sum(square(scale_ - 2.0)));
    return scaled;
  }

 private:
  Variable scale_;
};

keras::Model mlp_with_losses_of_layers() {
  return keras::Sequential({keras::make_layer<Added>(keras::LayerBaseOptions{.input_shape = {12}}),
                            layers::Dense(16, {.activation = "relu",
                                               .kernel_regularizer = keras::regularizers::L2({0.1}),
                                               .activity_regularizer = keras::regularizers::L1({0.2})}),
                            layers::Dense(4)});
}

// --- runs --------------------------------------------------------------------------------------------------

struct Examples {
  Tensor x, y;
};

Examples examples(int64_t count) {
  const random::Generator generator(11);
  return {random::normal({count, 12}, {.generator = &generator}),
          random::uniform({count}, {.maxval = 4, .dtype = DType::int64, .generator = &generator})};
}

struct Training {
  keras::Model (*make)() = mlp;
  std::function<keras::optimizers::Optimizer()> optimizer = [] {
    return keras::optimizers::Optimizer("adam");
  };
  int64_t batch = 32;
  int64_t examples = 320;
  int epochs = 5;
};

std::vector<std::vector<float>> weights_of(const keras::Model& model) {
  std::vector<std::vector<float>> all;
  for (const Variable& weight : model.weights())
    if (weight.dtype() == DType::float32) all.push_back(weight.value().to_vector<float>());
  return all;
}

std::vector<std::vector<float>> trained(const Training& training, const Strategy& strategy) {
  random::set_seed(5);
  keras::Model model;
  {
    const auto scope = strategy.scope();
    model = training.make();
    model.compile({.optimizer = training.optimizer(),
                   .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
  }
  const Examples data = examples(training.examples);
  model.fit({data.x, data.y}, {.batch_size = training.batch, .epochs = training.epochs, .verbose = 0});
  return weights_of(model);
}

void expect_near(const std::vector<std::vector<float>>& actual,
                 const std::vector<std::vector<float>>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t w = 0; w < expected.size(); ++w) {
    float largest = 0, difference = 0;
    for (size_t i = 0; i < expected[w].size(); ++i) {
      largest = std::max(largest, std::abs(expected[w][i]));
      difference = std::max(difference, std::abs(expected[w][i] - actual[w][i]));
    }
    // Small tensors are measured by how far Adam can have moved them.
    EXPECT_LE(difference, 2e-5F * std::max(largest, 0.2F)) << "weight " << w;
  }
}

Strategy strategy_of(Strategy::Kind kind, int replicas, const StrategyOptions& options = {}) {
  switch (kind) {
    case Strategy::Kind::one_device: return OneDeviceStrategy("/CPU:1", options);
    case Strategy::Kind::mirrored: return MirroredStrategy(names(replicas), options);
    case Strategy::Kind::central_storage: return CentralStorageStrategy(names(replicas), options);
    case Strategy::Kind::none: break;
  }
  return {};
}

TEST(FitUnderStrategies, EqualsOneDeviceOnTheWholeBatch) {
  for (const int64_t batch : {32, 33, 7, 1}) {
    const Training training{.batch = batch, .examples = std::min<int64_t>(320, batch * 10 + batch / 2)};
    const auto expected = trained(training, {});
    for (const auto kind :
         {Strategy::Kind::one_device, Strategy::Kind::mirrored, Strategy::Kind::central_storage})
      for (const int replicas : {1, 2, 3, 4, 8}) {
        if (kind == Strategy::Kind::one_device && replicas > 1) continue;
        const Strategy strategy = strategy_of(kind, replicas);
        SCOPED_TRACE(strategy.description() + ", batch " + std::to_string(batch));
        expect_near(trained(training, strategy), expected);
      }
  }
}

TEST(FitUnderStrategies, LossesOfLayersCountOnce) {
  for (const int64_t batch : {32, 7}) {
    const Training training{.make = mlp_with_losses_of_layers, .batch = batch, .examples = batch * 5 + 3};
    const auto expected = trained(training, {});
    for (const int replicas : {1, 2, 3, 8})
      for (const bool reproducible : {false, true}) {
        SCOPED_TRACE(std::to_string(replicas) + " replicas, batch " + std::to_string(batch));
        expect_near(trained(training, MirroredStrategy(names(replicas), {.reproducible = reproducible})),
                    expected);
      }
  }
}

TEST(FitUnderStrategies, PenaltiesByHandCountOnce) {
  const MirroredStrategy strategy(names(3));
  keras::Model model;
  {
    const auto scope = strategy.scope();
    model = mlp_with_losses_of_layers();
  }
  const Tensor x = examples(10).x;
  const auto penalties = [&](const Tensor& part) {
    model(part);
    Tensor sum = nn::scale_regularization_loss(Tensor::scalar(5.0F));
    for (const Tensor& loss : model.losses()) sum = sum + loss;
    return sum;
  };
  const float alone = penalties(x).item<float>();
  const Distributed parts = strategy.run(penalties, strategy.distribute(x));
  EXPECT_NEAR(strategy.reduce(ReduceOp::sum, parts).item<float>(), alone, 1e-5 * alone);
}

// A program for any number of devices runs on one, where batches may be tensors like others.
TEST(FitUnderStrategies, OneReplicaHasTheWholeBatch) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 6}, {4, 1});
  for (const Strategy& strategy :
       std::vector<Strategy>{MirroredStrategy(names(1)), OneDeviceStrategy("/CPU:0")}) {
    const keras::Metric mean = [&] {
      const auto scope = strategy.scope();
      return keras::metrics::Mean();
    }();
    const auto step = [&](const Tensor& part) {
      mean.update_state(part);
      return global_mean(part) + keras::losses::MeanSquaredError()(part, part + 2.0);
    };
    EXPECT_EQ(strategy.run(step, x).local_results()[0].item<float>(), 3 + 4);
    EXPECT_EQ(mean.result().item<float>(), 3);
  }
}

TEST(FitUnderStrategies, EveryOptimizerEqualsOneDevice) {
  for (const char* name :
       {"sgd", "adam", "adamw", "adamax", "nadam", "rmsprop", "adagrad", "adadelta", "ftrl", "lion"}) {
    SCOPED_TRACE(name);
    const Training training{.optimizer = [name] { return keras::optimizers::Optimizer(name); }, .batch = 33};
    expect_near(trained(training, MirroredStrategy(names(3))), trained(training, {}));
  }
}

TEST(FitUnderStrategies, ClippingScalingAndAccumulationActOnTheSum) {
  using keras::optimizers::Adam;
  using keras::optimizers::SGD;
  const std::pair<const char*, std::function<keras::optimizers::Optimizer()>> cases[] = {
      {"clipnorm", [] { return SGD({.learning_rate = 0.1, .clipnorm = 0.05}); }},
      {"clipvalue", [] { return SGD({.learning_rate = 0.1, .clipvalue = 0.01}); }},
      {"global_clipnorm", [] { return SGD({.learning_rate = 0.1, .global_clipnorm = 0.05}); }},
      {"weight_decay", [] { return SGD({.learning_rate = 0.1, .weight_decay = 0.01}); }},
      {"use_ema", [] { return SGD({.learning_rate = 0.1, .use_ema = true}); }},
      {"accumulation", [] { return SGD({.learning_rate = 0.1, .gradient_accumulation_steps = 3}); }},
      {"loss_scale", [] { return keras::optimizers::LossScaleOptimizer(Adam()); }},
      {"loss_scale_accumulation",
       [] { return keras::optimizers::LossScaleOptimizer(Adam({.gradient_accumulation_steps = 2})); }},
  };
  for (const auto& [name, optimizer] : cases) {
    SCOPED_TRACE(name);
    const Training training{.optimizer = optimizer, .batch = 33};
    const auto expected = trained(training, {});
    for (const int replicas : {2, 4})
      expect_near(trained(training, MirroredStrategy(names(replicas))), expected);
  }
}

TEST(FitUnderStrategies, AccumulatedGradientsAreCommunicatedOnceAnUpdate) {
  const MirroredStrategy strategy(names(2));
  keras::Model model;
  {
    const auto scope = strategy.scope();
    model = mlp();
    model.compile({.optimizer = keras::optimizers::Adam({.gradient_accumulation_steps = 4}),
                   .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  }
  const Examples data = examples(32);
  model.train_on_batch({{data.x}, {data.y}, {}});
  model.train_on_batch({{data.x}, {data.y}, {}});
  std::vector<int64_t> received;
  for (int step = 2; step < 10; ++step) {
    Device& second = device_by_name("/CPU:1");
    const int64_t before = second.counters().bytes_copied_in;
    model.train_on_batch({{data.x}, {data.y}, {}});
    received.push_back(second.counters().bytes_copied_in - before);
  }
  const int64_t gradients = (12 * 16 + 16 + 16 * 4 + 4) * static_cast<int64_t>(sizeof(float));
  const int64_t others = received[0];
  EXPECT_THAT(received, ::testing::ElementsAre(others, others + gradients, others, others, others,
                                               others + gradients, others, others));
}

TEST(FitUnderStrategies, AnAccumulationIsTheSameOnAnyNumberOfDevices) {
  const Training training{
      .optimizer = [] { return keras::optimizers::Adam({.gradient_accumulation_steps = 3}); }, .batch = 29};
  const StrategyOptions reproducible{.reproducible = true};
  const auto expected = trained(training, OneDeviceStrategy("/CPU:0", reproducible));
  for (const int replicas : {2, 3, 8})
    EXPECT_EQ(trained(training, MirroredStrategy(names(replicas), reproducible)), expected);
}

// The replicas' parts of the accumulated gradients go through a checkpoint as one sum, for any number of
// devices.
TEST(FitUnderStrategies, AnAccumulationGoesOnFromACheckpoint) {
  const TestFolder folder("accumulation");
  const std::string prefix = folder / "run";
  const Examples data = examples(29);
  const auto trained = [&](int devices, const std::string& restored, int before, int after) {
    random::set_seed(5);
    const MirroredStrategy strategy(names(devices), {.reproducible = true});
    const auto scope = strategy.scope();
    const keras::Model model = mlp();
    model.compile({.optimizer = keras::optimizers::Adam({.gradient_accumulation_steps = 3}),
                   .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
    model.optimizer().build(model.trainable_weights());
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) model.train_on_batch({{data.x}, {data.y}, {}});
    };
    const train::Checkpoint checkpoint({{"model", model}, {"optimizer", model.optimizer()}});
    std::string saved = restored;
    if (restored.empty()) {
      steps(before);
      saved = checkpoint.save(prefix);
      checkpoint.wait();
    } else {
      checkpoint.restore(restored).assert_consumed();
    }
    steps(after);
    return std::pair(saved, weights_of(model));
  };
  const auto [saved, expected] = trained(2, "", 5, 5);
  EXPECT_EQ(trained(2, saved, 0, 5).second, expected);
  EXPECT_EQ(trained(3, saved, 0, 5).second, expected);
}

TEST(FitUnderStrategies, TheClockKnowsWhereNearlyAllTheTimeWent) {
  const MirroredStrategy strategy(names(2));
  keras::Model model;
  {
    const auto scope = strategy.scope();
    model = keras::Sequential({layers::Dense(512, {.activation = "relu", .input_shape = {12}}),
                               layers::Dense(512), layers::Dense(4)});
    model.compile(
        {.optimizer = "adam", .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  }
  const Examples data = examples(128 * 40);
  const keras::History history = model.fit({data.x, data.y}, {.batch_size = 128, .verbose = 0});
  ASSERT_EQ(history.time.replicas.size(), 2);
  for (const observe::ReplicaSummary& replica : history.time.replicas) {
    EXPECT_EQ(replica.wall.count, 40);
    // Medians: a thread may lose its processor anywhere.
    EXPECT_LT(replica[observe::Category::unattributed].median, 0.02 * replica.wall.median);
    EXPECT_GT(replica[observe::Category::compute].median, 0);
  }
}

TEST(FitUnderStrategies, SynchronisedBatchNormEqualsOneDevice) {
  const Training training{.make = convnet, .batch = 33};
  const auto expected = trained(training, {});
  for (const int replicas : {2, 3})
    expect_near(trained(training, MirroredStrategy(names(replicas))), expected);
}

class Reproducible : public ::testing::TestWithParam<std::tuple<keras::Model (*)(), int64_t>> {};

TEST_P(Reproducible, TheSameBitsOnAnyNumberOfDevices) {
  const auto [make, batch] = GetParam();
  const Training training{.make = make, .batch = batch, .examples = batch * 10 + batch / 3, .epochs = 20};
  const StrategyOptions reproducible{.reproducible = true};
  const auto expected = trained(training, OneDeviceStrategy("/CPU:0", reproducible));
  for (const int replicas : {2, 3, 4, 8}) {
    SCOPED_TRACE(replicas);
    EXPECT_EQ(trained(training, MirroredStrategy(names(replicas), reproducible)), expected);
  }
  EXPECT_EQ(trained(training, CentralStorageStrategy(names(3), reproducible)), expected);
}
INSTANTIATE_TEST_SUITE_P(Models, Reproducible,
                         ::testing::Combine(::testing::Values(mlp_with_dropout, convnet, transformer),
                                            ::testing::Values(32, 29)),
                         [](const auto& info) {
                           const auto make = std::get<0>(info.param);
                           return std::string(make == transformer ? "transformer"
                                              : make == convnet   ? "convnet"
                                                                  : "mlp_with_dropout") +
                                  "_batch_" + std::to_string(std::get<1>(info.param));
                         });

TEST(FitUnderStrategies, EvaluateAndPredictAgreeWithOneDevice) {
  const Examples data = examples(50);
  std::vector<Tensor> predictions;
  std::vector<double> losses;
  for (const int replicas : {1, 3}) {
    random::set_seed(5);
    const Strategy strategy = MirroredStrategy(names(replicas));
    const auto scope = strategy.scope();
    keras::Model model = mlp();
    model.compile({.loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
    predictions.push_back(model.predict(data.x, {.batch_size = 16, .verbose = 0}));
    losses.push_back(model.evaluate({data.x, data.y}, {.batch_size = 16, .verbose = 0}).find("loss").value());
  }
  EXPECT_EQ(predictions[0].shape(), (Shape{50, 4}));
  expect_near({predictions[1].to_vector<float>()}, {predictions[0].to_vector<float>()});
  EXPECT_NEAR(losses[0], losses[1], 1e-5);
}

TEST(FitUnderStrategies, ALoopOfOnesOwnEqualsFit) {
  const Examples data = examples(33);
  const auto expected = [&] {
    random::set_seed(5);
    keras::Model model = mlp();
    model.compile({.optimizer = keras::optimizers::SGD(),
                   .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
    for (int step = 0; step < 5; ++step)
      model.fit({data.x, data.y}, {.batch_size = 33, .verbose = 0, .shuffle = false});
    return weights_of(model);
  }();
  random::set_seed(5);
  const MirroredStrategy strategy(names(4));
  const auto scope = strategy.scope();
  const keras::Model model = mlp();
  const auto optimizer = keras::optimizers::SGD();
  const keras::Loss loss_of = keras::losses::SparseCategoricalCrossentropy({.from_logits = true});
  const auto dataset =
      strategy.distribute_dataset(data::Dataset::from_tensor_slices({data.x, data.y}).batch(33).repeat(5));
  int steps = 0;
  for (const DistributedElement& batch : dataset) {
    const Distributed loss = strategy.run(
        [&](const Tensor& x, const Tensor& y) {
          GradientTape tape;
          const Tensor own = loss_of(y, model(x, {.training = true}));
          const std::vector<Variable> weights = model.trainable_weights();
          optimizer.apply_gradients(tape.gradient(own, weights), weights);
          return own;
        },
        batch);
    EXPECT_GT(strategy.reduce(ReduceOp::sum, loss).item<float>(), 0);
    ++steps;
  }
  EXPECT_EQ(steps, 5);
  expect_near(weights_of(model), expected);
}

TEST(FitUnderStrategies, TheDevicesShareTheWork) {
  const MirroredStrategy strategy(names(2));
  for (Device* device : strategy.devices()) device->reset_counters();
  trained({}, strategy);
  const DeviceCounters first = strategy.devices()[0]->counters(), second = strategy.devices()[1]->counters();
  EXPECT_GT(first.flops, 0);
  EXPECT_NEAR(static_cast<double>(first.flops), static_cast<double>(second.flops),
              0.1 * static_cast<double>(first.flops));
  EXPECT_GT(second.bytes_copied_in, 0);
}

TEST(FitUnderStrategies, AForgottenScopeIsAnErrorAndAdoptMendsIt) {
  const MirroredStrategy strategy(names(2));
  const Examples data = examples(8);
  keras::Model model = mlp();
  model.compile({.loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const std::string error = error_of([&] { model.fit({data.x, data.y}, {.verbose = 0}); }).message();
  EXPECT_THAT(error, HasSubstr("MirroredStrategy on /CPU:0, /CPU:1"));
  EXPECT_THAT(error, HasSubstr("scope"));
  strategy.adopt(model);
  strategy.devices()[1]->reset_counters();
  model.fit({data.x, data.y}, {.verbose = 0});
  EXPECT_GT(strategy.devices()[1]->counters().flops, 0);
}

TEST(FitUnderStrategies, EvaluateAndPredictRefuseAForgottenScopeAsFitDoes) {
  const Examples data = examples(8);
  const keras::Model model = mlp();
  model.compile({.loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const MirroredStrategy strategy(names(2));
  const auto evaluate = [&] { model.evaluate({data.x, data.y}, {.verbose = 0}); };
  const auto predict = [&] { model.predict(data.x, {.verbose = 0}); };
  const auto train = [&] { model.train_on_batch({{data.x}, {data.y}, {}}); };
  EXPECT_THAT(error_of(evaluate).message(), HasSubstr("evaluate: would use one device"));
  EXPECT_THAT(error_of(predict).message(), HasSubstr("predict: would use one device"));
  EXPECT_THAT(error_of(train).message(), HasSubstr("train_on_batch: would use one device"));
  const auto test = [&] { model.test_on_batch({{data.x}, {data.y}, {}}); };
  const auto predict_one = [&] { model.predict_on_batch(TensorList{data.x}); };
  EXPECT_THAT(error_of(test).message(), HasSubstr("test_on_batch: would use one device"));
  EXPECT_THAT(error_of(predict_one).message(), HasSubstr("predict_on_batch: would use one device"));
  strategy.adopt(model);
  strategy.devices()[1]->reset_counters();
  predict();
  EXPECT_GT(strategy.devices()[1]->counters().flops, 0);
  evaluate();
  train();
  test();
  predict_one();
}

TEST(FitUnderStrategies, AModelAdoptedAfterAFitUsesAllDevicesFromThenOn) {
  const Examples data = examples(32);
  const keras::Model model = mlp(), other = mlp();
  other.set_weights(model.get_weights());
  for (const keras::Model& m : {model, other})
    m.compile({.optimizer = keras::optimizers::SGD(),
               .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const auto fit = [&](const keras::Model& m) {
    return m.fit({data.x, data.y}, {.batch_size = 16, .verbose = 0, .shuffle = false});
  };
  EXPECT_EQ(fit(model).time.replicas.size(), 1U);
  fit(other);
  {
    const MirroredStrategy strategy(names(2));
    strategy.adopt(model);
    strategy.devices()[1]->reset_counters();
    const observe::RunSummary time = fit(model).time;
    EXPECT_GT(strategy.devices()[1]->counters().flops, 0);
    ASSERT_EQ(time.replicas.size(), 2U);
    EXPECT_EQ(time.replicas[1].counts[observe::Counter::examples], 16);
  }
  fit(other);
  expect_near(weights_of(model), weights_of(other));
  EXPECT_THAT(error_of([&] { fit(model); }).message(),
              ::testing::AllOf(HasSubstr("MirroredStrategy on /CPU:0, /CPU:1"), HasSubstr("is gone")));
}

TEST(FitUnderStrategies, AModelKeepsItsStrategyWhileItIsFitted) {
  const Examples data = examples(32);
  const keras::Model model = mlp();
  model.compile({.loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  std::optional<Strategy> late;
  const auto adopt = [&](int64_t batch, const keras::Logs&) {
    if (batch != 1) return;
    late = MirroredStrategy(names(2));
    late->adopt(model);
  };
  const auto fit = [&] {
    model.fit({data.x, data.y},
              {.batch_size = 8,
               .verbose = 0,
               .callbacks = {keras::callbacks::LambdaCallback({.on_train_batch_end = adopt})}});
  };
  EXPECT_THAT(error_of(fit).message(), HasSubstr("was given to another strategy while it is being fitted"));
  EXPECT_EQ(model.fit({data.x, data.y}, {.verbose = 0}).time.replicas.size(), 2U);
}

TEST(FitUnderStrategies, PrintsItsReportOnceUnlessToldNotTo) {
  const Examples data = examples(64);
  const auto printed = [&](bool report, int verbose) {
    const MirroredStrategy strategy(names(2), {.report = report});
    const auto scope = strategy.scope();
    const keras::Model model = mlp();
    model.compile({.loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
    ::testing::internal::CaptureStdout();
    const keras::History history =
        model.fit({data.x, data.y}, {.batch_size = 4, .verbose = verbose, .callbacks = {}});
    EXPECT_EQ(history.time.replicas.size(), 2U) << "the report is returned in any case";
    const std::string text = ::testing::internal::GetCapturedStdout();
    const std::string first_line = "16 steps on 2 replicas";
    const size_t at = text.find(first_line);
    if (at == std::string::npos) return 0;
    return text.find(first_line, at + 1) == std::string::npos ? 1 : 2;
  };
  EXPECT_EQ(printed(true, 2), 1);
  EXPECT_EQ(printed(false, 2), 0);
  EXPECT_EQ(printed(true, 0), 0);
}

// --- verify_invariance -------------------------------------------------------------------------------------

keras::Model compiled(keras::Model model) {
  model.compile({.optimizer = "adam",
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  return model;
}

TEST(VerifyInvariance, HoldsForAModelOfLayersAndLeavesItAsItWas) {
  random::set_seed(3);
  const keras::Model model = compiled(mlp_with_dropout());
  const auto before = weights_of(model);
  const Examples data = examples(70);
  const Invariance found = verify_invariance(model, {data.x, data.y}, {.batch_size = 29, .steps = 3});
  EXPECT_TRUE(found.holds) << to_text(found);
  EXPECT_EQ(found.steps, 3);
  EXPECT_EQ(found.replicas, (std::vector<int>{1, 2, 3, 4, 8}));
  EXPECT_EQ(weights_of(model), before);
  EXPECT_EQ(model.base()->owner(), nullptr);
}

TEST(VerifyInvariance, NamesTheWeightAndTheStepThatDiffer) {
  const auto calls = std::make_shared<int>(0);
  const keras::Model model = compiled(
      keras::Sequential({layers::Dense(4, {.input_shape = {12}}), layers::Lambda([calls](const Tensor& x) {
                           // State that is in no variable: every trace sees another one.
                           return x * (1.0 + 0.01 * ++*calls);
                         })}));
  const Examples data = examples(64);
  const Invariance found = verify_invariance(model, {data.x, data.y}, {.steps = 2, .replicas = {1, 2}});
  EXPECT_FALSE(found.holds);
  EXPECT_EQ(found.step, 0);
  EXPECT_EQ(found.differing_replicas, 2);
  EXPECT_THAT(found.weight, HasSubstr("kernel"));
  EXPECT_THAT(to_text(found), HasSubstr("differs first, after step 0"));
}

TEST(VerifyInvariance, NeedsSeveralDevicesAndACompiledModel) {
  const Examples data = examples(8);
  EXPECT_THAT(error_of([&] {
                verify_invariance(mlp(), {data.x, data.y});
              }).message(),
              HasSubstr("compile()"));
  EXPECT_THAT(error_of([&] {
                verify_invariance(compiled(mlp()), {data.x, data.y}, {.replicas = {1}});
              }).message(),
              HasSubstr("set_logical_cpus"));
}

}  // namespace
}  // namespace lockstep::distribute
