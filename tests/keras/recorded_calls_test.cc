// What Keras (record_keras_calls.py) and Keras 2 (record_keras2_file.py) wrote of calls, of frozen layers and of
// what models were compiled with is read as it was meant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error_of_test.h"
#include "lockstep/base/log.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/keras/save_model.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {
namespace {

using ::testing::HasSubstr;

const std::string kData = LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/";

struct Recorded {
  explicit Recorded(const std::string& name) : file(kData + name + ".safetensors") {}
  TensorList all(const std::string& kind) const {
    TensorList list;
    for (int i = 0; file.find(kind + "/" + std::to_string(i)); ++i)
      list.push_back(file.read(kind + "/" + std::to_string(i)));
    return list;
  }
  train::SafetensorsFile file;
};

void expect_close(const TensorList& actual, const TensorList& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t k = 0; k < actual.size(); ++k) {
    ASSERT_EQ(actual[k].shape(), expected[k].shape());
    const std::vector<float> a = actual[k].to_vector<float>(), e = expected[k].to_vector<float>();
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], e[i], 2e-5 * std::max(1.0F, std::abs(e[i]))) << "of result " << k << " at " << i;
  }
}

class RecordedCalls : public ::testing::Test {
 protected:
  RecordedCalls() { std::filesystem::create_directories(folder_); }
  ~RecordedCalls() override { std::filesystem::remove_all(folder_); }
  std::string scratch(const std::string& name) const { return folder_ + "/" + name; }

  // The model as it was read, and as it is written and read again.
  void expect_same(const std::string& name, const std::string& ending) const {
    const Recorded record(name);
    const Model model = models::load_model(kData + name + ending);
    expect_close(model.predict_on_batch(record.all("x")), record.all("prediction"));
    for (const char* other : {"again.keras", "again.h5"}) {
      model.save(scratch(other));
      expect_close(models::load_model(scratch(other)).predict_on_batch(record.all("x")),
                   record.all("prediction"));
    }
    const Model clone = models::clone_model(model);
    clone.load_weights(kData + name + ending);
    expect_close(clone.predict_on_batch(record.all("x")), record.all("prediction"));
  }

  void expect_goes_on(const std::string& name) const {
    const Recorded record(name);
    const Model model = models::load_model(kData + name + ".h5");
    expect_close(model.predict_on_batch(record.all("x")), record.all("prediction"));
    model.train_on_batch(Batch{record.all("x"), record.all("y"), {}});
    expect_close(model.predict_on_batch(record.all("x")), record.all("prediction_after"));
  }

 private:
  std::string folder_ = ::testing::TempDir() + "recorded_calls_" + std::to_string(getpid());
};

TEST_F(RecordedCalls, PredictWhatKerasPredicts) { expect_same("calls/calls", ".keras"); }

TEST_F(RecordedCalls, DefaultsOfCallAreNothingThatSomebodySaid) {
  const Recorded record("calls/calls");
  const Model model = models::load_model(kData + "calls/calls.keras");
  EXPECT_THAT(model.to_json(), ::testing::Not(HasSubstr("training")));
  // Of the flipped image, the dropped vector, attention and the state of an LSTM with dropout.
  const TensorList at_rest = model.predict_on_batch(record.all("x"));
  bool flips = false;
  for (int i = 0; i < 20 && !flips; ++i)
    flips = model.apply(record.all("x"), {.training = true})[0].to_vector<float>() !=
            at_rest[0].to_vector<float>();
  EXPECT_TRUE(flips);
  const TensorList training = model.apply(record.all("x"), {.training = true});
  const std::vector<float> dropped = training[1].to_vector<float>();
  EXPECT_GT(std::count(dropped.begin(), dropped.end(), 0.0F), 0);
  EXPECT_EQ(training[2].to_vector<float>(), at_rest[2].to_vector<float>());
  EXPECT_NE(training[3].to_vector<float>(), at_rest[3].to_vector<float>());
}

