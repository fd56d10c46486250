// Models: how they are put together, named, frozen, shown, written and read.
#include "lockstep/keras/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "execute/compile_test.h"
#include "keras/fields.h"
#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/keras/layers.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class F>
std::string refusal(F&& f) {
  return lockstep::testing::error_of(f).what();
}

Tensor filled(const Shape& shape, double value) { return Tensor::full(DType::float32, shape, value); }
std::vector<float> floats(const Tensor& tensor) { return tensor.to_vector<float>(); }
std::vector<std::string> names_of(const std::vector<Variable>& variables) {
  std::vector<std::string> names;
  for (const Variable& variable : variables) names.push_back(variable.name());
  return names;
}

// --- written as Keras writes them --------------------------------------------------------------------------

Json recorded(const std::string& name) {
  return Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/" + name + ".json");
}

TEST(Models, AreSummarisedAsKerasDoes) {
  const Json paths = recorded("paths"), summaries = recorded("summaries");
  int compared = 0;
  for (const auto& [name, entry] : paths.members()) {
    const Json* expected = summaries.find(name);
    // The other file has it built.
    if (!expected || !entry.is_object() || name.ends_with("_unbuilt")) continue;
    SCOPED_TRACE(name);
    const Model model = Model::from_json(entry.at("model").dump());
    std::string summary;
    model.summary({.line_length = 80, .print_fn = [&](const std::string& text) { summary += text; }});
    EXPECT_EQ(summary, expected->as_string());
    ++compared;
    const auto also = [&](const char* suffix, SummaryOptions options) {
      const Json* other = summaries.find(name + suffix);
      if (!other) return;
      std::string text;
      options.print_fn = [&](const std::string& printed) { text += printed; };
      model.summary(options);
      EXPECT_EQ(text, other->as_string()) << suffix;
    };
    also("_expanded", {.line_length = 80, .expand_nested = true});
    also("_trainable", {.line_length = 80, .show_trainable = true});
  }
  EXPECT_GE(compared, 5);
}

TEST(Models, ListTheirWeightsInKerasOrderAndSurviveJson) {
  const Json paths = recorded("paths");
  for (const auto& [name, entry] : paths.members()) {
    if (!entry.is_object()) continue;
    SCOPED_TRACE(name);
    const Model model = Model::from_json(entry.at("model").dump());
    const std::vector<Variable> weights = model.weights();
    const Json::List& expected = entry.at("in_code").items();
    ASSERT_EQ(weights.size(), expected.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      const std::string& path = expected[i].at(size_t{0}).as_string();
      EXPECT_TRUE(path == weights[i].name() || path.ends_with("/" + weights[i].name()) ||
                  weights[i].name().ends_with("/" + path))
          << weights[i].name() << ", recorded " << path;
    }
    const std::string written = model.to_json();
    const Model again = Model::from_json(written);
    EXPECT_EQ(again.to_json(), written);
    EXPECT_EQ(names_of(again.weights()), names_of(weights));
  }
}

// --- layers of one's own -----------------------------------------------------------------------------------

class Doubling final : public LayerBase {
 public:
  explicit Doubling(int64_t times, const std::string& name = {})
      : LayerBase("Doubling", {.name = name}), times_(times) {}
  void build(const Shape&) override { offset_ = add_weight("offset", {}, {.initializer = "ones"}); }
  Tensor call(const Tensor& x, const CallContext&) override {
    Tensor y = x;
    for (int64_t i = 0; i < times_; ++i) y = y * 2.0;
    return y + offset_.value();
  }
  Json get_config() const override {
    Json config = LayerBase::get_config();
    config.set("times", times_);
    return config;
  }

 private:
  int64_t times_;
  Variable offset_;
};

