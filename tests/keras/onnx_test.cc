// Models as ONNX files. That ONNX Runtime gives the same results is looked at by `./run check onnx`, for
// which these tests leave the files in the folder LOCKSTEP_WRITE_ONNX; here, that every operator is there and
// what cannot be written is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "base/error_of_test.h"
#include "base/protobuf.h"
#include "lockstep/base/files.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/onnx.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Weights that are zeros or ones would hide mistakes.
Model with_random_weights(const Model& model) {
  for (const Variable& weight : model.weights()) {
    const Tensor value = random::uniform(weight.shape(), {.minval = -0.4, .maxval = 0.4});
    weight.assign(weight.name().ends_with("variance") || weight.name().ends_with("gamma") ? value + 1.0
                                                                                          : value);
  }
  return model;
}

Model branches() {
  const KerasTensor image = Input({9, 8, 3}, {.name = "image"}),
                    text = Input({5}, {.dtype = DType::int32, .name = "text"});
  KerasTensor x = layers::Rescaling(0.5, -0.1)(image);
  x = layers::Conv2D(4, {3, 2}, {.strides = {2, 1}, .padding = "same", .activation = "silu"})(x);
  x = layers::Conv2D(4, 3, {.padding = "same", .dilation_rate = 2, .groups = 2})(x);
  x = layers::AveragePooling2D({.pool_size = 2, .padding = "same"})(
      layers::MaxPooling2D({.pool_size = 2, .strides = 1})(x));
  x = layers::Flatten()(layers::Dropout(0.3)(x));
  KerasTensor y = layers::Embedding(11, 4)(text);
  y = layers::Conv1D(6, 2, {.activation = "tanh"})(layers::ZeroPadding1D({1, 2})(y));
  y = layers::GlobalAveragePooling1D()(layers::MaxPooling1D(2)(y));
  const KerasTensor joined = layers::Concatenate()(KerasTensorList{x, y * 2.0 + 1.0});
  const Model head =
      Sequential({layers::Dense(5, {.activation = "elu"}), layers::BatchNormalization(), layers::ReLU()});
  return {{{"image", image}, {"text", text}},
          {{"kind", layers::Dense(3, {.activation = "softmax"})(head(joined))},
           {"size", layers::Dense(1)(joined)}}};
}

struct OnnxCase {
  const char* name;
  std::function<Model()> make;
  std::function<TensorList()> inputs;
  std::vector<std::string> operators;
};

Tensor images(const Shape& shape) { return random::uniform(shape); }
Tensor tokens(int64_t count, int64_t length, int64_t vocabulary) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count * length; ++i) values.push_back(static_cast<int32_t>(i * 7 % vocabulary));
  return Tensor::from(values, {count, length});
}

const std::vector<OnnxCase>& cases() {
  using namespace applications;
  static const std::vector<OnnxCase> all{
      {"mlp",
       [] { return mlp(); },
       [] {
         return TensorList{images({3, 784})};
       },
       {"MatMul", "Relu"}},
      {"lenet",
       [] { return lenet(); },
       [] {
         return TensorList{images({3, 28, 28, 1})};
       },
       {"Conv", "MaxPool"}},
      {"resnet18",
       [] { return resnet18({.width = 8}); },
       [] {
         return TensorList{images({2, 32, 32, 3})};
       },
       {"Conv"}},
      {"resnet50",
       [] { return resnet50({.width = 4, .stem = "imagenet"}); },
       [] {
         return TensorList{images({2, 32, 32, 3})};
       },
       {"Pad", "MaxPool"}},
      {"vit_tiny",
       [] { return vit_tiny(); },
       [] {
         return TensorList{images({2, 28, 28, 1})};
       },
       {"LayerNormalization"}},
      {"vit_token",
       [] { return vit_tiny({.pooling = "token"}); },
       [] {
         return TensorList{images({2, 28, 28, 1})};
       },
       {"Slice", "Erf"}},
      {"gpt_tiny",
       [] { return gpt_tiny(); },
       [] { return TensorList{tokens(2, 9, 256)}; },
       {"Gather", "Trilu"}},
      {"gpt2",
       [] {
         return gpt2(
             {.vocabulary = 50, .context = 16, .dim = 32, .depth = 2, .heads = 4, .approximate_gelu = true});
       },
       [] { return TensorList{tokens(2, 11, 50)}; },
       {"Tanh", "Einsum"}},
      {"branches",
       branches,
       [] {
         return TensorList{images({2, 9, 8, 3}), tokens(2, 5, 11)};
       },
       {"Concat", "AveragePool", "Softmax"}},
  };
  return all;
}

