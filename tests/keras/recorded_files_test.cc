// Models that Keras saved (record_keras_files.py) predict here what they predicted there, and go on training
// as they would have; and what Lockstep makes of them, Keras loads (`./run check keras`).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/error_of_test.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kFolder = LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/files";

std::string recorded(const std::string& name) { return (kFolder / name).string(); }

std::string scratch(const std::string& name) {
  return ::testing::TempDir() + std::to_string(getpid()) + "_" + name;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().extension() == ".keras") all.push_back(entry.path().stem().string());
  std::sort(all.begin(), all.end());
  return all;
}

struct Record {
  explicit Record(const std::string& name) : file(recorded(name + ".safetensors")) {
    for (int i = 0; file.find("x/" + std::to_string(i)); ++i)
      x.push_back(file.read("x/" + std::to_string(i)));
  }
  Tensor read(const char* name) const { return file.read(name); }
  train::SafetensorsFile file;
  TensorList x;
};

void expect_close(const Tensor& actual, const Tensor& expected, double tolerance = 2e-5) {
  ASSERT_EQ(actual.shape(), expected.shape());
  const std::vector<float> a = actual.to_vector<float>(), e = expected.to_vector<float>();
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], e[i], tolerance * std::max(1.0F, std::abs(e[i]))) << i;
}

void expect_goes_on(const Model& model, const Record& record) {
  expect_close(model.predict_on_batch(record.x)[0], record.read("prediction"));
  model.train_on_batch(Batch{record.x, {record.read("y")}, {}});
  expect_close(model.predict_on_batch(record.x)[0], record.read("prediction_after"));
}

class RecordedFile : public ::testing::TestWithParam<std::string> {};

TEST_P(RecordedFile, GoesOnTraining) {
  expect_goes_on(models::load_model(recorded(GetParam() + ".keras")), Record(GetParam()));
}

// With LOCKSTEP_WRITE_MODELS=FOLDER the files are kept there, for check_models_load.py.
TEST_P(RecordedFile, IsWrittenAsItWasRead) {
  const char* folder = std::getenv("LOCKSTEP_WRITE_MODELS");
  for (const char* ending : {".keras", ".h5"}) {
    const std::string path =
        folder ? std::string(folder) + "/trained_" + GetParam() + ending : scratch(GetParam() + ending);
    models::load_model(recorded(GetParam() + ".keras")).save(path);
    expect_goes_on(models::load_model(path), Record(GetParam()));
    if (folder)
      std::filesystem::copy_file(recorded(GetParam() + ".safetensors"),
                                 std::filesystem::path(path).replace_extension(".safetensors"),
                                 std::filesystem::copy_options::overwrite_existing);
    else
      std::filesystem::remove(path);
  }
}

INSTANTIATE_TEST_SUITE_P(Keras, RecordedFile, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

TEST(RecordedFiles, AreMany) { EXPECT_GE(names().size(), 17U); }

TEST(RecordedFiles, WeightsOfEveryFormatAreTheSame) {
  const Record record("structures");
  for (const char* ending : {".keras", ".weights.h5", ".h5"}) {
    const Model model = models::clone_model(models::load_model(recorded("structures.keras")));
    EXPECT_FALSE(model.compiled());
    model.load_weights(recorded(std::string("structures") + ending));
    expect_close(model.predict_on_batch(record.x)[0], record.read("prediction"));
  }
}

TEST(RecordedFiles, WithoutCompileTheModelPredictsAlone) {
  const Model model = models::load_model(recorded("adam.keras"), {.compile = false});
  EXPECT_FALSE(model.compiled());
  const Record record("adam");
  expect_close(model.predict_on_batch(record.x)[0], record.read("prediction"));
}

// A layer whose weights are another one's, as classes that are derived in Python from the library's have
// them.
class Derived final : public LayerBase {
 public:
  explicit Derived(const Layer& from) : LayerBase("Derived", {}), from_(track(from)) {}
  void build(const Shape& input) override {
    from_.build(input);
    for (const Variable& weight : from_.weights()) track(weight);
  }
  Tensor call(const Tensor& x, const CallContext&) override { return from_(x); }
  std::vector<std::string> stored_names() const override { return {"."}; }

 private:
  Layer from_;
};

// Models of Keras 2, whose weights TensorFlow's checkpoints hold by the attributes of objects.
TEST(RecordedFiles, WeightsOfTensorflowsCheckpoints) {
  const std::string folder = LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/tensorflow/";
  const train::SafetensorsFile expected(folder + "weights.safetensors");
  const KerasTensor sequence = Input({6, 4});
  KerasTensor x = layers::Bidirectional(layers::LSTM(3, {.return_sequences = true}))(sequence);
  x = layers::MultiHeadAttention(2, 4)(KerasTensorList{x, x});
  x = layers::TimeDistributed(layers::Dense(3, {.activation = "tanh"}))(x);
  x = layers::Conv1D(3, 2)(x);
  x = layers::BatchNormalization()(x);
  x = layers::GlobalAveragePooling1D()(x);
  x = Sequential({layers::Dense(3, {.activation = "tanh"}), layers::Dropout(0.0), layers::Dense(2)})(x);
  const Model model(sequence, layers::Dense(2)(x));
  model.load_weights(folder + "weights");
  expect_close(model.predict_on_batch({expected.read("x")})[0], expected.read("prediction"));
  model.load_weights(folder + "training");
  expect_close(model.predict_on_batch({expected.read("x")})[0], expected.read("prediction_after"));

  const Model derived(sequence, make_layer<Derived>(layers::Dense(2))(x));
  derived.load_weights(folder + "weights");
  expect_close(derived.predict_on_batch({expected.read("x")})[0], expected.read("prediction"));

  const Model other(sequence, layers::Dense(2)(layers::Flatten()(sequence)));
  EXPECT_THAT(error_of([&] { other.load_weights(folder + "weights"); }).what(),
              HasSubstr("layer_with_weights-0/kernel"));
}

TEST(RecordedFiles, WholeModelsOfKerasOlderFormat) {
  const Model model = models::load_model(recorded("structures.h5"));
  EXPECT_FALSE(model.compiled());
  const Record record("structures");
  expect_close(model.predict_on_batch(record.x)[0], record.read("prediction"));
}

// Written by Keras 2, record_keras2_file.py.
TEST(RecordedFiles, ModelsOfKeras2GoOnTraining) {
  expect_goes_on(models::load_model(recorded("keras2.h5")), Record("keras2"));
  EXPECT_FALSE(models::load_model(recorded("keras2.h5"), {.compile = false}).compiled());
  EXPECT_THAT(error_of([] { models::load_model(recorded("structures.weights.h5")); }).what(),
              HasSubstr("load_weights()"));
}

}  // namespace
}  // namespace lockstep::keras
