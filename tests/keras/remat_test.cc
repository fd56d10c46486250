// Models that recompute train to the bits of those that do not, and hold less while they do.
#include "lockstep/keras/remat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error_of_test.h"
#include "keras/models/remat_parts.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/model.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/keras/preprocessing.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<float>;

struct Network {
  std::function<Model()> make;
  std::function<Tensor(int64_t examples)> inputs;
};

Tensor images(const Shape& shape) {
  const random::Generator generator(3);
  return random::normal(shape, {.generator = &generator});
}
Tensor words(const Shape& shape, int64_t below) {
  return cast(minimum(abs(images(shape)) * 4.0, static_cast<double>(below - 1)), DType::int32);
}

// A residual block with all that a layer can bring along: statistics, dropout, a penalty of its results.
Model residual() {
  const KerasTensor x = Input({6});
  KerasTensor y = layers::Dense(16, {.activation = "gelu", .activity_regularizer = "l2"})(x);
  for (int i = 0; i < 3; ++i) {
    KerasTensor z = layers::BatchNormalization()(y);
    z = layers::Dense(16, {.activation = "relu"})(z);
    z = layers::Dropout(0.3, {.seed = 7})(z);
    y = layers::Add()({y, z});
  }
  return Model(x, layers::Dense(10)(y));
}

Model stacked() {
  Sequential model({layers::Dense(16, {.activation = "tanh", .input_shape = {6}})});
  for (int i = 0; i < 6; ++i) model.add(layers::Dense(16, {.activation = "swish"}));
  model.add(layers::Dropout(0.2, {.seed = 5}));
  model.add(layers::Dense(10));
  return model;
}

// Masks pass through what is recomputed.
Model of_words() {
  return Sequential({layers::Embedding(9, 8, {.mask_zero = true, .input_shape = {5}}),
                     layers::LSTM(6, {.return_sequences = true}), layers::Dense(6, {.activation = "relu"}),
                     layers::GRU(4), layers::Dense(10)});
}

const std::map<std::string, Network>& networks() {
  static const std::map<std::string, Network> all = {
      {"residual",
       {residual,
        [](int64_t n) {
          return images({n, 6});
        }}},
      {"stacked",
       {stacked,
        [](int64_t n) {
          return images({n, 6});
        }}},
      {"words",
       {of_words,
        [](int64_t n) {
          return words({n, 5}, 9);
        }}},
      {"lenet",
       {[] { return applications::lenet(); },
        [](int64_t n) {
          return images({n, 28, 28, 1});
        }}},
      {"resnet18",
       {[] {
          return applications::resnet18({.input_shape = {8, 8, 3}, .width = 4});
        },
        [](int64_t n) {
          return images({n, 8, 8, 3});
        }}},
      {"vit_tiny",
       {[] { return applications::vit_tiny({.dim = 16, .heads = 2, .mlp_dim = 32, .dropout = 0.1}); },
        [](int64_t n) {
          return images({n, 28, 28, 1});
        }}},
  };
  return all;
}

struct Trained {
  std::vector<Values> weights;
  std::vector<double> losses;
};

// The weights after some steps; none: without a scope.
Trained train(const Network& network, const std::optional<RematScopeOptions>& scope, bool eagerly = false) {
  set_random_seed(11);
  std::optional<RematScope> recomputes;
  if (scope) recomputes.emplace(*scope);
  Model model = network.make();
  recomputes.reset();  // layers keep to the scope in which they were made
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.05, .momentum = 0.5}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .run_eagerly = eagerly});
  const Tensor x = network.inputs(6), y = range(6, DType::int32);
  Trained trained;
  for (int step = 0; step < 3; ++step) trained.losses.push_back(model.train_on_batch(x, y)["loss"]);
  for (const Tensor& weight : model.get_weights()) trained.weights.push_back(weight.to_vector<float>());
  return trained;
}

class Remat : public ::testing::TestWithParam<std::string> {};