TEST_F(RecordedCalls, TrainingThatWasSaidIsKept) {
  const KerasTensor x = Input({4});
  const Layer flip = layers::RandomFlip();
  const KerasTensor image = Input({2, 2, 1});
  const Model model(
      {x, image},
      {layers::Dropout(0.5)(x, {.training = true}), layers::GaussianNoise(0.5)(x, {.training = false}),
       layers::BatchNormalization()(x, {.training = false}), flip(image, {.training = false})});
  const Json read = Json::parse(Model::from_json(model.to_json()).to_json());
  std::map<std::string, Json> said;
  for (const Json& layer : read.at("config").at("layers").items())
    for (const Json& node : layer.at("inbound_nodes").items())
      said.emplace(layer.at("class_name").as_string(), node.at("kwargs"));
  EXPECT_EQ(said.at("Dropout").dump(), R"({"training":true})");
  EXPECT_EQ(said.at("GaussianNoise").dump(), R"({"training":false})") << "which is the default, too";
  EXPECT_EQ(said.at("BatchNormalization").dump(), R"({"training":false})");
  EXPECT_EQ(said.at("RandomFlip").dump(), R"({"training":false})");
}

TEST_F(RecordedCalls, MasksOfSeveralInputsAreOneForEach) {
  const Tensor query = Tensor::from<float>({1, 0, 0, 1, 1, 1}, {1, 3, 2});
  const Tensor value = Tensor::from<float>({3, 1, 0, 2, 5, 5}, {1, 3, 2});
  const Tensor of_value = Tensor::from<bool>({true, true, false}, {1, 3});
  const Layer attention = layers::Attention();
  const TensorList both = {query, value};
  const Tensor masked = attention(both, {.masks = {Tensor(), of_value}});
  EXPECT_NE(masked.to_vector<float>(), attention(both).to_vector<float>());
  EXPECT_THAT(error_of([&] { attention(both, {.masks = TensorList(3, of_value)}); }).what(),
              HasSubstr("3 masks for 2 inputs"));
}

TEST_F(RecordedCalls, FrozenLayersInsideKeepTheirWeights) {
  expect_same("calls/frozen", ".h5");
  expect_same("keras2/frozen", ".h5");
}

TEST_F(RecordedCalls, CallsOfKeras2) { expect_same("keras2/calls", ".h5"); }

TEST_F(RecordedCalls, StatesOfOlderOptimizersFindTheirPlaces) {
  expect_goes_on("keras2/older_adam");
  expect_goes_on("keras2/older_rmsprop");
  expect_goes_on("keras2/sgd");
  EXPECT_EQ(models::load_model(kData + "keras2/sgd.h5").optimizer().iterations().value().to_vector<int64_t>(),
            std::vector<int64_t>{3});
}

TEST_F(RecordedCalls, FunctionsThatKeras3HasOtherwiseAreTold) {
  std::string said;
  const LogSink previous = set_log_sink([&](const LogMessage& message) { said += message.text; });
  models::load_model(kData + "keras2/frozen.h5");
  EXPECT_EQ(said, "");
  models::load_model(kData + "keras2/activated.h5");
  set_log_sink(previous);
  EXPECT_THAT(said, HasSubstr("hard_sigmoid"));
  EXPECT_THAT(said, HasSubstr("layers hard "));
}

TEST_F(RecordedCalls, ObjectsThatKeras2CompiledWith) {
  expect_goes_on("keras2/objects");
  // Names of metrics have that of the output in front there.
  const Json settings = Json::parse(models::load_model(kData + "keras2/objects.h5").to_json())
                            .at("compile_config")
                            .at("metrics");
  EXPECT_EQ(settings.at(size_t{0}).at(size_t{1}).at("config").at("name"), Json("squares")) << settings;
}

TEST_F(RecordedCalls, RecurrentLayersTakeOneInput) {
  const KerasTensor x = Input({5, 4}), state = Input({3});
  for (const Layer& layer : {layers::LSTM(3), layers::GRU(3), layers::SimpleRNN(3),
                             layers::RNN(layers::GRUCell(3)), layers::Bidirectional(layers::GRU(3))})
    EXPECT_THAT(error_of([&] {
                  layer(KerasTensorList{x, state, state});
                }).what(),
                HasSubstr("initial_state"))
        << layer.class_name();
}

