// Models of Hugging Face's transformers (record_hugging_face.py) give the same logits here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error_of_test.h"
#include "lockstep/base/files.h"
#include "lockstep/keras/applications.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras::applications {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string folder_of(const std::string& name) {
  return LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/hugging_face/" + name;
}

void expect_logits(const Model& model, const std::string& name) {
  const train::SafetensorsFile record(folder_of(name) + "/logits.safetensors");
  const Tensor actual = model.predict_on_batch({record.read("x")})[0], expected = record.read("logits");
  ASSERT_EQ(actual.shape(), expected.shape());
  const std::vector<float> a = actual.to_vector<float>(), e = expected.to_vector<float>();
  float largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(e[i]));
    difference = std::max(difference, std::abs(a[i] - e[i]));
  }
  EXPECT_LE(difference, 1e-5F * largest) << name << ": " << difference << " of " << largest;
}

class HuggingFace : public ::testing::TestWithParam<const char*> {};

TEST_P(HuggingFace, GivesTheSameLogits) {
  expect_logits(from_hugging_face(folder_of(GetParam())), GetParam());
}

TEST_P(HuggingFace, CanBeSavedAndLoaded) {
  const std::string path = ::testing::TempDir() + "hub_" + std::to_string(getpid()) + ".keras";
  from_hugging_face(folder_of(GetParam())).save(path);
  expect_logits(models::load_model(path), GetParam());
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Models, HuggingFace, ::testing::Values("gpt2", "vit", "resnet18", "resnet50"),
                         [](const auto& info) { return std::string(info.param); });

TEST(HuggingFaces, WeightsGoIntoAModelOfTheZoo) {
  const Model model =
      resnet18({.input_shape = {40, 40, 3}, .classes = 5, .width = 2, .stem = "imagenet", .version = "v1.5"});
  model.load_weights(folder_of("resnet18") + "/model.safetensors");
  expect_logits(model, "resnet18");
}

TEST(HuggingFaces, WhatDoesNotFitIsListed) {
  const Model deeper = gpt2({.vocabulary = 40, .context = 12, .dim = 16, .depth = 3, .heads = 4});
  EXPECT_THAT(error_of([&] { deeper.load_weights(folder_of("gpt2") + "/model.safetensors"); }).what(),
              HasSubstr("missing: transformer.h.2.ln_1.weight"));
  const Model shallower = gpt2({.vocabulary = 40, .context = 12, .dim = 16, .depth = 1, .heads = 4});
  EXPECT_THAT(error_of([&] { shallower.load_weights(folder_of("gpt2") + "/model.safetensors"); }).what(),
              HasSubstr("not in the model: transformer.h.1."));
  const Model narrower = gpt2({.vocabulary = 40, .context = 12, .dim = 8, .depth = 2, .heads = 4});
  EXPECT_THAT(error_of([&] { narrower.load_weights(folder_of("gpt2") + "/model.safetensors"); }).what(),
              AllOf(HasSubstr("token_embedding"), HasSubstr("transformer.wte.weight")));
}

TEST(HuggingFaces, OtherTypesAreRefused) {
  const std::filesystem::path folder = ::testing::TempDir() + "hub_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "bert"})";
  EXPECT_THAT(error_of([&] { from_hugging_face(folder.string()); }).what(),
              AllOf(HasSubstr("bert"), HasSubstr("gpt2")));
  std::filesystem::copy_file(folder_of("gpt2") + "/config.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_of([&] { from_hugging_face(folder.string()); }).what(), HasSubstr("model.safetensors"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::keras::applications
