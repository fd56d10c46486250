// Operations of keras.ops between the inputs and outputs of models give what Keras recorded:
// testdata/values/operations.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "keras/operation_layer.h"
#include "keras/written_tensors.h"
#include "lockstep/base/json.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {
namespace {

const Json& recorded() {
  static const Json all = Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/operations.json");
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, record] : recorded().at("models").members()) all.push_back(name);
  return all;
}

class Operations : public ::testing::TestWithParam<std::string> {};

TEST_P(Operations, GiveWhatKerasRecorded) {
  const Json& record = recorded().at("models").at(GetParam());
  const Model read = Model::from_json(record.at("model").dump());
  TensorList x;
  for (const Json& input : recorded().at("x").items()) x.push_back(read_tensor(input));
  for (const Model& model : {read, Model::from_json(read.to_json())}) {
    const TensorList results = model.predict_on_batch(x);
    ASSERT_EQ(results.size(), record.at("results").items().size());
    for (size_t i = 0; i < results.size(); ++i) {
      SCOPED_TRACE(model.model_base().output_names(results.size())[i]);
      const Json& expected = record.at("results").at(i);
      Shape shape;
      for (const Json& size : expected.at("shape").items()) shape.push_back(size.as_int());
      ASSERT_EQ(results[i].shape(), shape);
      const std::vector<double> values = cast(results[i], DType::float64).to_vector<double>();
      for (size_t k = 0; k < values.size(); ++k) {
        const double want = expected.at("values").at(k).as_double();
        ASSERT_NEAR(values[k], want, 1e-5 * std::max(1.0, std::abs(want))) << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Keras, Operations, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

TEST(OperationsBetweenLayers, AreAllRecorded) {
  std::set<std::string> seen;
  const std::function<void(const Json&)> look = [&](const Json& json) {
    if (is_operation(json)) seen.insert(json.at("class_name").as_string());
    if (json.is_list())
      for (const Json& item : json.items()) look(item);
    if (json.is_object())
      for (const auto& [name, value] : json.members()) look(value);
  };
  look(recorded().at("models"));
  // Not in a model that starts at a batch of examples, or of no meaning there.
  for (const char* other : {"Meshgrid", "Ravel", "Diag", "BroadcastTo", "Outer", "Vstack", "Vsplit", "Flipud",
                            "Divide", "SearchSorted", "DepthToSpace", "SpaceToDepth", "Resize"})
    seen.insert(other);
  for (const std::string& name : OperationLayer::known()) EXPECT_TRUE(seen.contains(name)) << name;
}

}  // namespace
}  // namespace lockstep::keras