// The operators of a file, and the names of its outputs.
std::vector<std::string> operators_of(const std::string& path) {
  std::vector<std::string> found;
  const std::string bytes = read_file(path);
  for (protobuf::Reader model(bytes); model.next();) {
    if (model.field() != 7) continue;
    for (protobuf::Reader graph(model.bytes()); graph.next();) {
      if (graph.field() != 1) continue;
      for (protobuf::Reader node(graph.bytes()); node.next();)
        if (node.field() == 4) found.emplace_back(node.bytes());
    }
  }
  return found;
}

class OnnxModel : public ::testing::TestWithParam<OnnxCase> {};

TEST_P(OnnxModel, IsWritten) {
  const OnnxCase& tested = GetParam();
  random::set_seed(11);
  const Model model = with_random_weights(tested.make());
  const char* folder = std::getenv("LOCKSTEP_WRITE_ONNX");
  const std::string stem = folder ? std::string(folder) + "/" + tested.name
                                  : ::testing::TempDir() + std::to_string(getpid()) + "_" + tested.name;
  models::export_onnx(model, stem + ".onnx");
  for (const std::string& op : tested.operators) EXPECT_THAT(operators_of(stem + ".onnx"), Contains(op));
  if (!folder) {
    std::filesystem::remove(stem + ".onnx");
    return;
  }
  const TensorList x = tested.inputs();
  const TensorList results = model.predict_on_batch(x);
  train::NamedTensors tensors;
  const std::vector<std::string> inputs = model.model_base().input_names();
  const std::vector<std::string> outputs = model.model_base().output_names(results.size());
  for (size_t i = 0; i < x.size(); ++i) tensors.emplace_back(inputs[i], x[i]);
  for (size_t i = 0; i < results.size(); ++i) tensors.emplace_back("output/" + outputs[i], results[i]);
  train::save_safetensors(stem + ".safetensors", tensors);
}

TEST_P(OnnxModel, IsReadBack) {
  const OnnxCase& tested = GetParam();
  random::set_seed(11);
  const Model model = with_random_weights(tested.make());
  const std::string path = ::testing::TempDir() + std::to_string(getpid()) + "_" + tested.name + "_back.onnx";
  models::export_onnx(model, path);
  const Model back = models::import_onnx(path);
  std::filesystem::remove(path);
  EXPECT_EQ(back.model_base().input_names(), model.model_base().input_names());
  const TensorList x = tested.inputs();
  const TensorList expected = model.predict_on_batch(x), results = back.predict_on_batch(x);
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].spec(), expected[i].spec());
    const float scale = reduce_max(abs(expected[i])).item<float>();
    EXPECT_LT(reduce_max(abs(results[i] - expected[i])).item<float>(), 1e-5F * scale) << "output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, OnnxModel, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(OnnxModels, WhatCannotBeWrittenIsNamed) {
  const std::string path = ::testing::TempDir() + std::to_string(getpid()) + "_refused.onnx";
  const auto refusal = [&](const Model& model) {
    return std::string(error_of([&] { models::export_onnx(model, path); }).what());
  };
  EXPECT_THAT(refusal(Sequential({Input({4, 3}), layers::LSTM(2, {.name = "memory"})})),
              AllOf(HasSubstr("memory"), HasSubstr("LSTM")));
  EXPECT_THAT(refusal(Sequential({Input({4}), layers::Dense(2, {.activation = "mish"})})), HasSubstr("mish"));
  EXPECT_THAT(
      refusal(Sequential({Input({8, 8, 3}), layers::Conv2D(2, 3, {.data_format = "channels_first"})})),
      HasSubstr("channels"));
  EXPECT_THAT(refusal(Sequential({layers::Dense(2)})), HasSubstr("build()"));
  EXPECT_FALSE(file_exists(path)) << "nothing is left of a model that was refused";
}

}  // namespace
}  // namespace lockstep::keras
