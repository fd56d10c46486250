// Random models agree with what Keras recorded: testdata/README.md describes the file, its numbers and the
// criterion.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "keras/training/compile_config.h"
#include "lockstep/base/json.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {
namespace {

constexpr int64_t kBatch = 4, kBatches = 2, kRows = kBatch * kBatches, kTokens = 6;

const Json& recorded() {
  static const Json all = Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/random_models.json");
  return all;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, record] : recorded().members())
    if (record.is_object()) names.push_back(name);
  return names;
}

std::vector<double> doubles(const Tensor& tensor) { return cast(tensor, DType::float64).to_vector<double>(); }
std::vector<double> doubles(const Json& list) {
  std::vector<double> values;
  for (const Json& value : list.items()) values.push_back(value.as_double());
  return values;
}

// max|difference| <= tolerance * max|recorded|
void expect_agreement(const std::vector<double>& ours, const std::vector<double>& theirs,
                      const std::string& what, double tolerance, double least_scale = 0.2) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  double largest = least_scale, difference = 0;
  std::vector<double> differences;
  for (size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(theirs[i]));
    const double d = std::abs(ours[i] - theirs[i]);
    if (!(d <= difference)) difference = d;
    differences.push_back(ours[i] - theirs[i]);
  }
  EXPECT_LE(difference, tolerance * largest) << what << ": " << ::testing::PrintToString(ours) << ", off by "
                                             << ::testing::PrintToString(differences);
}

// The numbers of the formula in [0, 1): those of record_random_models.py.
std::vector<double> uniform(int64_t number, int64_t slot, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    auto h = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761U +
                                   static_cast<uint64_t>(number * 10007 + slot));
    h = (h ^ (h >> 15)) * 2246822519U;
    h = (h ^ (h >> 13)) * 3266489917U;
    h ^= h >> 16;
    values.push_back(static_cast<double>(h >> 8) / 16777216.0);
  }
  return values;
}

class RandomModel : public ::testing::TestWithParam<std::string> {
 protected:
  RandomModel()
      : record_(recorded().at(GetParam())),
        number_(std::stoll(GetParam())),
        dtype_(record_.at("dtype").as_string() == "float64" ? DType::float64 : DType::float32) {}

  double tolerance() const { return dtype_ == DType::float64 ? 1e-11 : 1e-5; }

  Tensor tensor(const std::vector<double>& values, const Shape& shape) const {
    return cast(cast(Tensor::from(values, shape), DType::float32), dtype_);
  }
  Tensor whole_numbers(const std::vector<double>& u, int64_t below, const Shape& shape) const {
    std::vector<int32_t> values;
    for (const double x : u) values.push_back(static_cast<int32_t>(x * static_cast<double>(below)));
    return Tensor::from(values, shape);
  }

  TensorList inputs(const Model& model) const {
    TensorList list;
    const KerasTensorList ends = model.model_base().inputs();
    for (size_t i = 0; i < ends.size(); ++i) {
      Shape shape = ends[i].shape();
      shape[0] = kRows;
      const std::string& kind = record_.at("inputs").at(i).as_string();
      std::vector<double> values = uniform(number_, 100 + static_cast<int64_t>(i), shape.size());
      if (kind == "tokens") {
        list.push_back(whole_numbers(values, kTokens, shape));
        continue;
      }
      for (double& value : values) value = (2 * value - 1) * 1.5;
      if (kind == "masked")
        for (int64_t row = 0; row < kRows; ++row)
          for (int64_t k = (2 + row % 4) * shape[2]; k < shape[1] * shape[2]; ++k)
            values[static_cast<size_t>(row * shape[1] * shape[2] + k)] = 0;
      list.push_back(tensor(values, shape));
    }
    return list;
  }

  TensorList labels(const Model& model) const {
    TensorList list;
    const KerasTensorList ends = model.model_base().outputs();
    for (size_t i = 0; i < ends.size(); ++i) {
      Shape shape = ends[i].shape();
      shape[0] = kRows;
      const std::string& kind = record_.at("labels").at(i).as_string();
      const int64_t slot = 200 + static_cast<int64_t>(i), width = shape[-1];
      if (kind == "classes" || kind == "one_hot") {
        const Shape of_classes = shape.drop_last(1);
        const Tensor classes = whole_numbers(uniform(number_, slot, of_classes.size()), width, of_classes);
        list.push_back(kind == "classes" ? classes : one_hot(classes, width, dtype_));
        continue;
      }
      std::vector<double> values = uniform(number_, slot, shape.size());
      for (double& value : values) value = kind == "bits" ? (value < 0.5 ? 1 : 0) : 2 * value - 1;
      list.push_back(tensor(values, shape));
    }
    return list;
  }

  TensorList sample_weights(const Model& model) const {
    TensorList list;
    if (record_.at("weighing").as_string() != "examples") return list;
    for (const KerasTensor& end : model.model_base().outputs()) {
      Shape shape = end.shape().drop_last(1);
      shape[0] = kRows;
      std::vector<double> values = uniform(number_, 300 + std::ssize(list), shape.size());
      for (double& value : values) value *= 2;
      list.push_back(tensor(values, shape));
    }
    return list;
  }

  void set_initial_weights(const Model& model) const {
    static const std::set<std::string> positive{"gamma", "moving_variance", "scale", "variance"};
    const std::vector<Variable> weights = model.weights();
    ASSERT_EQ(weights.size(), record_.at("weights").items().size());
    for (size_t i = 0; i < weights.size(); ++i) {
      const std::string name = weights[i].name().substr(weights[i].name().rfind('/') + 1);
      std::vector<double> values =
          uniform(number_, 1000 + static_cast<int64_t>(i), weights[i].shape().size());
      for (double& value : values) value = positive.contains(name) ? 1 + 0.25 * value : 0.5 * (2 * value - 1);
      weights[i].assign(tensor(values, weights[i].shape()));
    }
  }

