// Configurations with values of a wrong kind, shape or range: everything that files know by name is read, and
// layers are called, with every setting replaced by each of a list of such values. Each is taken or refused
// by an Error.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "keras/layer_cases.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/constraints.h"
#include "lockstep/keras/initializers.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/metrics.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/keras/regularizers.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::testing {
namespace {

using ::testing::Test;

Json list(std::initializer_list<Json> items) { return Json::List(items); }

const std::vector<Json>& wrong_values() {
  static const std::vector<Json> values = {
      nullptr,
      true,
      "",
      "no such thing",
      0,
      -1,
      1,
      2,
      7,
      -7,
      1.5,
      list({}),
      list({0}),
      list({-1}),
      list({1}),
      list({1, 2}),
      list({-1, -2}),
      list({1, 2, 3}),
      list({1, 2, 3, 4}),
      list({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
      list({list({})}),
      list({list({1, 2})}),
      list({list({1, 2}), list({3})}),
      list({list({1, 2}), list({3, 4})}),
      list({list({1, 2}), list({3, 4}), list({5, 6})}),
      list({nullptr}),
      list({"x"}),
      Json::object(),
      Json::object({{"a", 1}}),
      Json::object({{"class_name", "no such class"}, {"config", 1}}),
  };
  return values;
}

// These are only read: a layer of such a size need not be there.
const std::vector<Json>& huge_values() {
  static const std::vector<Json> values = {int64_t{1} << 31, int64_t{1} << 62, -(int64_t{1} << 62), 1e300,
                                           list({int64_t{1} << 62, int64_t{1} << 62})};
  return values;
}

// Runs `use` on `json` with each setting of its configuration replaced by each value.
void replace_each(const Json& json, const std::vector<Json>& values,
                  const std::function<void(const Json& changed)>& use) {
  for (const auto& [key, given] : json.at("config").members()) {
    if (key == "name") continue;
    for (const Json& value : values) {
      Json changed = json;
      changed["config"].set(key, value);
      const auto described = [&, &key = key] {
        return json.at("class_name").as_string() + ": \"" + key + "\": " + value.dump();
      };
      try {
        use(changed);
      } catch (const Error& error) {
        EXPECT_NE(error.code(), ErrorCode::internal) << described() << "\n" << error.what();
        // What no setting can be is refused by the name of the setting.
        if (value == Json::object({{"a", 1}})) {
          EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << described() << "\n"
                                                                            << error.what();
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << described() << "\n" << error.what();
      }
    }
  }
}

TensorList inputs_of(const LayerCase& c) {
  TensorList inputs;
  for (const LayerInput& input : c.inputs) {
    Shape shape = input.shape;
    shape.insert(0, 2);
    inputs.push_back(ones(shape, input.dtype));
  }
  return inputs;
}

TEST(WrongConfigurations, OfLayersAreTakenOrRefused) {
  std::set<std::string> seen;
  for (const LayerCase& c : layer_cases()) {
    const Json json = c.make().serialize();
    if (!seen.insert(json.at("class_name").as_string()).second) continue;
    const TensorList inputs = inputs_of(c);
    CallOptions options = c.call;
    if (c.mask) options.mask = c.mask();
    replace_each(json, wrong_values(),
                 [&](const Json& changed) { Layer::deserialize(changed).apply(inputs, options); });
    replace_each(json, huge_values(), [&](const Json& changed) { Layer::deserialize(changed); });
  }
}

TEST(WrongConfigurations, OfEverythingElseAreTakenOrRefused) {
  const Json all = Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/configurations.json");
  const auto read = [&](const char* kind, const std::function<void(const Json&)>& deserialize) {
    const Json& records = all.at(kind);
    for (const auto& [name, json] : records.members()) {
      try {
        deserialize(json);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::not_found) << error.what();
        continue;  // one that is left out: docs/keras.md
      }
      replace_each(json, wrong_values(), deserialize);
      replace_each(json, huge_values(), deserialize);
    }
  };
  const auto here = std::source_location::current();
  read("losses", [&](const Json& json) { Loss::deserialize(json, here); });
  read("metrics", [&](const Json& json) { Metric::deserialize(json, here); });
  read("optimizers", [&](const Json& json) { optimizers::Optimizer::deserialize(json, here); });
  read("schedules", [&](const Json& json) { optimizers::LearningRateSchedule::deserialize(json, here); });
  read("initializers", [&](const Json& json) { Initializer::deserialize(json, here)({2, 3}); });
  read("regularizers", [&](const Json& json) { Regularizer::deserialize(json, here)(ones({2, 3})); });
  read("constraints", [&](const Json& json) { Constraint::deserialize(json, here)(ones({2, 3})); });
}

// --- margins -----------------------------------------------------------------------------------------------

Layer margins(const std::string& class_name, const Json& value) {
  const char* key = class_name.starts_with("ZeroPadding") ? "padding" : "cropping";
  return Layer::deserialize(
      Json::object({{"class_name", class_name}, {"config", Json::object({{key, value}})}}));
}

Shape padded(const std::string& class_name, const Json& value, const Shape& shape) {
  return margins(class_name, value)(ones(shape)).shape();
}

TEST(WrongConfigurations, MarginsAreReadInEveryFormThatKerasHas) {
  EXPECT_EQ(padded("ZeroPadding1D", 2, {1, 3, 1}), (Shape{1, 7, 1}));
  EXPECT_EQ(padded("ZeroPadding1D", list({1, 2}), {1, 3, 1}), (Shape{1, 6, 1}));
  EXPECT_EQ(padded("ZeroPadding2D", 2, {1, 3, 4, 1}), (Shape{1, 7, 8, 1}));
  EXPECT_EQ(padded("ZeroPadding2D", list({1, 2}), {1, 3, 4, 1}), (Shape{1, 5, 8, 1}));
  EXPECT_EQ(padded("ZeroPadding2D", list({list({1, 0}), 2}), {1, 3, 4, 1}), (Shape{1, 4, 8, 1}));
  EXPECT_EQ(padded("Cropping2D", list({1, 0}), {1, 3, 4, 1}), (Shape{1, 1, 4, 1}));
  EXPECT_EQ(padded("ZeroPadding3D", list({1, 2, 3}), {1, 3, 4, 5, 1}), (Shape{1, 5, 8, 11, 1}));
  EXPECT_EQ(padded("Cropping3D", 1, {1, 3, 4, 5, 1}), (Shape{1, 1, 2, 3, 1}));
}

TEST(WrongConfigurations, MarginsThatAreNotThereLeaveNothing) {
  for (const int64_t margin : {int64_t{4}, INT64_MAX / 2 + 1, INT64_MAX}) try {
      padded("Cropping1D", margin, {1, 8, 2});
      ADD_FAILURE() << margin;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("leaves nothing of shape (1, 8, 2)"), std::string::npos) << error.what();
    }
}

TEST(WrongConfigurations, MarginsOfOtherRanksNameTheirKeyAndItsForms) {
  for (const char* name :
       {"ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "Cropping1D", "Cropping2D", "Cropping3D"})
    for (const Json& value :
         {list({}), list({1}), list({1, 2, 3, 4}), list({list({1, 2})}), list({1, -1}), Json("1")})
      try {
        margins(name, value);
        ADD_FAILURE() << name << " took " << value.dump();
      } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("a number"), std::string::npos) << text;
        EXPECT_NE(text.find(std::string(name).starts_with("Zero") ? "\"padding\"" : "\"cropping\""),
                  std::string::npos)
            << text;
      }
}

// --- windows -----------------------------------------------------------------------------------------------

template <class Options>
constexpr bool kTakesTwoNumbers = requires {
  Options{3, 2};
};

TEST(WrongConfigurations, AWindowIsNeverTakenForAStride) {
  static_assert(!kTakesTwoNumbers<layers::PoolingOptions>);
  for (const Layer& layer : {layers::MaxPooling2D({3, 2}), layers::AveragePooling2D({3, 2})}) {
    const Json config = layer.serialize().at("config");
    EXPECT_EQ(config.at("pool_size"), list({3, 2}));
    EXPECT_EQ(config.at("strides"), list({3, 2}));
  }
  const Json config = layers::MaxPooling2D(3, {.strides = 2}).serialize().at("config");
  EXPECT_EQ(config.at("pool_size"), list({3, 3}));
  EXPECT_EQ(config.at("strides"), list({2, 2}));
  EXPECT_THROW(layers::MaxPooling2D(3, {.pool_size = 2}), Error);
}

}  // namespace
}  // namespace lockstep::keras::testing
