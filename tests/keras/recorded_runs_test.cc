// Training agrees with what Keras recorded: testdata/README.md describes the files and the criterion.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "keras/training/compile_config.h"
#include "lockstep/base/json.h"
#include "lockstep/keras/layers/recurrent.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {
namespace {

const std::string kRuns = LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/runs/";

std::vector<std::string> run_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kRuns))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<double> doubles(const Tensor& tensor) { return cast(tensor, DType::float64).to_vector<double>(); }

// max|difference| <= tolerance * max|recorded|
void expect_agreement(const std::vector<double>& ours, const std::vector<double>& recorded,
                      const std::string& what, double tolerance, double least_scale = 0.2) {
  ASSERT_EQ(ours.size(), recorded.size()) << what;
  double largest = 0;
  double difference = 0;
  size_t at = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(recorded[i]));
    const double d = std::abs(ours[i] - recorded[i]);
    if (!(d <= difference)) {
      difference = d;
      at = i;
    }
  }
  // In 20 steps Adam moves a weight by up to 0.2, whatever its size, and Keras rounds 1 - beta_2^t in
  // float32: that alone is 2e-5 of a bias of 0.05 (against float64, from which Lockstep is 3e-7 away).
  EXPECT_LE(difference, tolerance * std::max(largest, least_scale))
      << what << ": element " << at << " is " << ours[at] << ", recorded " << recorded[at] << ", largest "
      << largest;
}

// A metric's value as logs name it; several are a list in Keras, and an entry each, "f1_score[2]", here.
std::vector<std::pair<std::string, double>> entries_of(const std::string& name, const Json& value) {
  if (!value.is_list()) return {{name, value.as_double()}};
  std::vector<std::pair<std::string, double>> entries;
  for (size_t i = 0; i < value.items().size(); ++i)
    for (const auto& entry : entries_of(name + "[" + std::to_string(i) + "]", value.at(i)))
      entries.push_back(entry);
  return entries;
}

class RecordedRun : public ::testing::TestWithParam<std::string> {
 protected:
  RecordedRun()
      : json_(Json::read_file(kRuns + GetParam() + ".json")), tensors_(kRuns + GetParam() + ".safetensors") {}

  TensorList all(const std::string& prefix) const {
    TensorList list;
    while (tensors_.find(prefix + std::to_string(list.size())))
      list.push_back(tensors_.read(prefix + std::to_string(list.size())));
    return list;
  }
  TensorList rows(const TensorList& list, int64_t batch, int64_t size) const {
    TensorList cut;
    for (const Tensor& tensor : list) {
      Dims begin = Dims::filled(tensor.rank(), 0), sizes = Dims::filled(tensor.rank(), -1);
      begin[0] = batch * size;
      sizes[0] = size;
      cut.push_back(slice(tensor, begin, sizes));
    }
    return cut;
  }

  // By name, where the run was recorded with dictionaries.
  Data data(const TensorList& x, const TensorList& y = {}, const TensorList& sample_weight = {}) const {
    if (!json_.contains("x_names") && !json_.contains("y_names")) return Data(x, y, sample_weight);
    const auto named = [&](const char* key, const TensorList& list,
                           const std::vector<KerasTensor>& inputs = {}) {
      Data::Named map;
      for (size_t i = 0; i < list.size(); ++i)
        map.emplace(json_.contains(key) ? json_.at(key).at(i).as_string() : inputs[i].name(), list[i]);
      return map;
    };
    return Data(named("x_names", x, inputs_), named("y_names", y),
                named("sample_weight_names", sample_weight));
  }
  bool wide() const { return json_.contains("floatx"); }
  double tolerance() const { return wide() ? 1e-11 : 1e-5; }
  // Adam divides gradients by their size, and with them the rounding errors of those that nearly vanish. In
  // this run that leaves a weight of Keras 6.0e-6 away from what float64 gives, and of Lockstep 1.9e-6; the
  // largest is 0.77.
  double least_scale() const { return GetParam() == "bidirectional_separate" ? 1 : 0.2; }
  // What the final weights give may differ by more than they do.
  double derived() const { return 10 * tolerance(); }

  Json json_;
  train::SafetensorsFile tensors_;
  KerasTensorList inputs_;  // of the model
};

