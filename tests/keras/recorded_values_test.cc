// Activations, initializers, regularizers, constraints, losses and metrics agree with what Keras recorded:
// testdata/values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/json.h"
#include "lockstep/keras/activations.h"
#include "lockstep/keras/constraints.h"
#include "lockstep/keras/initializers.h"
#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/image.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/metrics.h"
#include "lockstep/keras/regularizers.h"
#include "lockstep/ops/image.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras {
namespace {

Json recorded(const std::string& name) {
  return Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/" + name + ".json");
}

double number(const Json& json) { return json.is_string() ? std::stod(json.as_string()) : json.as_double(); }

// Nested lists, row-major; `integers`: no element has a fraction in the file.
void collect(const Json& json, std::vector<double>& values, bool& integers) {
  if (json.is_list()) {
    for (const Json& item : json.items()) collect(item, values, integers);
    return;
  }
  integers = integers && json.is_int();
  values.push_back(number(json));
}

std::vector<double> numbers(const Json& json) {
  std::vector<double> values;
  bool integers = true;
  collect(json, values, integers);
  return values;
}

Tensor tensor(const Json& json) {
  std::vector<double> values;
  bool integers = true;
  collect(json, values, integers);
  Shape shape;
  for (const Json* at = &json; at->is_list(); at = &at->at(size_t{0}))
    shape.push_back(static_cast<int64_t>(at->items().size()));
  return cast(Tensor::from(values, shape), integers ? DType::int32 : DType::float32);
}

std::vector<double> doubles(const Tensor& x) { return cast(x, DType::float64).to_vector<double>(); }

// max|difference| <= tolerance * max|recorded|, or the tolerance itself for small numbers.
void expect_near(const Tensor& ours, const Json& theirs, double tolerance = 5e-6) {
  const std::vector<double> values = doubles(ours), expected = numbers(theirs);
  ASSERT_EQ(values.size(), expected.size());
  double largest = 1;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], tolerance * largest) << i;
}

Json made_of(const Json& record) {
  return Json::object({{"class_name", record.at("class_name")}, {"config", record.at("arguments")}});
}

TEST(RecordedValues, Activations) {
  const Json all = recorded("activations");
  for (const char* kind : {"elementwise", "rowwise"}) {
    const Json& records = all.at(kind);
    for (const auto& [name, record] : records.members()) {
      // Keras' sparsemax does not sum to one where it chooses several elements.
      if (!record.at("arguments").members().empty() || name == "sparsemax") continue;
      SCOPED_TRACE(name);
      const Tensor x = tensor(record.at("x"));
      GradientTape tape;
      tape.watch(x);
      const Tensor y = Activation(record.at("function").as_string())(x);
      const Json* upstream = record.find("upstream");
      expect_near(tape.gradient(reduce_sum(upstream ? y * tensor(*upstream) : y), x), record.at("gradient"));
      expect_near(y, record.at("y"));
    }
  }
}

TEST(RecordedValues, Losses) {
  const Json all = recorded("loss_values");
  const Tensor weights = tensor(all.at("sample_weight"));
  const Json& losses = all.at("losses");
  for (const auto& [name, record] : losses.members()) {
    const Json& data = all.at("data").at(record.at("data").as_string());
    const Tensor y = tensor(data.at("y_true")), p = tensor(data.at("y_pred"));
    for (const char* reduction : {"none", "sum", "sum_over_batch_size", "mean", "mean_with_sample_weight"}) {
      SCOPED_TRACE(name + ", " + reduction);
      Json json = made_of(record);
      json["config"].set("reduction", reduction);
      const Loss loss = Loss::deserialize(json);
      const Json& expected = record.at(reduction);
      expect_near(loss(y, p), expected.at("plain"));
      if (const Json* weighted = expected.find("weighted")) expect_near(loss(y, p, weights), *weighted);
    }
    SCOPED_TRACE(name + ", gradient");
    GradientTape tape;
    tape.watch(p);
    expect_near(tape.gradient(Loss::deserialize(made_of(record))(y, p), p), record.at("gradient"));
  }
}

TEST(RecordedValues, Resizing) {
  const Json all = recorded("resizing");
  const Tensor images = tensor(all.at("images"));
  for (const Json& record : all.at("cases").items()) {
    const Json& arguments = record.at("arguments");
    SCOPED_TRACE(arguments.dump());
    const Dims size{arguments.at("size").at(0).as_int(), arguments.at("size").at(1).as_int()};
    GradientTape tape;
    tape.watch(images);
    const Tensor y = image::resize(images, size,
                                   {.interpolation = arguments.at("interpolation").as_string(),
                                    .antialias = arguments.at("antialias").as_bool()});
    expect_near(y, record.at("y"));
    if (const Json* upstream = record.find("upstream"))
      expect_near(tape.gradient(reduce_sum(y * tensor(*upstream)), images), record.at("gradient"), 1e-5);
  }
  const Tensor whole = cast(tensor(all.at("integers")), DType::uint8);
  for (const Json& record : all.at("of_integers").items()) {
    SCOPED_TRACE(record.at("arguments").dump());
    const Layer layer =
        Layer::deserialize(Json::object({{"class_name", "Resizing"}, {"config", record.at("arguments")}}));
    const Tensor y = layer(whole);
    EXPECT_EQ(y.dtype(), DType::uint8);
    expect_near(y, record.at("y"), 0);
  }
}