TEST_P(Remat, TrainsToTheSameBits) {
  const Network& network = networks().at(GetParam());
  const Trained plain = train(network, {});
  const std::vector<RematScopeOptions> scopes = {
      {.mode = "full"},
      {.mode = "activations"},
      {.mode = "larger_than", .output_size_threshold = 64},
      {.mode = "list_of_layers", .layer_names = {"dense", "conv2d"}},
      {.mode = {}}};
  for (const RematScopeOptions& scope : scopes) {
    SCOPED_TRACE(scope.mode.value_or("none"));
    const Trained recomputed = train(network, scope);
    EXPECT_EQ(recomputed.losses, plain.losses);
    EXPECT_EQ(recomputed.weights, plain.weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, Remat,
                         ::testing::Values("residual", "stacked", "words", "lenet", "resnet18", "vit_tiny"),
                         [](const auto& info) { return info.param; });

TEST(Remat, EagerStepsRecomputeToo) {
  const Network& network = networks().at("residual");
  const Trained plain = train(network, {}, true), recomputed = train(network, RematScopeOptions(), true);
  EXPECT_EQ(recomputed.losses, plain.losses);
  EXPECT_EQ(recomputed.weights, plain.weights);
}

// The most bytes that a step of a deep network holds beyond its weights and batch.
int64_t peak_of_a_step(const std::optional<RematScopeOptions>& scope) {
  const Network deep{[] {
                       Sequential model;
                       for (int i = 0; i < 32; ++i)
                         model.add(layers::Dense(32, {.activation = "tanh", .input_shape = {32}}));
                       return Model(model);
                     },
                     {}};
  std::optional<RematScope> recomputes;
  if (scope) recomputes.emplace(*scope);
  Model model = deep.make();
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.01}), .loss = losses::MeanSquaredError()});
  const Tensor x = images({2048, 32}), y = images({2048, 32});
  Device& device = x.device();
  const int64_t before = device.memory_info().current;
  device.reset_peak_memory();
  model.train_on_batch(x, y);
  return device.memory_info().peak - before;
}

TEST(Remat, ADeepModelHoldsLess) {
  const int64_t plain = peak_of_a_step({}), full = peak_of_a_step(RematScopeOptions());
  // 32 results of a layer are kept without it; with parts of some six layers, one result of each and those of
  // a part.
  EXPECT_LT(static_cast<double>(full), 0.6 * static_cast<double>(plain)) << plain;
}

TEST(Remat, TheInnermostScopeCounts) {
  const RematScope outer;
  const int64_t full = peak_of_a_step({});
  const int64_t none = peak_of_a_step(RematScopeOptions{.mode = {}});
  EXPECT_LT(full, none);
}

// What a layer adds to the loss has its gradient from inside of the function, too.
TEST(Remat, AFunctionOfLayers) {
  const Tensor x = images({5, 3});
  const Layer dense = layers::Dense(4, {.activation = "tanh", .activity_regularizer = "l2"});
  dense(x);
  const auto gradients = [&](bool recomputes) {
    GradientTape tape;
    const auto f = [&](const Tensor& v) { return dense(v * 2.0); };
    const Tensor y = recomputes ? remat(f)(x) : f(x);
    Tensor loss = reduce_sum(square(y));
    EXPECT_EQ(dense.losses().size(), 1u);
    for (const Tensor& penalty : dense.losses()) loss = loss + penalty;
    std::vector<Values> all;
    for (const Tensor& gradient : tape.gradient(loss, dense.trainable_weights()))
      all.push_back(gradient.to_vector<float>());
    return all;
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(Remat, MistakesAreToldWhereTheyAre) {
  const uint32_t line = __LINE__ + 1;
  const Error error = error_of([] { const RematScope scope({.mode = "all"}); });
  EXPECT_THAT(error.message(), HasSubstr("received \"all\""));
  EXPECT_EQ(error.where().line(), line);
}

// A chain of sixteen equal values is cut into parts of about their root.
TEST(RematParts, OfAChainAreAsLongAsTheyAreMany) {
  std::vector<std::vector<MadeValue>> made;
  for (size_t i = 0; i < 16; ++i) made.push_back({{.size = 100, .last_reader = i + 1}});
  const std::vector<size_t> ends = remat_parts(made);
  EXPECT_EQ(ends.back(), 16u);
  EXPECT_GE(ends.size(), 3u);
  EXPECT_LE(ends.size(), 6u);
}

// What is read far behind is no place to cut: a cut there would keep it and what passes beside it.
TEST(RematParts, AreCutWhereLittlePasses) {
  std::vector<std::vector<MadeValue>> made;
  for (size_t i = 0; i < 12; ++i) made.push_back({{.size = i % 4 == 3 ? 1 : 1000, .last_reader = i + 1}});
  for (const size_t end : remat_parts(made)) EXPECT_EQ(end % 4, 0u) << end;
}

}  // namespace
}  // namespace lockstep::keras
