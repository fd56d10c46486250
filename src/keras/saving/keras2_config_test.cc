#include "keras/saving/keras2_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error_of_test.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras {
namespace {

using ::testing::HasSubstr;

Json read(const char* text) { return as_keras3(Json::parse(text)); }

TEST(Keras2Config, WhatKeras3WritesStaysAsItIs) {
  for (
      const char* text :
      {R"({"class_name":"Dense","config":{"units":3,"use_bias":true}})", R"([1,"a",null,{"b":[2]}])",
       R"({"class_name":"Functional","config":{"name":"m","layers":[{"class_name":"Add","config":{"name":"add"},"name":"add","inbound_nodes":[{"args":[[{"class_name":"__keras_tensor__","config":{"keras_history":["a",0,0]}}]],"kwargs":{}}]}]}})"})
    EXPECT_EQ(read(text).dump(), Json::parse(text).dump());
}

TEST(Keras2Config, CallsAreArguments) {
  const Json model = read(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
      {"class_name": "Sequential", "config": {"name": "inner", "layers": []}, "name": "inner",
       "inbound_nodes": [[["x", 0, 0, {}]]]},
      {"class_name": "MultiHeadAttention", "config": {"name": "at"}, "name": "at",
       "inbound_nodes": [[["inner", 1, 0, {"value": ["x", 0, 0], "training": null}]]]},
      {"class_name": "Add", "config": {"name": "add"}, "name": "add",
       "inbound_nodes": [[["x", 0, 0, {}], ["at", 0, 0, {}]]]}]}})");
  const Json::List& layers = model.at("config").at("layers").items();
  const Json& attention = layers[1].at("inbound_nodes").at(size_t{0});
  EXPECT_EQ(attention.at("args").at(size_t{0}).at("config").at("keras_history").dump(), R"(["inner",0,0])")
      << "the making of a model was its first call";
  EXPECT_EQ(attention.at("kwargs").at("value").at("config").at("keras_history").dump(), R"(["x",0,0])");
  const Json& added = layers[2].at("inbound_nodes").at(size_t{0}).at("args");
  EXPECT_EQ(added.items().size(), 1U) << "several are one list";
  EXPECT_EQ(added.at(size_t{0}).items().size(), 2U);
}

TEST(Keras2Config, SettingsThatAreGoneAreLeftOutWhereTheySayNothing) {
  EXPECT_EQ(read(R"({"class_name":"LSTM","config":{"units":2,"time_major":false}})").at("config").dump(),
            R"({"units":2})");
  EXPECT_EQ(read(R"({"class_name":"LSTM","config":{"time_major":true}})").at("config").dump(),
            R"({"time_major":true})")
      << "which is refused";
  EXPECT_EQ(
      read(
          R"({"class_name":"DepthwiseConv2D","config":{"groups":1,"kernel_size":[3,3],"kernel_initializer":"x"}})")
          .at("config")
          .dump(),
      R"({"kernel_size":[3,3]})");
  EXPECT_EQ(read(R"({"class_name":"CategoryEncoding","config":{"sparse":true}})").at("config").dump(),
            R"({"sparse":true})");
  EXPECT_EQ(read(R"({"class_name":"BatchNormalization","config":{"axis":[3]}})").at("config").dump(),
            R"({"axis":3})");
}

TEST(Keras2Config, ObjectsOfCompileHaveTheirNamesOfNow) {
  const Json settings = read(
      R"({"metrics": [[{"class_name": "MeanMetricWrapper", "config": {"name": "mae", "fn": "mean_absolute_error"}}]],
      "loss": {"class_name": "MeanSquaredError", "config": {"reduction": "auto"}},
      "optimizer_config": {"class_name": "Custom>Adam", "config": {"lr": 0.5, "is_legacy_optimizer": false, "decay": 0.0}}})");
  EXPECT_EQ(settings.at("metrics").dump(), R"([["mae"]])");
  EXPECT_EQ(settings.at("loss").at("config").dump(), R"({"reduction":"sum_over_batch_size"})");
  EXPECT_EQ(settings.at("optimizer_config").dump(),
            R"({"class_name":"Adam","config":{"learning_rate":0.5}})");
}

TEST(Keras2Config, AnInputMayBeSaidByTheFirstLayer) {
  const Json json = read(R"({"class_name": "Sequential", "config": {"name": "s", "layers": [
      {"class_name": "Dense", "config": {"name": "d", "units": 2, "batch_input_shape": [null, 3]}}]}})");
  const Model model = Model::from_json(json.dump());
  EXPECT_EQ(model.count_params(), 8);
}

TEST(Keras2Config, AnOperationThatIsCalledAsALayerIsNone) {
  const Json json = read(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
      {"class_name": "Multiply", "config": {"name": "multiply"}, "name": "multiply",
       "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["x", 0, 0]}}, 2.0],
                          "kwargs": {}}]}]}})");
  EXPECT_EQ(json.at("config").at("layers").at(size_t{0}).at("module"), Json("keras.src.ops.numpy"));
}