  // One number that every element of the weight moves.
  double projection(size_t i, const Tensor& weight) const {
    const std::vector<double> values = doubles(weight);
    const std::vector<double> factors = uniform(number_, 3000 + static_cast<int64_t>(i), std::ssize(values));
    double sum = 0;
    for (size_t k = 0; k < values.size(); ++k) sum += values[k] * (2 * factors[k] - 1);
    return sum;
  }

  static TensorList rows(const TensorList& list, int64_t begin) {
    TensorList cut;
    for (const Tensor& tensor : list) {
      Dims from = Dims::filled(tensor.rank(), 0), size = Dims::filled(tensor.rank(), -1);
      from[0] = begin;
      size[0] = kBatch;
      cut.push_back(slice(tensor, from, size));
    }
    return cut;
  }

  const Json& record_;
  int64_t number_;
  DType dtype_;
};

TEST_P(RandomModel, AgreesWithKeras) {
  const Model model = Model::from_json(record_.at("model").dump());
  ASSERT_NO_FATAL_FAILURE(set_initial_weights(model));
  model.compile(deserialize_compile_options(record_.at("compile"), std::source_location::current()));
  const Json& excluded = record_.at("exclude_from_weight_decay");
  for (const Json& word : excluded.items()) model.optimizer().exclude_from_weight_decay({word.as_string()});
  const TensorList x = inputs(model), y = labels(model), sample_weight = sample_weights(model);
  std::map<int64_t, double> class_weight;
  if (record_.at("weighing").as_string() == "classes") class_weight = {{0, 0.5}, {2, 1.5}};

  const std::vector<double> expected = doubles(record_.at("loss"));
  std::vector<double> history;
  while (history.size() < expected.size()) {
    const int64_t begin = std::ssize(history) % kBatches * kBatch;
    model.train_on_batch({rows(x, begin), rows(y, begin), rows(sample_weight, begin)}, class_weight);
    history.push_back(model.last_loss());
  }
  expect_agreement(history, expected, "losses", tolerance());

  const std::vector<Variable> weights = model.weights();
  const std::vector<double> sizes = doubles(record_.at("weight_sizes"));
  for (size_t i = 0; i < weights.size(); ++i)
    expect_agreement({projection(i, weights[i].value())}, {record_.at("weights").at(i).as_double()},
                     weights[i].name(), tolerance(), std::max(0.2, 0.2 * sizes[i]));

  const TensorList predicted = model.predict_on_batch(rows(x, 0));
  ASSERT_EQ(predicted.size(), record_.at("prediction").items().size());
  for (size_t i = 0; i < predicted.size(); ++i)
    expect_agreement(doubles(predicted[i]), doubles(record_.at("prediction").at(i)), "prediction",
                     tolerance());

  const Logs logs = model.evaluate({x, y, sample_weight}, {.batch_size = kBatch, .verbose = 0});
  for (const auto& [name, value] : record_.at("evaluate").members()) {
    const std::optional<double> ours = logs.find(name);
    ASSERT_TRUE(ours) << name;
    // Metrics count in float32, whatever the model computes in.
    expect_agreement({*ours}, {value.as_double()}, "evaluate: " + name,
                     name.ends_with("loss") ? tolerance() : 1e-5);
  }
}

// The file that Lockstep writes is the same model; Keras loads it too (`./run check keras`).
TEST_P(RandomModel, IsWrittenAsItWasRead) {
  const Model model = Model::from_json(record_.at("model").dump());
  const std::string text = model.to_json();
  const Model again = Model::from_json(text);
  EXPECT_EQ(Json::parse(again.to_json()), Json::parse(text));
  set_initial_weights(model);
  set_initial_weights(again);
  const TensorList x = inputs(model);
  const TensorList first = model.predict_on_batch(x), second = again.predict_on_batch(x);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(doubles(first[i]), doubles(second[i]));

  const std::string archive = ::testing::TempDir() + "random_" + std::to_string(getpid()) + ".keras";
  again.save(archive);
  const Model loaded = models::load_model(archive);
  std::filesystem::remove(archive);
  ASSERT_EQ(loaded.weights().size(), model.weights().size());
  for (size_t i = 0; i < model.weights().size(); ++i)
    EXPECT_EQ(doubles(loaded.weights()[i].value()), doubles(model.weights()[i].value()));

  const char* folder = std::getenv("LOCKSTEP_WRITE_MODELS");
  if (!folder) return;
  const std::string path = std::string(folder) + "/random_" + GetParam();
  model.save_weights(path + ".safetensors");
  train::NamedTensors tensors = train::load_safetensors(path + ".safetensors");
  for (size_t i = 0; i < x.size(); ++i) tensors.emplace_back("x/" + std::to_string(i), x[i]);
  for (size_t i = 0; i < first.size(); ++i) tensors.emplace_back("prediction/" + std::to_string(i), first[i]);
  train::save_safetensors(path + ".safetensors", tensors);
  std::ofstream(path + ".json") << text;
  model.save(path + ".keras");
}

TEST(RandomModels, AreMany) { EXPECT_GE(model_names().size(), 100U); }

INSTANTIATE_TEST_SUITE_P(Keras, RandomModel, ::testing::ValuesIn(model_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep::keras