TEST(Models, PackagesNameTheLayersThatTheyRegister) {
  register_layer("Tests>Doubling", [](const Json& config) {
    return make_layer<Doubling>(config.at("times").as_int(), config.at("name").as_string());
  });
  const Layer layer = make_layer<Doubling>(3, "eightfold");
  const Json json = layer.serialize();
  EXPECT_EQ(json.at("registered_name").as_string(), "Tests>Doubling");
  EXPECT_EQ(json.at("class_name").as_string(), "Doubling");
  EXPECT_TRUE(json.at("module").is_null());
  EXPECT_EQ(Layer::deserialize(json).name(), "eightfold");
}

TEST(Models, FunctionsAreWrittenByNamesThatAreRegistered) {
  const auto twice = [](const Tensor& y_true, const Tensor& y_pred) {
    return 2.0 * losses::mean_squared_error(y_true, y_pred);
  };
  const Loss loss = losses::from_function(twice, {.name = "twice"});
  const Metric metric = metrics::MeanMetricWrapper(twice, {.name = "twice"});
  EXPECT_THAT(refusal([&] { loss.serialize(); }), HasSubstr("register_loss()"));
  EXPECT_THAT(refusal([&] { metric.serialize(); }), HasSubstr("register_metric()"));
  losses::register_loss("twice",
                        [=](const Json&) { return losses::from_function(twice, {.name = "twice"}); });
  metrics::register_metric("twice",
                           [=](const Json&) { return metrics::MeanMetricWrapper(twice, {.name = "twice"}); });
  const Tensor labels = filled({2, 3}, 0), predictions = filled({2, 3}, 1);
  EXPECT_EQ(Loss::deserialize(loss.serialize())(labels, predictions).item<float>(), 2);
  const Metric read = Metric::deserialize(metric.serialize());
  read.update_state(labels, predictions);
  EXPECT_EQ(read.result().item<float>(), 2);
}

TEST(Models, OfRegisteredLayersSurviveJson) {
  register_layer("Doubling", [](const Json& config) {
    return make_layer<Doubling>(config.at("times").as_int(), config.at("name").as_string());
  });
  const Sequential model({make_layer<Doubling>(3, "eightfold")});
  model.build({-1, 2});
  const Model read = Model::from_json(model.to_json());
  EXPECT_EQ(read.get_layer("eightfold").class_name(), "Doubling");
  EXPECT_EQ(floats(read.predict(filled({1, 2}, 1), {.verbose = 0})), (std::vector<float>{9, 9}));
  EXPECT_THAT(refusal([&] {
                std::string text = model.to_json();
                for (size_t at; (at = text.find("Doubling")) != std::string::npos;)
                  text.replace(at, 8, "Trebling");
                Model::from_json(text);
              }),
              HasSubstr("Trebling"));
  EXPECT_THAT(refusal([] { Model::from_json("{\"class_name\": 3}"); }),
              ::testing::Not(HasSubstr("internal")));
  EXPECT_THAT(refusal([] { Model::from_json("{"); }), HasSubstr("model JSON"));
  register_layer("Doubling", [](const Json&) -> Layer { throw std::bad_alloc(); });
  EXPECT_THAT(refusal([&] { Model::from_json(model.to_json()); }),
              HasSubstr("from_json: there is not enough memory"));
}

// A model with a call() of its own.
class Residual final : public ModelBase {
 public:
  Residual() : ModelBase("Residual", {.name = "residual"}) {
    inner_ = track(layers::Dense(2, {.kernel_initializer = "ones", .name = "inner"}));
    head_ = track(layers::Dense(1, {.name = "head"}));
  }
  Tensor call(const Tensor& x, const CallContext&) override { return head_(inner_(x) + x); }

 private:
  Layer inner_, head_;
};

TEST(Models, WithACallOfTheirOwnTrain) {
  const Model model = make_model<Residual>();
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.01}), .loss = "mse"});
  std::vector<size_t> weights_at_begin;
  const auto begin = [&](const Logs&) { weights_at_begin.push_back(model.weights().size()); };
  const History history = model.fit(
      filled({8, 2}, 1), filled({8, 1}, 3),
      {.epochs = 5, .verbose = 0, .callbacks = {callbacks::LambdaCallback({.on_train_begin = begin})}});
  EXPECT_LT(history["loss"].back(), history["loss"].front());
  EXPECT_THAT(weights_at_begin, ElementsAre(4U)) << "callbacks find the weights";
  EXPECT_THAT(names_of(model.weights()), ElementsAre("residual/inner/kernel", "residual/inner/bias",
                                                     "residual/head/kernel", "residual/head/bias"));
  EXPECT_EQ(model.predict(filled({3, 2}, 1), {.verbose = 0}).shape(), Shape({3, 1}));
}

