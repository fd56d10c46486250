// utils::FeatureSpace agrees with what Keras recorded: testdata/values/feature_space.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error_of_test.h"
#include "lockstep/data/dataset.h"
#include "lockstep/keras/feature_space.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::utils {
namespace {

using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

Columns columns_of(const Json& table) {
  Columns columns;
  for (const auto& [name, column] : table.members()) {
    if (column.at(size_t{0}).is_string()) {
      Strings texts;
      for (const Json& item : column.items()) texts.push_back(item.as_string());
      columns.emplace(name, texts);
    } else {
      std::vector<double> numbers;
      for (const Json& item : column.items()) numbers.push_back(item.as_double());
      columns.emplace(name, Tensor::from(numbers, {std::ssize(numbers)}));
    }
  }
  return columns;
}

// The rows of a table, as a dataset has them: dictionaries of scalars and byte strings.
std::vector<data::Element> rows_of(const Json& table) {
  std::vector<data::Element> rows;
  const size_t count = table.members().begin()->second.items().size();
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::pair<std::string, data::Element>> parts;
    for (const auto& [name, column] : table.members()) {
      const Json& value = column.at(i);
      parts.emplace_back(name, value.is_string() ? data::bytes(value.as_string())
                               : value.is_int()  ? Tensor::scalar(value.as_int())
                                                 : cast(Tensor::scalar(value.as_double()), DType::float32));
    }
    rows.push_back(data::Element::dict(parts));
  }
  return rows;
}

data::Dataset dataset_of(const Json& table) {
  return data::Dataset::from_generator([rows = rows_of(table)] {
    return [rows, at = size_t{0}]() mutable -> std::optional<data::Element> {
      if (at == rows.size()) return {};
      return rows[at++];
    };
  });
}

void expect_same(const Tensor& ours, const Json& theirs) {
  std::vector<double> want;
  const auto collect = [&](const auto& self, const Json& item) -> void {
    if (!item.is_list()) return want.push_back(item.as_double());
    for (const Json& inner : item.items()) self(self, inner);
  };
  collect(collect, theirs);
  const std::vector<double> have = cast(ours, DType::float64).to_vector<double>();
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; i < have.size(); ++i) EXPECT_NEAR(have[i], want[i], 1e-6) << i;
}

void expect_encoded(const FeatureSpace& space, const Json& record) {
  const Columns rows = columns_of(record.at("rows"));
  const data::Element first = rows_of(record.at("rows"))[0];
  for (const auto& [name, value] : record.at("encoded").members()) {
    SCOPED_TRACE(name);
    expect_same(name.empty() ? space(rows) : space.encoded(rows).at(name), value);
    expect_same(name.empty() ? space(first) : space.encoded(first).at(name), record.at("first_row").at(name));
  }
}

TEST(FeatureSpace, EncodesAsKeras) {
  const Json all = Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/feature_space.json");
  for (const Json& record : all.at("cases").items()) {
    SCOPED_TRACE(record.at("config").at("config").at("features").dump());
    const FeatureSpace space = FeatureSpace::deserialize(record.at("config"));
    space.adapt(columns_of(record.at("adapt")));
    expect_encoded(space, record);
    // With what it learned.
    expect_encoded(FeatureSpace::deserialize(Json::parse(space.serialize().dump())), record);

    const FeatureSpace from_rows = FeatureSpace::deserialize(record.at("config"));
    from_rows.adapt(dataset_of(record.at("adapt")));
    expect_encoded(from_rows, record);
  }
}

TEST(FeatureSpace, IsWrittenAsKerasWritesIt) {
  const Json all = Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/feature_space.json");
  for (const Json& record : all.at("cases").items()) {
    const Json& theirs = record.at("config");
    const Json ours = FeatureSpace::deserialize(theirs).serialize();
    EXPECT_EQ(ours.at("module"), theirs.at("module"));
    EXPECT_EQ(ours.at("class_name"), theirs.at("class_name"));
    for (const char* key :
         {"output_mode", "crosses", "crossing_dim", "hashing_dim", "num_discretization_bins"})
      EXPECT_EQ(ours.at("config").at(key), theirs.at("config").at(key)) << key;
    for (const auto& [name, feature] : theirs.at("config").at("features").members()) {
      const Json& own = ours.at("config").at("features").at(name);
      for (const char* key : {"module", "class_name", "registered_name"})
        EXPECT_EQ(own.at(key), feature.at(key)) << name;
      for (const char* key : {"dtype", "output_mode"})
        EXPECT_EQ(own.at("config").at(key), feature.at("config").at(key)) << name;
      const Json &mine = own.at("config").at("preprocessor"),
                 &keras = feature.at("config").at("preprocessor");
      for (const char* key : {"module", "class_name", "registered_name"})
        EXPECT_EQ(mine.at(key), keras.at(key)) << name;
      for (const auto& [setting, value] : mine.at("config").members())
        EXPECT_TRUE(keras.at("config").contains(setting)) << name << ": " << setting;
    }
  }
}