TEST(RecordedValues, Metrics) {
  const Json all = recorded("metric_values");
  const Json& metrics = all.at("metrics");
  for (const Json& record : metrics.items()) {
    const Json& batches = all.at("data").at(record.at("data").as_string());
    for (const char* kind : {"plain", "weighted"}) {
      const Json* expected = record.find(kind);
      const bool weighted = std::string(kind) == "weighted";
      // Keras makes whole numbers of the weights of these.
      if (!expected || (weighted && record.at("class_name").as_string().find("IoU") != std::string::npos))
        continue;
      SCOPED_TRACE(record.at("class_name").as_string() + record.at("arguments").dump() + ", " + kind);
      const Metric metric = Metric::deserialize(made_of(record));
      for (size_t i = 0; i < batches.items().size(); ++i) {
        const Tensor weights = weighted ? tensor(all.at("sample_weight").at(i)) : Tensor();
        const Json& batch = batches.at(i);
        if (metric.base()->takes_values())
          metric.update_state(tensor(batch.at(size_t{0})), weights);
        else
          metric.update_state(tensor(batch.at(size_t{0})), tensor(batch.at(size_t{1})), weights);
        expect_near(metric.result(), expected->at(i), 1e-5);
      }
    }
  }
}

TEST(RecordedValues, Initializers) {
  const Json all = recorded("initializer_values");
  const auto shape_of = [](const Json& record) {
    Shape shape;
    for (const Json& size : record.at("shape").items()) shape.push_back(size.as_int());
    return shape;
  };
  const Json& exact = all.at("exact");
  for (const Json& record : exact.items())
    expect_near(Initializer::deserialize(made_of(record))(shape_of(record)), record.at("value"));
  // Samples of a few thousand numbers each: their moments differ by chance.
  const Json& drawn = all.at("drawn");
  for (const Json& record : drawn.items()) {
    SCOPED_TRACE(record.dump());
    if (!record.find("std")) continue;
    const double spread = record.at("std").as_double();
    Json json = made_of(record);
    if (!json.at("config").find("seed")) json["config"].set("seed", 11);
    const Tensor x = Initializer::deserialize(json)(shape_of(record));
    const double slack = 6 * spread / std::sqrt(static_cast<double>(x.size()));
    const Tensor mean = reduce_mean(x);
    EXPECT_NEAR(mean.item<float>(), record.at("mean").as_double(), slack);
    EXPECT_NEAR(std::sqrt(reduce_mean(square(x - mean)).item<float>()), spread, slack);
    const double largest = std::max(-record.at("min").as_double(), record.at("max").as_double());
    EXPECT_NEAR(reduce_max(abs(x)).item<float>(), largest, 0.35 * largest);
  }
  const Json& names = all.at("by_name");
  for (const auto& [name, json] : names.members())
    EXPECT_EQ(Initializer(name).serialize().at("class_name"), json.at("class_name"));
}

TEST(RecordedValues, RegularizersAndConstraints) {
  const Json all = recorded("regularizers_and_constraints");
  const Tensor matrix = tensor(all.at("matrix"));
  for (const Json& record : all.at("regularizers").items()) {
    SCOPED_TRACE(record.dump());
    expect_near(Regularizer::deserialize(record.at("regularizer"))(matrix), record.at("penalty"));
  }
  for (const Json& record : all.at("constraints").items()) {
    SCOPED_TRACE(record.dump());
    expect_near(Constraint::deserialize(record.at("constraint"))(matrix), record.at("result"));
  }
  for (const Json& record : all.at("kernel_constraints").items()) {
    SCOPED_TRACE(record.dump());
    expect_near(Constraint::deserialize(record.at("constraint"))(tensor(all.at("kernel"))),
                record.at("result"));
  }
}

// With the scores as a second result, and a query for which no key counts: zeros from the layers with heads,
// the mean of all values from the others.
TEST(RecordedValues, AttentionScoresWhereAQuerySeesNoKey) {
  const Json all = recorded("attention_scores");
  const auto masked = [&](const char* name) {
    Tensor x = tensor(all.at(name));
    x.impl()->mask = cast(tensor(all.at("value_mask")), DType::boolean).impl();
    return x;
  };
  for (const Json& record : all.at("cases").items()) {
    const bool keys = record.at("mask").as_string() == "keys";
    SCOPED_TRACE(record.at("layer").at("class_name").as_string() + " " + record.at("mask").as_string());
    const Layer layer = Layer::deserialize(record.at("layer"));
    TensorList inputs{tensor(all.at("query")), keys ? masked("value") : tensor(all.at("value"))};
    if (record.at("inputs").as_int() == 3) inputs.push_back(keys ? masked("key") : tensor(all.at("key")));
    CallOptions options{.return_attention_scores = true};
    if (!keys) options.attention_mask = cast(tensor(all.at("pairs")), DType::boolean);
    layer.apply(inputs, options);
    TensorList weights;
    for (const Json& weight : record.at("weights").items()) weights.push_back(tensor(weight));
    layer.set_weights(weights);
    const TensorList results = layer.apply(inputs, options);
    ASSERT_EQ(results.size(), 2U);
    expect_near(results[0], record.at("output"));
    expect_near(results[1], record.at("scores"));
  }
}

}  // namespace
}  // namespace lockstep::keras