// --- sharing, nesting, freezing ----------------------------------------------------------------------------

TEST(Models, ShareLayers) {
  const Layer shared = layers::Dense(2, {.kernel_regularizer = regularizers::L2(0.5), .name = "shared"});
  const KerasTensor a = Input({2}), b = Input({2});
  const Model encoder(a, shared(a), {.name = "encoder"});
  const Model model(KerasTensorList{a, b},
                    KerasTensorList{layers::Add()(KerasTensorList{encoder(a), shared(b)})});
  EXPECT_EQ(model.weights().size(), 2U);
  EXPECT_EQ(model.losses().size(), 1U) << "its penalty counts once";
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mse"});
  shared.set_weights({filled({2, 2}, 1), filled({2}, 0)});
  const Logs logs = model.test_on_batch({{filled({1, 2}, 1), filled({1, 2}, 2)}, {filled({1, 2}, 6)}, {}});
  EXPECT_NEAR(logs.find("loss").value(), 0.5 * 4, 1e-6) << "2 + 4 is 6: what is left is the penalty";
}

TEST(Models, NestAndFindTheirLayers) {
  const Sequential inner({layers::Dense(3, {.name = "first", .input_shape = {2}})}, {.name = "inner"});
  const Sequential outer({inner, layers::Dense(1, {.name = "last"})}, {.name = "outer"});
  EXPECT_THAT(names_of(outer.weights()),
              ElementsAre("inner/first/kernel", "inner/first/bias", "outer/last/kernel", "outer/last/bias"));
  EXPECT_EQ(outer.get_layer("inner"), Layer(inner));
  EXPECT_EQ(outer.get_layer(1).name(), "last");
  EXPECT_THAT(refusal([&] { outer.get_layer("lost"); }),
              AllOf(HasSubstr("did you mean \"last\"?"), HasSubstr("It has inner, last")));
  EXPECT_THAT(refusal([&] { outer.get_layer(7); }), HasSubstr("has 2 layers, there is no layer 7"));
}

TEST(Models, DoNotTrainWhatIsFrozen) {
  const Sequential model(
      {layers::Dense(2, {.kernel_regularizer = regularizers::L2(1), .name = "a", .input_shape = {2}}),
       layers::Dense(1, {.name = "b"})});
  model.get_layer("a").set_trainable(false);
  EXPECT_EQ(model.trainable_weights().size(), 2U);
  EXPECT_EQ(model.non_trainable_weights().size(), 2U);
  EXPECT_TRUE(model.losses().empty()) << "weights that do not learn have no penalty";
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const std::vector<float> before = floats(model.get_weights()[0]), head = floats(model.get_weights()[2]);
  model.fit(filled({8, 2}, 1), filled({8, 1}, 3), {.verbose = 0});
  EXPECT_EQ(floats(model.get_weights()[0]), before);
  EXPECT_NE(floats(model.get_weights()[2]), head);
}

TEST(Models, KeepWhatGetWeightsGave) {
  const Sequential model({layers::Dense(1, {.input_shape = {2}})});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const TensorList before = model.get_weights();
  const std::vector<float> values = floats(before[0]);
  model.fit(filled({8, 2}, 1), filled({8, 1}, 3), {.verbose = 0});
  EXPECT_EQ(floats(before[0]), values) << "a copy, not the weight itself";
  EXPECT_NE(floats(model.get_weights()[0]), values);
}

// --- inputs and outputs by name ----------------------------------------------------------------------------

