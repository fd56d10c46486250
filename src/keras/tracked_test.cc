// Models and optimizers in checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/checkpoint_file.h"

namespace lockstep::keras {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using train::Checkpoint;

class Tracked : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_tracked_" + std::to_string(getpid());
    fs::remove_all(folder_);
    previous_ =
        set_log_sink([this](const LogMessage& message) { logged_ += std::string(message.text) + "\n"; });
  }
  void TearDown() override {
    set_log_sink(previous_);
    fs::remove_all(folder_);
  }
  std::string save(const Checkpoint& checkpoint) const {
    return checkpoint.save(folder_ + "/ckpt", {.asynchronous = false});
  }
  static std::vector<std::string> names_in(const std::string& path) {
    std::vector<std::string> names;
    const train::CheckpointFile file(path);
    for (const auto& entry : file.entries()) names.push_back(entry.name);
    return names;
  }

  std::string folder_;
  std::string logged_;
  LogSink previous_;
};

// Numbered names: none is given. A seed of its own, moving statistics, Adam.
Sequential small_model() {
  const Sequential model({layers::Dense(6, {.activation = "relu"}), layers::Dropout(0.4, {.seed = 3}),
                          layers::BatchNormalization(), layers::Dense(2, {.name = "head"})});
  model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}), .loss = "mse"});
  return model;
}

Batch batch(int number) {
  std::vector<float> x, y;
  for (int i = 0; i < 12; ++i) x.push_back(static_cast<float>((i * 7 + number * 5) % 11) / 11);
  for (int i = 0; i < 8; ++i) y.push_back(static_cast<float>((i * 3 + number) % 5) / 5);
  return {.x = {Tensor::from(x, {4, 3})}, .y = {Tensor::from(y, {4, 2})}, .sample_weight = {}};
}

std::vector<std::vector<float>> weights_of(const Model& model) {
  std::vector<std::vector<float>> all;
  for (const Tensor& weight : model.get_weights()) all.push_back(weight.to_vector<float>());
  return all;
}

TEST_F(Tracked, NamesFollowTheStructure) {
  const Sequential first = small_model(), second = small_model();  // dense_1 and so on
  for (const Model& model : {Model(first), Model(second)}) {
    model.train_on_batch(batch(0));
    const std::string path = save(Checkpoint({{"model", model}, {"optimizer", model.optimizer()}}));
    EXPECT_THAT(
        names_in(path),
        ElementsAre("model/dense/kernel", "model/dense/bias", "model/dropout/seed_generator_state",
                    "model/batch_normalization/gamma", "model/batch_normalization/beta",
                    "model/batch_normalization/moving_mean", "model/batch_normalization/moving_variance",
                    "model/head/kernel", "model/head/bias", "optimizer/iteration", "optimizer/learning_rate",
                    "optimizer/variables/0/momentum", "optimizer/variables/0/velocity",
                    "optimizer/variables/1/momentum", "optimizer/variables/1/velocity",
                    "optimizer/variables/2/momentum", "optimizer/variables/2/velocity",
                    "optimizer/variables/3/momentum", "optimizer/variables/3/velocity",
                    "optimizer/variables/4/momentum", "optimizer/variables/4/velocity",
                    "optimizer/variables/5/momentum", "optimizer/variables/5/velocity"));
  }
}

TEST_F(Tracked, ARunGoesOnWithTheSameBits) {
  const Sequential model = small_model();
  for (int i = 0; i < 5; ++i) model.train_on_batch(batch(i));
  const std::string path = save(Checkpoint({{"model", model}, {"optimizer", model.optimizer()}}));
  for (int i = 5; i < 9; ++i) model.train_on_batch(batch(i));

  // Restored before anything is built: weights and slots get their values when they are made.
  const Sequential early = small_model();
  const train::RestoreStatus status =
      Checkpoint({{"model", early}, {"optimizer", early.optimizer()}}).restore(path);
  EXPECT_THAT(status.missing(), IsEmpty());
  EXPECT_THAT(status.extra(), IsEmpty());
  EXPECT_FALSE(status.deferred().empty());
  for (int i = 5; i < 9; ++i) early.train_on_batch(batch(i));
  status.assert_consumed();
  EXPECT_EQ(weights_of(early), weights_of(model));

  // And after.
  const Sequential late = small_model();
  late.train_on_batch(batch(0));
  Checkpoint({{"model", late}, {"optimizer", late.optimizer()}}).restore(path).assert_consumed();
  for (int i = 5; i < 9; ++i) late.train_on_batch(batch(i));
  EXPECT_EQ(weights_of(late), weights_of(model));
  EXPECT_EQ(logged_, "");
}