TEST_F(RecordedCalls, LayersOfAFunctionalModelHaveNamesOfTheirOwn) {
  const KerasTensor x = Input({4});
  const KerasTensor y = layers::Dense(4, {.name = "same"})(layers::Dense(4, {.name = "same"})(x));
  EXPECT_THAT(error_of([&] { const Model model(x, y); }).what(), HasSubstr("two layers \"same\""));
}

TEST_F(RecordedCalls, TheStateOfOtherVariablesBeginsAnew) {
  const KerasTensor x = Input({4});
  const Layer first = layers::Dense(4);
  const Model model(x, layers::Dense(2)(first(x)));
  model.compile({.optimizer = "adam", .loss = "mse"});
  const Batch batch{{Tensor::full(DType::float32, {2, 4}, 1)}, {Tensor::full(DType::float32, {2, 2}, 1)}, {}};
  model.train_on_batch(batch);
  first.set_trainable(false);
  for (const char* name : {"changed.keras", "changed.h5"}) {
    model.save(scratch(name));
    const Model read = models::load_model(scratch(name));
    expect_close(read.predict_on_batch(batch.x), model.predict_on_batch(batch.x));
    EXPECT_EQ(read.optimizer().iterations().value().to_vector<int64_t>(), std::vector<int64_t>{0}) << name;
  }
}

// Two weights of one name, and names that are chosen anew.
class TwoOfOneName final : public LayerBase {
 public:
  explicit TwoOfOneName(const LayerBaseOptions& options = {}) : LayerBase("TwoOfOneName", options) {}
  std::string module() const override { return "Tests>TwoOfOneName"; }
  void build(const Shape&) override {
    first_ = add_weight(name_of_weights, {4, 4});
    second_ = add_weight(name_of_weights, {4, 4});
  }
  Tensor call(const Tensor& x, const CallContext&) override {
    return matmul(matmul(x, first_), relu(second_));
  }
  static inline std::string name_of_weights = "w";

 private:
  Variable first_, second_;
};

TEST_F(RecordedCalls, WeightsOfOneNameAndOfOtherNames) {
  register_layer("Tests>TwoOfOneName", [](const Json& config) {
    return make_layer<TwoOfOneName>(LayerBaseOptions{.name = config.at("name").as_string()});
  });
  const Sequential model({Input({4}), make_layer<TwoOfOneName>()});
  model.save(scratch("two.h5"));
  const TensorList x = {Tensor::from<float>({1, 2, 3, 4}, {1, 4})};
  expect_close(models::load_model(scratch("two.h5")).predict_on_batch(x), model.predict_on_batch(x));
  TwoOfOneName::name_of_weights = "other";
  expect_close(models::load_model(scratch("two.h5")).predict_on_batch(x), model.predict_on_batch(x));
  TwoOfOneName::name_of_weights = "w";
}

TEST_F(RecordedCalls, FilesWithoutTheOptimizer) {
  const Sequential model({Input({4}), layers::Dense(2)});
  model.compile({.optimizer = "adam", .loss = "mse"});
  for (const char* name : {"bare.keras", "bare.h5"}) {
    models::save_model(model, scratch(name), {.include_optimizer = false});
    EXPECT_FALSE(models::load_model(scratch(name)).compiled()) << name;
    model.save(scratch(name));
    EXPECT_TRUE(models::load_model(scratch(name)).compiled()) << name;
  }
}

TEST_F(RecordedCalls, WhatKilledWritesLeftIsRemovedByTheNext) {
  const Sequential model({Input({4}), layers::Dense(2)});
  for (const char* name : {"m.keras", "m.h5", "m.weights.h5", "m.safetensors"}) {
    const std::string draft = scratch(name) + ".tmp-1-7", other = scratch(name) + ".tmp-of-mine";
    std::ofstream(draft) << "half of a model";
    std::ofstream(other) << "somebody's own";
    if (std::string(name).ends_with("s.h5") || std::string(name).ends_with("safetensors"))
      model.save_weights(scratch(name));
    else
      model.save(scratch(name));
    EXPECT_FALSE(std::filesystem::exists(draft)) << name;
    EXPECT_TRUE(std::filesystem::exists(other)) << name;
  }
}

}  // namespace
}  // namespace lockstep::keras
