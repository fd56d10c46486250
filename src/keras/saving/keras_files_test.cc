// Models and weights in Keras' files: what is written, what is refused, and that a refused file changes
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error_of_test.h"
#include "keras/saving/stored_weights.h"
#include "lockstep/base/files.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "train/hdf5.h"
#include "train/zip_archive.h"

namespace lockstep::keras {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KerasFiles : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_ = ::testing::TempDir() + "keras_files_" + std::to_string(getpid());
};

Model two_layers(int64_t units = 3) {
  return Sequential({layers::Dense(units, {.activation = "tanh", .input_shape = {4}}), layers::Dense(2)});
}

std::vector<std::vector<float>> values(const Model& model) {
  std::vector<std::vector<float>> all;
  for (const Tensor& value : model.get_weights())
    all.push_back(cast(value, DType::float32).to_vector<float>());
  return all;
}

std::vector<std::string> paths(const Model& model) {
  std::vector<std::string> all;
  for (const StoredWeights& stored : stored_weights(model))
    if (!stored.weights.empty()) all.push_back(stored.path);
  return all;
}

TEST_F(KerasFiles, LayersAreFoundByStructure) {
  EXPECT_THAT(paths(two_layers()), ElementsAre("layers/dense", "layers/dense_1"));
  const KerasTensor x = Input({6, 4});
  KerasTensor y = layers::Bidirectional(layers::LSTM(2, {.return_sequences = true}))(x);
  y = layers::MultiHeadAttention(2, 3, {.use_gate = true})(KerasTensorList{y, y});
  y = layers::GroupQueryAttention(2, 2, 1)(KerasTensorList{y, y});
  y = layers::TimeDistributed(two_layers())(y);
  y = layers::RNN(layers::StackedRNNCells({layers::GRUCell(2), layers::GRUCell(2)}))(y + 1.0);
  EXPECT_THAT(
      paths(Model(x, y)),
      ElementsAre("layers/bidirectional/forward_layer/cell", "layers/bidirectional/backward_layer/cell",
                  "layers/multi_head_attention/query_dense", "layers/multi_head_attention/key_dense",
                  "layers/multi_head_attention/_gate_dense", "layers/multi_head_attention/value_dense",
                  "layers/multi_head_attention/output_dense", "layers/grouped_query_attention/_query_dense",
                  "layers/grouped_query_attention/_key_dense", "layers/grouped_query_attention/_value_dense",
                  "layers/grouped_query_attention/_output_dense",
                  "layers/time_distributed/layer/layers/dense",
                  "layers/time_distributed/layer/layers/dense_1", "layers/rnn/cell/cells/gru_cell",
                  "layers/rnn/cell/cells/gru_cell_1"));
}

TEST_F(KerasFiles, WeightsGoByStructureWhateverLayersAreCalled) {
  const Model saved = two_layers();
  saved.save_weights(path("a.weights.h5"));
  const Model other = two_layers();
  other.load_weights(path("a.weights.h5"));
  EXPECT_EQ(values(other), values(saved));
}

TEST_F(KerasFiles, AModelGoesOnWhereItStood) {
  const Model model = two_layers();
  model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.1}), .loss = "mse", .metrics = {"mae"}});
  const Tensor x = random::normal({8, 4}), y = random::normal({8, 2});
  for (int i = 0; i < 3; ++i) model.train_on_batch(x, y);
  model.save(path("m.keras"));
  const Model loaded = models::load_model(path("m.keras"));
  EXPECT_EQ(values(loaded), values(model));
  EXPECT_EQ(loaded.optimizer().iterations().value().item<int64_t>(), 3);
  model.train_on_batch(x, y);
  loaded.train_on_batch(x, y);
  EXPECT_EQ(values(loaded), values(model)) << "the optimizer's state was read too";
  EXPECT_EQ(loaded.metrics().size(), model.metrics().size());
}

TEST_F(KerasFiles, ACompiledModelThatNeverLearnedLoads) {
  const Model model = two_layers();
  model.compile({.optimizer = "adam", .loss = "mse"});
  model.save(path("m.keras"));
  EXPECT_EQ(models::load_model(path("m.keras")).optimizer().iterations().value().item<int64_t>(), 0);
}