TEST_F(Tracked, TheFirstCallComputesWithRestoredWeights) {
  const Sequential model = small_model();
  const Tensor x = batch(0).x[0];
  model(x);
  const std::string path = save(Checkpoint({{"model", model}}));
  const Sequential other = small_model();
  Checkpoint({{"model", other}}).restore(path);
  EXPECT_EQ(other(x).to_vector<float>(), model(x).to_vector<float>());
  EXPECT_EQ(logged_, "");
}

// A model that makes a layer only when it is built, and lists a weight of a layer inside as its own.
class Late final : public ModelBase {
 public:
  Late() : ModelBase("Late") { first_ = track(layers::Dense(4)); }
  void build(const Shape&) override { second_ = track(layers::Dense(2)); }
  Tensor call(const Tensor& x, const CallContext&) override { return second_(first_(x)); }

 private:
  Layer first_, second_;
};

TEST_F(Tracked, LayersThatAreMadeLateAreFound) {
  const Model model = make_model<Late>();
  const Tensor x = batch(0).x[0];
  const Tensor expected = model(x);
  const std::string path = save(Checkpoint({{"model", model}}));
  EXPECT_THAT(names_in(path), ElementsAre("model/dense/kernel", "model/dense/bias", "model/dense_1/kernel",
                                          "model/dense_1/bias"));
  const Model other = make_model<Late>();
  const train::RestoreStatus status = Checkpoint({{"model", other}}).restore(path);
  EXPECT_EQ(other(x).to_vector<float>(), expected.to_vector<float>());
  status.assert_consumed();
}

TEST_F(Tracked, RecurrentAndNestedLayersNameEveryWeightOnce) {
  const auto make = [] {
    const Sequential inner({layers::Dense(3), layers::Dense(3)});
    return Sequential({inner, layers::Bidirectional(layers::LSTM(2)), layers::Dense(1)});
  };
  const Tensor x = Tensor::full(DType::float32, {2, 4, 3}, 0.5);
  const Sequential model = make();
  const Tensor expected = model(x);
  const std::string path = save(Checkpoint({{"model", model}}));
  EXPECT_EQ(names_in(path).size(), model.weights().size());
  EXPECT_THAT(names_in(path),
              AllOf(Contains("model/sequential/dense_1/kernel"), Contains("model/dense/kernel")));
  const Sequential other = make();
  const train::RestoreStatus status = Checkpoint({{"model", other}}).restore(path);
  EXPECT_EQ(other(x).to_vector<float>(), expected.to_vector<float>());
  status.assert_consumed();
}

TEST_F(Tracked, TheLossScaleIsPartOfTheOptimizer) {
  const auto make = [] {
    return optimizers::LossScaleOptimizer(optimizers::SGD({.momentum = 0.9}),
                                          {.initial_scale = 8, .dynamic_growth_steps = 2});
  };
  const optimizers::Optimizer optimizer = make();
  const Variable weight(Tensor::full(DType::float32, {2}, 1), {.name = "w"});
  for (int i = 0; i < 3; ++i)
    optimizer.apply_gradients(TensorList{Tensor::full(DType::float32, {2}, 1)}, {weight});
  const std::string path = save(Checkpoint({{"optimizer", optimizer}}));
  EXPECT_THAT(names_in(path), AllOf(Contains("optimizer/dynamic_scale"), Contains("optimizer/step_counter"),
                                    Contains("optimizer/variables/0/momentum")));
  const optimizers::Optimizer other = make();
  const train::RestoreStatus status = Checkpoint({{"optimizer", other}}).restore(path);
  EXPECT_EQ(other.iterations().value().item<int64_t>(), 3);
  other.build({weight});
  status.assert_consumed();
  const auto state = [](const optimizers::Optimizer& of) {
    std::string text;
    for (const Variable& variable : of.variables()) text += variable.value().to_string() + "\n";
    return text;
  };
  EXPECT_EQ(state(other), state(optimizer));
}

TEST_F(Tracked, AModelWithoutWeightsIsNotSaved) {
  const Sequential model = small_model();
  try {
    Checkpoint({{"net", model}}).save(folder_ + "/ckpt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), AllOf(HasSubstr("\"net\""), HasSubstr("build()")));
  }
}

}  // namespace
}  // namespace lockstep::keras
