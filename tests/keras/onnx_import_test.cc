// Models that are read from ONNX files: what PyTorch and others have written (record_onnx_models.py, with
// what ONNX Runtime made of them), and what Lockstep has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error_of_test.h"
#include "base/protobuf.h"
#include "keras/onnx/import.h"
#include "lockstep/base/files.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/onnx.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string recorded() { return LOCKSTEP_SOURCE_DIR "/tests/keras/onnx_models"; }

std::vector<std::string> recorded_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(recorded()))
    if (entry.path().extension() == ".onnx") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

void expect_close(const Tensor& actual, const Tensor& expected, const std::string& name) {
  ASSERT_EQ(actual.spec(), expected.spec()) << name;
  const Tensor a = cast(actual, DType::float64), e = cast(expected, DType::float64);
  const double scale = std::max(1e-6, reduce_max(abs(e)).item<double>());
  EXPECT_LT(reduce_max(abs(a - e)).item<double>() / scale, 2e-5) << name;
}

class RecordedOnnx : public ::testing::TestWithParam<std::string> {};

TEST_P(RecordedOnnx, ComputesWhatOnnxRuntimeDoes) {
  const std::string stem = recorded() + "/" + GetParam();
  const Model model = models::import_onnx(stem + ".onnx");
  const train::NamedTensors tensors = train::load_safetensors(stem + ".safetensors");
  std::map<std::string, Tensor> named(tensors.begin(), tensors.end());
  TensorList inputs;
  for (const std::string& name : model.model_base().input_names()) inputs.push_back(named.at(name));
  const TensorList outputs = model.predict_on_batch(inputs);
  const std::vector<std::string> names =
      outputs.size() == 1 ? std::vector<std::string>{} : model.model_base().output_names(outputs.size());
  if (outputs.size() == 1) {
    for (const auto& [name, value] : named)
      if (name.starts_with("output/")) expect_close(outputs[0], value, name);
    return;
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    expect_close(outputs[i], named.at("output/" + names[i]), names[i]);
}

INSTANTIATE_TEST_SUITE_P(Files, RecordedOnnx, ::testing::ValuesIn(recorded_names()),
                         [](const auto& info) { return info.param; });

class OnnxFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("onnx_import_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(OnnxFiles, AnImportedModelTrains) {
  random::set_seed(3);
  const Model model = models::import_onnx(recorded() + "/cnn_script_13.onnx");
  EXPECT_GT(model.trainable_weights().size(), 4u);
  model.compile(
      {.optimizer = optimizers::Adam({.learning_rate = 0.02}), .loss = "sparse_categorical_crossentropy"});
  const Tensor x = random::normal({12, 3, 9, 8});
  const Tensor y = argmax(reduce_mean(x, {.axis = {2, 3}}), 1);
  const History history = model.fit(x, y, {.batch_size = 4, .epochs = 40, .verbose = 0});
  EXPECT_LT(history["loss"].back(), 0.8 * history["loss"].front());
  model.save_weights(path("w.safetensors"));
  const Model again = models::import_onnx(recorded() + "/cnn_script_13.onnx");
  again.load_weights(path("w.safetensors"));
  expect_close(again.predict(x, {.verbose = 0}), model.predict(x, {.verbose = 0}),
               "weights that were saved and loaded");
  EXPECT_THAT(error_of([&] { model.save(path("m.keras")); }).what(), HasSubstr("save_weights()"));
}

TEST_F(OnnxFiles, LoadModelReadsThemToo) {
  const Model model = models::load_model(recorded() + "/mlp_script_17.onnx");
  EXPECT_EQ(model.model_base().inputs()[0].shape(), (Shape{-1, 2, 12}));
}

// One node, with what a file needs around it.
std::string file_with(const std::string& op, const std::string& domain = "", int64_t opset = 17) {
  protobuf::Writer dimension, shape, tensor, type, x, y, node, graph, version, model;
  dimension.integer(1, 3);
  shape.message(1, dimension);
  tensor.integer(1, 1).message(2, shape);
  type.message(1, tensor);
  x.bytes(1, "x").message(2, type);
  y.bytes(1, "y").message(2, type);
  node.bytes(1, "x").bytes(2, "y").bytes(3, "the node").bytes(4, op).bytes(7, domain);
  graph.message(1, node).bytes(2, "graph").message(11, x).message(12, y);
  version.bytes(1, "").integer(2, opset);
  return std::move(model.message(7, graph).message(8, version)).text();
}

std::string refusal(const std::string& bytes) {
  return error_of([&] { onnx::model_of(onnx::read_graph(bytes, std::nullopt)); }).what();
}

TEST_F(OnnxFiles, WhatIsNotKnownIsNamed) {
  EXPECT_THAT(refusal(file_with("LSTM")), HasSubstr("LSTM (1)"));
  EXPECT_THAT(refusal(file_with("Gelu", "com.microsoft")), HasSubstr("com.microsoft.Gelu (1)"));
  EXPECT_THAT(refusal(file_with("Relu", "", 5)), HasSubstr("version 5"));
  EXPECT_THAT(refusal(file_with("Gemm")), AllOf(HasSubstr("Gemm \"the node\""), HasSubstr("matrices")));
  EXPECT_THAT(refusal("no protocol buffer"), HasSubstr("protocol buffer"));
  EXPECT_THAT(refusal(""), HasSubstr("no ONNX model"));
  EXPECT_THAT(error_of([&] { models::import_onnx(path("nowhere.onnx")); }).what(), HasSubstr("nowhere.onnx"));
}

// A constant that says that it has 2^40 elements, and has four bytes.
TEST_F(OnnxFiles, LengthsAreCheckedBeforeMemoryIsTaken) {
  protobuf::Writer tensor, graph, version, model;
  tensor.integer(1, int64_t{1} << 40).integer(2, 1).bytes(8, "huge").bytes(9, "abcd");
  graph.message(5, tensor);
  version.bytes(1, "").integer(2, 17);
  EXPECT_THAT(refusal(std::move(model.message(7, graph).message(8, version)).text()),
              AllOf(HasSubstr("huge"), HasSubstr("4 bytes")));
}

// Data outside of the file lies beside it, and nowhere else.
TEST_F(OnnxFiles, DataOutsideOfTheFileIsRead) {
  const auto with_data_in = [&](const std::string& location) {
    protobuf::Writer where, offset, tensor, dimension, shape, kind, type, x, y, node, graph, version, model;
    where.bytes(1, "location").bytes(2, location);
    offset.bytes(1, "offset").bytes(2, "4");
    tensor.integer(1, 2).integer(2, 1).bytes(8, "w").message(13, where).message(13, offset).integer(14, 1);
    dimension.integer(1, 2);
    shape.message(1, dimension);
    kind.integer(1, 1).message(2, shape);
    type.message(1, kind);
    x.bytes(1, "x").message(2, type);
    y.bytes(1, "y").message(2, type);
    node.bytes(1, "x").bytes(1, "w").bytes(2, "y").bytes(4, "Mul");
    graph.message(1, node).message(5, tensor).message(11, x).message(12, y);
    version.bytes(1, "").integer(2, 17);
    AtomicFile file(path("outside.onnx"));
    file.write(std::move(model.message(7, graph).message(8, version)).text());
    file.commit();
  };
  const float data[] = {0, 2, 3};
  AtomicFile file(path("outside.data"));
  file.write(data, sizeof data);
  file.commit();
  with_data_in("outside.data");
  const Model model = models::import_onnx(path("outside.onnx"));
  const TensorList results = model.predict_on_batch({Tensor::from<float>({5, 7}, {2})});
  EXPECT_EQ(results[0].to_vector<float>(), (std::vector<float>{10, 21}));
  with_data_in("../outside.data");
  EXPECT_THAT(error_of([&] { models::import_onnx(path("outside.onnx")); }).what(), HasSubstr("beside"));
}

}  // namespace
}  // namespace lockstep::keras