TEST_F(KerasFiles, TheSameModelIsTheSameFile) {
  const Model model = two_layers();
  model.save(path("m.keras"));
  const std::string first = read_file(path("m.keras"));
  model.save(path("m.keras"));
  EXPECT_EQ(read_file(path("m.keras")), first);
}

TEST_F(KerasFiles, ALayerInTwoPlacesStaysOne) {
  const Layer shared = layers::Dense(4);
  const Sequential a({Input({4}), shared}), b({Input({4}), shared});
  const KerasTensor x = Input({4});
  const Model model(x, b(a(x)));
  ASSERT_EQ(model.weights().size(), 2U);
  model.save(path("m.keras"));
  const Model loaded = models::load_model(path("m.keras"));
  EXPECT_EQ(loaded.weights().size(), 2U);
  EXPECT_EQ(values(loaded), values(model));
}

TEST_F(KerasFiles, AClonedModelHasWeightsOfItsOwn) {
  const Model model = two_layers();
  model.compile({.optimizer = "adam", .loss = "mse"});
  const Model clone = models::clone_model(model);
  EXPECT_FALSE(clone.compiled());
  EXPECT_EQ(clone.name(), model.name());
  ASSERT_EQ(clone.weights().size(), model.weights().size());
  EXPECT_NE(values(clone), values(model));
}

TEST_F(KerasFiles, AFolderIsAModelToo) {
  const Model model = two_layers();
  model.save(path("m.keras"));
  const train::ZipReader zip(path("m.keras"));
  for (const std::string& name : zip.names()) std::ofstream(path(name), std::ios::binary) << zip.read(name);
  EXPECT_EQ(values(models::load_model(folder_.string())), values(model));
}

TEST_F(KerasFiles, WhatDoesNotFitIsListedAndChangesNothing) {
  two_layers(5).save_weights(path("five.weights.h5"));
  const Model model = two_layers();
  const auto before = values(model);
  EXPECT_THAT(error_of([&] { model.load_weights(path("five.weights.h5")); }).what(),
              AllOf(HasSubstr("layers/dense/vars/0"), HasSubstr("layers/dense_1/vars/0")));
  Sequential({layers::Dense(3, {.input_shape = {4}})}).save_weights(path("one.weights.h5"));
  EXPECT_THAT(error_of([&] { model.load_weights(path("one.weights.h5")); }).what(),
              HasSubstr("dense_1/vars\" is missing"));
  Sequential({layers::Dense(3, {.input_shape = {4}}), layers::Dense(2), layers::Dense(2)})
      .save_weights(path("three.weights.h5"));
  EXPECT_THAT(error_of([&] { model.load_weights(path("three.weights.h5")); }).what(),
              HasSubstr("not in the model: layers/dense_2"));
  EXPECT_EQ(values(model), before);
}

TEST_F(KerasFiles, DamagedArchivesAreRefused) {
  two_layers().save(path("m.keras"));
  const std::string bytes = read_file(path("m.keras"));
  for (size_t at = 0; at < bytes.size(); at += bytes.size() / 50) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(~damaged[at]);
    std::ofstream(path("d.keras"), std::ios::binary) << damaged;
    // A bit of the archive's directory that nobody reads may be any.
    try {
      EXPECT_EQ(models::load_model(path("d.keras")).weights().size(), 4U);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("d.keras")) << at;
    }
  }
  train::write_zip(path("none.keras"), {{.name = "config.json", .bytes = "{}"}});
  EXPECT_THAT(error_of([&] { models::load_model(path("none.keras")); }).what(),
              HasSubstr("model.weights.h5"));
}