TEST(FeatureSpace, FeedsAModel) {
  const FeatureSpace space({{"age", "float_normalized"},
                            {"thal", FeatureSpace::string_categorical()},
                            {"sex", "integer_categorical"}},
                           {.crosses = {FeatureSpace::cross({"sex", "thal"}, 4)}});
  const Columns table = {{"age", Tensor::from<float>({50, 60, 70, 80}, {4})},
                         {"thal", Strings{"fixed", "normal", "normal", "fixed"}},
                         {"sex", Tensor::from<int64_t>({0, 1, 1, 0}, {4})}};
  space.adapt(table);
  const KerasTensor encoded = space.get_encoded_features();
  EXPECT_EQ(encoded.shape(), (Shape{-1, 1 + 3 + 3 + 4}));
  const Model model(encoded, layers::Dense(1)(encoded));
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = space(table);
  EXPECT_EQ(x.shape(), (Shape{4, 11}));
  model.fit(x, Tensor::from<float>({0, 1, 1, 0}, {4, 1}), {.verbose = 0});
  EXPECT_EQ(model.predict(x, {.verbose = 0}).shape(), (Shape{4, 1}));
}

TEST(FeatureSpace, OfNumbersMayBePartOfAModel) {
  const FeatureSpace space({{"age", "float_normalized"}, {"sex", "integer_categorical"}});
  const Columns table = {{"age", Tensor::from<float>({50, 60, 70}, {3})},
                         {"sex", Tensor::from<int64_t>({0, 1, 1}, {3})}};
  space.adapt(table);
  const Model model(KerasTensors(space.get_inputs()), space(space.get_inputs()));
  const Tensor inside = model.predict(Data(Data::Named{{"age", Tensor::from<float>({50, 60, 70}, {3, 1})},
                                                       {"sex", Tensor::from<int64_t>({0, 1, 1}, {3, 1})}},
                                           Data::Named{}),
                                      {.verbose = 0});
  EXPECT_EQ(inside.to_vector<float>(), space(table).to_vector<float>());
}

TEST(FeatureSpace, MistakesAreSaid) {
  const auto message = [](auto&& f) { return std::string(error_of(f).what()); };
  EXPECT_THAT(message([] {
                FeatureSpace({{"age", "float_normalised"}});
              }),
              HasSubstr("did you mean \"float_normalized\"?"));
  EXPECT_THAT(message([] { FeatureSpace({{"age", "float"}, {"age", "float"}}); }), HasSubstr("two features"));
  EXPECT_THAT(message([] {
                FeatureSpace({{"age", "float"}}, {.output_mode = "list"});
              }),
              HasSubstr("\"concat\", \"dict\""));
  EXPECT_THAT(message([] {
                FeatureSpace({{"age", "float"}}, {.crosses = {FeatureSpace::cross({"age", "sex"})}});
              }),
              HasSubstr("float_discretized makes one of it"));
  EXPECT_THAT(message([] {
                FeatureSpace({{"age", "integer_hashed"}}, {.crosses = {FeatureSpace::cross({"age", "sex"})}});
              }),
              HasSubstr("names a feature \"sex\", which there is not"));
  const FeatureSpace space({{"age", "float_normalized"}, {"thal", "string_categorical"}});
  const Tensor ages = Tensor::from<float>({50, 60}, {2});
  EXPECT_THAT(message([&] { space(Columns{}); }), HasSubstr("call adapt() first: \"age\""));
  EXPECT_THAT(message([&] {
                space.adapt(Columns{{"age", ages}});
              }),
              HasSubstr("no column \"thal\"; there are age"));
  EXPECT_THAT(message([&] {
                space.adapt(Columns{{"age", ages}, {"thal", ages}});
              }),
              HasSubstr("\"thal\" takes strings, received numbers"));
  space.adapt(Columns{{"age", ages}, {"thal", Strings{"a", "b"}}});
  EXPECT_THAT(message([&] {
                space(Columns{{"age", ages}, {"thal", Strings{"a"}}});
              }),
              HasSubstr("one length"));
  EXPECT_THAT(message([&] { space.get_inputs(); }), HasSubstr("get_encoded_features()"));
  EXPECT_THAT(message([&] { space(data::Element(ages)); }), HasSubstr("a dictionary of features by name"));
  const FeatureSpace apart({{"place", FeatureSpace::string_hashed(3, "int")}});
  EXPECT_THAT(message([&] { apart(Columns{{"place", Strings{"a"}}}); }), HasSubstr("output_mode \"dict\""));
}

}  // namespace
}  // namespace lockstep::keras::utils