TEST(Keras2Config, StatesAndMasksAreSettingsOfTheCall) {
  const Json model = read(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
      {"class_name": "LSTM", "config": {"name": "lstm"}, "name": "lstm",
       "inbound_nodes": [[["x", 0, 0, {}], ["h", 0, 0, {}], ["c", 0, 1, {}]]]},
      {"class_name": "Attention", "config": {"name": "at"}, "name": "at",
       "inbound_nodes": [[["x", 0, 0, {"mask": [["m", 0, 0], null]}], ["y", 0, 0, {}]]]}]}})");
  const Json::List& layers = model.at("config").at("layers").items();
  const Json& recurrent = layers[0].at("inbound_nodes").at(size_t{0});
  EXPECT_EQ(recurrent.at("args").items().size(), 1U);
  EXPECT_EQ(recurrent.at("kwargs").at("initial_state").at(size_t{1}).at("config").at("keras_history").dump(),
            R"(["c",0,1])");
  const Json& masks = layers[1].at("inbound_nodes").at(size_t{0}).at("kwargs").at("mask");
  EXPECT_EQ(masks.at(size_t{0}).at("config").at("keras_history").dump(), R"(["m",0,0])");
  EXPECT_TRUE(masks.at(size_t{1}).is_null());
  EXPECT_THAT(error_of([] {
                read(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
                    {"class_name": "RNN", "config": {"name": "rnn", "num_constants": 1}, "name": "rnn",
                     "inbound_nodes": [[["x", 0, 0, {}], ["h", 0, 0, {}]]]}]}})");
              }).what(),
              HasSubstr("constants"));
}

TEST(Keras2Config, NamesAndCallsAtTheEnds) {
  const Json config = read(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
      {"class_name": "Sequential", "config": {"name": "head", "layers": []}, "name": "head",
       "inbound_nodes": [[["a/b", 0, 0, {}]]]},
      {"class_name": "Functional", "config": {"name": "pair", "layers": []}, "name": "pair",
       "inbound_nodes": [{"p": ["head", 1, 0, {}], "q": ["a/b", 0, 0, {}]}]},
      {"class_name": "Dense", "config": {"name": "a/b"}, "name": "a/b", "inbound_nodes": [[["x", 0, 0, {}]]]}],
      "input_layers": [["x", 0, 0]], "output_layers": [["head", 1, 0], ["pair", 1, 0], ["a/b", 0, 0]]}})")
                          .at("config");
  EXPECT_EQ(config.at("output_layers").dump(), R"([["head",0,0],["pair",1,0],["a_b",0,0]])");
  EXPECT_EQ(config.at("layers").at(size_t{2}).at("config").at("name"), Json("a_b"));
  const Json& named =
      config.at("layers").at(size_t{1}).at("inbound_nodes").at(size_t{0}).at("args").at(size_t{0});
  EXPECT_EQ(named.at("q").at("config").at("keras_history").dump(), R"(["a_b",0,0])");
}

TEST(Keras2Config, OldNamesOfSettings) {
  EXPECT_EQ(read(R"({"class_name":"LeakyReLU","config":{"alpha":0.5}})").at("config").dump(),
            R"({"negative_slope":0.5})");
  EXPECT_EQ(read(R"({"class_name":"VarianceScaling","config":{"distribution":"normal","dtype":"float32"}})")
                .at("config")
                .dump(),
            R"({"distribution":"truncated_normal"})");
  EXPECT_EQ(read(R"({"class_name":"RandomFlip","config":{"rng_type":null}})").at("config").dump(), "{}");
  EXPECT_EQ(read(R"({"class_name":"Sequential","config":[{"class_name":"Dense","config":{"name":"d"}}]})")
                .at("config")
                .dump(),
            R"({"name":"sequential","layers":[{"class_name":"Dense","config":{"name":"d"}}]})");
}

TEST(Keras2Config, OperationsOfTensorflowAreNamed) {
  EXPECT_THAT(error_of([] {
                read(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
                    {"class_name": "TFOpLambda", "config": {"name": "tf.math.multiply", "function": "math.multiply"},
                     "inbound_nodes": [["x", 0, 0, {"y": 2.0}]]}]}})");
              }).what(),
              HasSubstr("math.multiply"));
}

TEST(Keras2Config, WhatModelsWereCompiledWith) {
  const Json settings = read(R"({"metrics": [
      [{"class_name": "MeanMetricWrapper", "config": {"name": "a_mae", "fn": "mean_absolute_error"}}],
      [{"class_name": "MeanMetricWrapper", "config": {"name": "b_acc", "fn": "categorical_accuracy"}}]],
      "loss": {"class_name": "CosineSimilarity", "config": {"axis": -1, "fn": "cosine_similarity"}},
      "optimizer_config": {"class_name": "SGD", "config": {"decay": 0.001, "learning_rate":
          {"class_name": "ExponentialDecay", "config": {"decay_steps": 2, "name": null}}}}})");
  EXPECT_EQ(settings.at("metrics").dump(), R"([["mae"],["acc"]])");
  EXPECT_EQ(settings.at("loss").at("config").dump(), R"({"axis":-1})");
  const Json& optimizer = settings.at("optimizer_config").at("config");
  EXPECT_FALSE(optimizer.contains("decay"));
  EXPECT_FALSE(optimizer.at("learning_rate").at("config").contains("name"));
}

}  // namespace
}  // namespace lockstep::keras