TEST_F(KerasFiles, WeightsOfKeras1AreKnownByTheirNames) {
  train::Hdf5Writer file;
  file.set_texts("", "layer_names", {"conv", "pool", "bn"});
  file.set_texts("conv", "weight_names", {"conv_W_1:0", "conv_b_1:0"});
  file.add("conv", "conv_W_1:0", Tensor::full(DType::float32, {1, 1, 3, 2}, 2));
  file.add("conv", "conv_b_1:0", Tensor::full(DType::float32, {2}, 3));
  file.make_group("pool");
  const std::vector<std::string> of_bn{"bn_gamma_1:0", "bn_beta_1:0", "bn_running_mean_1:0",
                                       "bn_running_std_1:0"};
  file.set_texts("bn", "weight_names", of_bn);
  for (size_t i = 0; i < of_bn.size(); ++i)
    file.add("bn", of_bn[i], Tensor::full(DType::float32, {2}, static_cast<double>(i)));
  std::ofstream(path("one.h5"), std::ios::binary) << file.finish();
  const Sequential model({layers::Conv2D(2, 1, {.input_shape = {4, 4, 3}}), layers::MaxPooling2D(),
                          layers::BatchNormalization()});
  model.load_weights(path("one.h5"));
  std::vector<float> firsts;
  for (const Variable& weight : model.weights()) firsts.push_back(weight.value().to_vector<float>()[0]);
  EXPECT_THAT(firsts, ElementsAre(2, 3, 0, 1, 2, 3));
  const Sequential other({layers::Conv2D(2, 1, {.input_shape = {4, 4, 3}}), layers::PReLU()});
  EXPECT_THAT(error_of([&] { other.load_weights(path("one.h5")); }).what(), HasSubstr("bn_gamma_1"));
}

TEST_F(KerasFiles, NamesThatMeanSomethingElseAreRefused) {
  const Model model = two_layers();
  EXPECT_THAT(error_of([&] { model.save(path("m.weights.h5")); }).what(), HasSubstr("save_weights()"));
  EXPECT_THAT(error_of([&] { model.save_weights(path("m.h5")); }).what(), HasSubstr(".weights.h5"));
  EXPECT_THAT(error_of([&] { model.save_weights(path("m.keras")); }).what(), HasSubstr("save()"));
  EXPECT_THAT(error_of([&] { Sequential({layers::Dense(1)}).save(path("m.keras")); }).what(),
              HasSubstr("build()"));
  EXPECT_THAT(error_of([&] { models::load_model(path("missing.keras")); }).what(),
              HasSubstr("missing.keras"));
}

// Keeps a text in a file of its own.
class Keeper final : public LayerBase {
 public:
  explicit Keeper(const std::string& name) : LayerBase("Keeper", {.name = name}) {}
  Tensor call(const Tensor& x, const CallContext&) override { return x; }
  bool keeps_files() const override { return true; }
  Named<std::string> kept_files() const override { return {{"deep/text.txt", text}}; }
  void restore_files(const Named<std::string>& files) override {
    for (const auto& [name, bytes] : files) text += name + "=" + bytes + ";";
  }

  std::string text = {};
};

TEST_F(KerasFiles, OfLayersThatKeepFilesOfTheirOwn) {
  register_layer("Keeper",
                 [](const Json& config) { return make_layer<Keeper>(config.at("name").as_string()); });
  const auto keeper = std::make_shared<Keeper>("keeper");
  keeper->text = "kept";
  const Model model = Sequential({layers::Dense(2, {.input_shape = {3}}), Layer(keeper)});
  model.save(path("m.keras"));
  const Model again = models::load_model(path("m.keras"));
  EXPECT_EQ(dynamic_cast<const Keeper&>(*again.get_layer("keeper").base()).text, "deep/text.txt=kept;");

  // Names lead nowhere else, and every file has a layer that it is for.
  std::vector<train::ZipEntry> entries;
  {
    const train::ZipReader archive(path("m.keras"));
    for (const std::string& name : archive.names()) entries.push_back({name, archive.read(name)});
  }
  for (const std::string name :
       {"assets/layers/keeper/../../x", "assets/layers/keeper//etc/x", "assets/layers/keeper/./x",
        "assets/layers/keeper/a\\x", "assets/layers/integer_lookup/vocabulary.txt"}) {
    std::vector<train::ZipEntry> more = entries;
    more.push_back({name, "1"});
    train::write_zip(path("more.keras"), more);
    EXPECT_THAT(error_of([&] { models::load_model(path("more.keras")); }).what(),
                AllOf(HasSubstr("more.keras"), HasSubstr(name)));
  }
}

}  // namespace
}  // namespace lockstep::keras