TEST_P(RecordedRun, AgreesWithKeras) {
  const Model model = Model::from_json(json_.at("model").dump());
  const std::vector<Variable> weights = model.weights();
  const Json::List& recorded_weights = json_.at("weights").items();
  ASSERT_EQ(weights.size(), recorded_weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::string& path = recorded_weights[i].at("path").as_string();
    // Keras itself leaves the model's name out of the paths of a Sequential that it reads from JSON.
    // A layer that had its weights before it became part of the model has none of the model's name either.
    EXPECT_TRUE(weights[i].name() == path || weights[i].name().ends_with("/" + path))
        << weights[i].name() << ", recorded " << path;
    const Tensor initial = tensors_.read("initial/" + path);
    ASSERT_EQ(weights[i].shape(), initial.shape()) << path;
    weights[i].assign(initial);
  }
  model.compile(deserialize_compile_options(json_.at("compile"), std::source_location::current()));
  inputs_ = model.model_base().inputs();

  const TensorList x = all("x/"), y = all("y/"), sample_weight = all("sample_weight/");
  std::map<int64_t, double> class_weight;
  if (const Json& given = json_.at("class_weight"); given.is_object())
    for (const auto& [label, weight] : given.members()) class_weight[std::stoll(label)] = weight.as_double();
  const int64_t batch_size = json_.at("batch_size").as_int();
  std::map<std::string, std::vector<double>> history;
  for (const Json& index : json_.at("batches").items()) {
    const int64_t b = index.as_int();
    const Logs logs = model.train_on_batch(
        {rows(x, b, batch_size), rows(y, b, batch_size), rows(sample_weight, b, batch_size)}, class_weight);
    for (const auto& [name, value] : logs) history[name].push_back(value);
  }
  std::map<std::string, std::vector<double>> recorded_history;
  for (const auto& [name, values] : json_.at("history").members())
    for (const Json& value : values.items())
      for (const auto& [key, number] : entries_of(name, value)) recorded_history[key].push_back(number);
  EXPECT_EQ(history.size(), recorded_history.size());
  for (const auto& [name, recorded] : recorded_history) {
    ASSERT_TRUE(history.contains(name)) << name;
    expect_agreement(history[name], recorded, "history of " + name, tolerance());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::string& path = recorded_weights[i].at("path").as_string();
    expect_agreement(doubles(weights[i].value()), doubles(tensors_.read("final/" + path)), "final " + path,
                     tolerance(), least_scale());
  }
  layers::reset_states(model);
  const TensorList predicted = model.predict_all(data(x), {.batch_size = batch_size, .verbose = 0});
  const TensorList recorded = all("prediction/");
  ASSERT_EQ(predicted.size(), recorded.size());
  for (size_t i = 0; i < predicted.size(); ++i) {
    EXPECT_EQ(predicted[i].dtype() == DType::float64, wide());
    expect_agreement(doubles(predicted[i]), doubles(recorded[i]), "prediction " + std::to_string(i),
                     derived());
  }
  layers::reset_states(model);
  const Logs evaluated = model.evaluate(data(x, y, sample_weight), {.batch_size = batch_size, .verbose = 0});
  for (const auto& [name, value] : json_.at("evaluate").members())
    for (const auto& [key, number] : entries_of(name, value)) {
      ASSERT_TRUE(evaluated.find(key)) << key;
      expect_agreement({*evaluated.find(key)}, {number}, "evaluate " + key, derived());
    }
}

// The model as we write it is the model. With LOCKSTEP_WRITE_MODELS=FOLDER the files are kept there:
// check_models_load.py has Keras load them and compare its predictions.
TEST_P(RecordedRun, IsWrittenAsItWasRead) {
  const Model model = Model::from_json(json_.at("model").dump());
  const std::string text = model.to_json();
  const Model again = Model::from_json(text);
  EXPECT_EQ(Json::parse(again.to_json()), Json::parse(text));
  const std::vector<Variable> weights = model.weights();
  ASSERT_EQ(again.weights().size(), weights.size());
  train::NamedTensors tensors;
  for (size_t i = 0; i < weights.size(); ++i) {
    const Tensor value = tensors_.read("final/" + json_.at("weights").at(i).at("path").as_string());
    EXPECT_EQ(again.weights()[i].name(), weights[i].name());
    weights[i].assign(value);
    again.weights()[i].assign(value);
    tensors.emplace_back(weights[i].name(), value);
  }
  const TensorList x = all("x/");
  const int64_t fixed = model.model_base().inputs().empty() ? -1 : model.model_base().inputs()[0].shape()[0];
  const PredictOptions options{.batch_size = fixed > 0 ? fixed : 32, .verbose = 0};
  const TensorList predicted = model.predict_all(Data(x), options);
  const TensorList predicted_again = again.predict_all(Data(x), options);
  ASSERT_EQ(predicted_again.size(), predicted.size());
  for (size_t i = 0; i < predicted.size(); ++i)
    EXPECT_EQ(doubles(predicted_again[i]), doubles(predicted[i])) << "result " << i;

  const std::string archive = ::testing::TempDir() + "recorded_" + std::to_string(getpid()) + ".keras";
  again.save(archive);
  const Model loaded = models::load_model(archive);
  std::filesystem::remove(archive);
  ASSERT_EQ(loaded.weights().size(), weights.size());
  for (size_t i = 0; i < weights.size(); ++i)
    EXPECT_EQ(doubles(loaded.weights()[i].value()), doubles(weights[i].value())) << weights[i].name();

  const char* folder = std::getenv("LOCKSTEP_WRITE_MODELS");
  if (!folder) return;
  const auto add = [&](const std::string& name, const TensorList& list) {
    for (size_t i = 0; i < list.size(); ++i)
      tensors.emplace_back(list.size() == 1 ? name : name + "/" + std::to_string(i), list[i]);
  };
  add("x", x);
  add("prediction", predicted);
  const std::string path = std::string(folder) + "/" + GetParam();
  train::save_safetensors(path + ".safetensors", tensors);
  std::ofstream(path + ".json") << text;
  model.save(path + ".keras");
}

INSTANTIATE_TEST_SUITE_P(Keras, RecordedRun, ::testing::ValuesIn(run_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep::keras