Model named_model() {
  const KerasTensor left = Input({3}, {.name = "left"}), right = Input({2}, {.name = "right"});
  const KerasTensor both = layers::Concatenate()(KerasTensorList{left, right});
  return Model({{"wide", left}, {"narrow", right}}, {{"size", layers::Dense(1, {.name = "head"})(both)},
                                                     {"kind", layers::Dense(2, {.name = "logits"})(both)}});
}

TEST(NamedModels, TakeDataAndLossesByTheirNames) {
  const Model model = named_model();
  EXPECT_THAT(model.model_base().input_names(), ElementsAre("narrow", "wide"));
  EXPECT_THAT(model.model_base().output_names(2), ElementsAre("kind", "size"));
  model.compile({.optimizer = "sgd",
                 .loss = std::map<std::string, Loss>{{"size", "mse"}, {"kind", "mae"}},
                 .metrics = std::map<std::string, std::vector<Metric>>{{"kind", {"mse"}}}});
  const Data::Named x{{"wide", filled({4, 3}, 1)}, {"narrow", filled({4, 2}, 2)}};
  const Data::Named y{{"size", filled({4, 1}, 3)}, {"kind", filled({4, 2}, 1)}};
  const History history = model.fit(Data(x, y), {.verbose = 0});
  for (const char* figure : {"loss", "size_loss", "kind_loss", "kind_mse"})
    EXPECT_TRUE(history.contains(figure));
  const std::map<std::string, Tensor> predicted = model.predict_named(Data(x, {}), {.verbose = 0});
  ASSERT_EQ(predicted.size(), 2u);
  EXPECT_EQ(predicted.at("size").shape(), (Shape{4, 1}));
  EXPECT_EQ(predicted.at("kind").shape(), (Shape{4, 2}));
  // The names of layers are not those of the model.
  EXPECT_THAT(refusal([&] {
                model.predict_all(Data(Data::Named{{"left", x.at("wide")}, {"right", x.at("narrow")}}, {}));
              }),
              HasSubstr("left"));
  const Model again = Model::from_json(model.to_json());
  again.set_weights(model.get_weights());
  EXPECT_THAT(again.model_base().input_names(), ElementsAre("narrow", "wide"));
  EXPECT_EQ(floats(again.predict_named(Data(x, {}), {.verbose = 0}).at("kind")),
            floats(predicted.at("kind")));
}

// --- float64 -----------------------------------------------------------------------------------------------

class Float64Models : public ::testing::Test {
 protected:
  Float64Models() { mixed_precision::set_global_policy("float64"); }
  ~Float64Models() override { mixed_precision::set_global_policy(previous_); }
  DTypePolicy previous_ = mixed_precision::global_policy();
};

// A third has no exact float32: any rounding on the way would show.
TEST_F(Float64Models, KeepDataLabelsAndWeightsAsTheyAre) {
  const double third = 1.0 / 3;
  const Tensor x = Tensor::full(DType::float64, {6, 1}, third), y = Tensor::full(DType::float64, {6, 1}, 0);
  const Tensor weight = Tensor::full(DType::float64, {6}, third);
  const KerasTensor input = Input({1});
  EXPECT_EQ(input.dtype(), DType::float64);
  for (const Model& model : {Model(input, layers::Dense(1, {.kernel_initializer = "ones"})(input)),
                             Model(Sequential({layers::Dense(1, {.kernel_initializer = "ones"})}))}) {
    model.compile({.optimizer = optimizers::SGD({.learning_rate = third}),
                   .loss = "mse",
                   .metrics = {"mae"},
                   .weighted_metrics = {"mse"}});
    const Logs logs = model.evaluate(Data(x, y, weight), {.batch_size = 4, .verbose = 0});
    EXPECT_EQ(model.predict(Data(x), {.verbose = 0}).dtype(), DType::float64);
    EXPECT_NEAR(*logs.find("loss"), third * third * third, 1e-16);
    EXPECT_NEAR(*logs.find("mae"), third, 1e-16);
    EXPECT_NEAR(*logs.find("mse"), third * third, 1e-16);
    const auto batches = data::Dataset::from_tensor_slices({x, y, weight}).batch(4);
    EXPECT_NEAR(*model.evaluate(batches, {.verbose = 0}).find("loss"), third * third * third, 1e-16);
    // w -= rate * weight * mean(2 w x x) over one batch of all, where the weights of class 0 are thirds too.
    model.fit(Data(x, y), {.batch_size = 6, .verbose = 0, .class_weight = {{0, third}}});
    EXPECT_NEAR(cast(model.get_weights()[0], DType::float64).item<double>(),
                1 - third * third * 2 * third * third, 1e-15);
    EXPECT_EQ(model.optimizer().learning_rate().dtype(), DType::float64);
  }
}

// --- weights in files --------------------------------------------------------------------------------------

class WeightFiles : public ::testing::Test {
 protected:
  ~WeightFiles() override { std::filesystem::remove(path_); }
  std::string path_ = ::testing::TempDir() + "/weights_" + std::to_string(getpid()) + ".safetensors";
};

Sequential two_layers(int64_t width, const std::string& second) {
  return Sequential(
      {layers::Dense(width, {.name = "one", .input_shape = {3}}), layers::Dense(2, {.name = second})},
      {.name = "net"});
}

TEST_F(WeightFiles, HoldWeightsByPath) {
  const Sequential model = two_layers(4, "two");
  model.save_weights(path_);
  std::vector<std::string> names;
  const train::SafetensorsFile file(path_);
  for (const auto& entry : file.entries()) names.push_back(entry.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("net/one/kernel", "net/one/bias", "net/two/kernel",
                                                     "net/two/bias"));
  const Sequential other = two_layers(4, "two");
  other.load_weights(path_);
  EXPECT_EQ(floats(other.get_weights()[0]), floats(model.get_weights()[0]));
}

TEST_F(WeightFiles, AreLoadedByStructureAsInKeras) {
  const auto model_of = [](const std::vector<std::string>& names) {
    std::vector<Layer> stack;
    for (const std::string& name : names)
      stack.push_back(layers::Dense(3, {.name = name, .input_shape = {3}}));
    return Sequential(stack);
  };
  // The names of the second are those of the first, in another order: they say nothing about the layers.
  const Sequential saved = model_of({"dense_1", "dense"});
  saved.save_weights(path_);
  for (const Sequential& other : {model_of({"dense", "dense_1"}), model_of({"", ""}), model_of({"a", "b"})}) {
    other.load_weights(path_);
    for (const size_t i : {0, 2}) EXPECT_EQ(floats(other.get_weights()[i]), floats(saved.get_weights()[i]));
  }
}

TEST_F(WeightFiles, OfOthersAreLoadedByName) {
  const Sequential saved = two_layers(3, "two"), other = two_layers(3, "two");
  train::NamedTensors reversed;
  for (const Variable& weight : saved.weights())
    reversed.emplace(reversed.begin(), weight.name(), weight.value());
  train::save_safetensors(path_, reversed);
  other.load_weights(path_);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(floats(other.get_weights()[i]), floats(saved.get_weights()[i]));
}

TEST_F(WeightFiles, ThatDoNotFitAreRefusedWhole) {
  two_layers(4, "two").save_weights(path_);
  const Sequential other = two_layers(5, "second");
  const std::vector<float> before = floats(other.get_weights()[0]);
  EXPECT_THAT(refusal([&] { other.load_weights(path_); }),
              AllOf(HasSubstr("net/one/kernel is float32(3, 5) in the model and float32(3, 4) in the file"),
                    HasSubstr("missing: net/second/kernel"), HasSubstr("not in the model: net/two/bias")));
  EXPECT_EQ(floats(other.get_weights()[0]), before) << "nothing was changed";
  EXPECT_THAT(refusal([&] { other.load_weights(path_ + ".none"); }), HasSubstr(".none"));
  EXPECT_THAT(refusal([&] { Sequential({layers::Dense(1)}).save_weights(path_); }),
              HasSubstr("has no weights yet; call build() or fit() first"));
}

}  // namespace
}  // namespace lockstep::keras
