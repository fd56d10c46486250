// fit, evaluate and predict.
#include "keras/training/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>

#include "execute/compile_test.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

template <class F>
std::string refusal(F&& f) {
  return lockstep::testing::error_of(f).what();
}
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Row i is i, i + 0.5.
Tensor rows(int64_t n) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(i));
    values.push_back(static_cast<float>(i) + 0.5F);
  }
  return Tensor::from(values, {n, 2});
}
Tensor column(int64_t n) { return reduce_sum(rows(n), {.axis = {1}, .keepdims = true}); }

Model linear(const CompileOptions& options = {.optimizer = "sgd", .loss = "mse"}) {
  const Sequential model({layers::Dense(1, {.kernel_initializer = "zeros", .input_shape = {2}})});
  model.compile(options);
  return model;
}

// What a training step is given.
class SeenBatches final : public LayerBase {
 public:
  explicit SeenBatches(std::vector<int64_t>& sizes) : LayerBase("SeenBatches"), sizes_(sizes) {}
  Tensor call(const Tensor& x, const CallContext& context) override {
    if (context.training) sizes_.push_back(x.shape()[0]);
    return x;
  }

 private:
  std::vector<int64_t>& sizes_;
};

// The order in which examples came, read from a model that answers with them.
std::vector<float> floats(const Tensor& tensor) { return tensor.to_vector<float>(); }

// Everything that callbacks hear.
class Listener final : public CallbackBase {
 public:
  explicit Listener(std::vector<std::string>& heard) : heard_(heard) {}
  void on_train_begin(const Logs&) override { heard_.emplace_back("train"); }
  void on_train_end(const Logs&) override { heard_.emplace_back("end"); }
  void on_epoch_begin(int epoch, const Logs&) override { heard_.push_back("epoch " + std::to_string(epoch)); }
  void on_epoch_end(int epoch, const Logs& logs) override {
    heard_.push_back("epoch end " + std::to_string(epoch) + (logs.find("val_loss") ? " validated" : ""));
  }
  void on_train_batch_end(int64_t batch, const Logs&) override {
    heard_.push_back("batch " + std::to_string(batch));
  }
  void on_test_begin(const Logs&) override { heard_.emplace_back("test"); }
  void on_test_batch_end(int64_t batch, const Logs&) override {
    heard_.push_back("test batch " + std::to_string(batch));
  }

 private:
  std::vector<std::string>& heard_;
};

class Warnings {
 public:
  Warnings()
      : previous_(set_log_sink([this](const LogMessage& message) { texts.emplace_back(message.text); })) {}
  ~Warnings() { set_log_sink(previous_); }
  std::vector<std::string> texts;

 private:
  LogSink previous_;
};

std::vector<float> weights_of(const Model& model) {
  std::vector<float> all;
  for (const Tensor& weight : model.get_weights()) {
    const std::vector<float> values = floats(weight);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// --- as Keras recorded -------------------------------------------------------------------------------------

const Json& recorded() {
  static const Json json = Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/fit.json");
  return json;
}

Tensor tensor(const Json& json) {
  std::vector<float> values;
  Shape shape;
  const auto collect = [&](const auto& self, const Json& part, int depth) -> void {
    if (!part.is_list()) {
      values.push_back(static_cast<float>(part.as_double()));
      return;
    }
    if (shape.rank() == depth) shape.push_back(static_cast<int64_t>(part.items().size()));
    for (const Json& item : part.items()) self(self, item, depth + 1);
  };
  collect(collect, json, 0);
  return Tensor::from(values, shape);
}

Model recorded_model() {
  const Model model = Model::from_json(recorded().at("model").dump());
  for (const Variable& weight : model.weights())
    for (const auto& [path, value] : recorded().at("initial").members())
      if (path.ends_with(weight.name()) || weight.name().ends_with(path)) weight.assign(tensor(value));
  return model;
}

// Times are the machine's.
std::string without_times(const std::string& text) {
  return std::regex_replace(text, std::regex(" - \\d+s - \\d+[mu]?s/step"), "");
}

TEST(Fit, AgreesWithKeras) {
  const Tensor x = tensor(recorded().at("x")), y = tensor(recorded().at("y"));
  const Tensor weights = tensor(recorded().at("sample_weight"));
  const auto head = [](const Tensor& t) {
    std::vector<float> values = floats(t);
    const int64_t width = t.shape()[1];
    values.resize(static_cast<size_t>(5 * width));
    return Tensor::from(values, {5, width});
  };
  for (const Json& fit : recorded().at("fits").items()) {
    const Json& arguments = fit.at("arguments");
    SCOPED_TRACE(arguments.dump());
    const Model model = recorded_model();
    const std::string csv = ::testing::TempDir() + "/fit_agrees.csv";
    FitOptions options{.verbose = 2, .callbacks = {callbacks::CSVLogger(csv)}, .shuffle = false};
    Data data(x, y);
    for (const auto& [name, value] : arguments.members()) {
      if (name == "epochs")
        options.epochs = static_cast<int>(value.as_int());
      else if (name == "batch_size")
        options.batch_size = value.as_int();
      else if (name == "validation_split")
        options.validation_split = value.as_double();
      else if (name == "validation_freq")
        options.validation_freq = static_cast<int>(value.as_int());
      else if (name == "validation_batch_size")
        options.validation_batch_size = value.as_int();
      else if (name == "initial_epoch")
        options.initial_epoch = static_cast<int>(value.as_int());
      else if (name == "steps_per_epoch")
        options.steps_per_epoch = value.as_int();
      else if (name == "sample_weight")
        data = Data(x, y, weights);
      else if (name == "validation_data")
        options.validation_data = Data(head(x) * 0.5, head(y));
      else if (name == "class_weight") {
        for (const auto& [label, weight] : value.members())
          options.class_weight[std::stoll(label)] = weight.as_double();
      } else {
        FAIL() << "unknown argument " << name;
      }
    }
    ::testing::internal::CaptureStdout();
    const Warnings quiet;
    options.report = false;
    const History history = model.fit(data, options);
    std::string printed = without_times(::testing::internal::GetCapturedStdout());
    // Where the data ends early the line says how far it came; Keras claims that all steps were made.
    if (options.steps_per_epoch > 0) printed = std::regex_replace(printed, std::regex("1/2 "), "2/2 ");
    EXPECT_EQ(printed, without_times(fit.at("verbose_2").as_string()));

    std::vector<int64_t> epochs;
    for (const Json& epoch : fit.at("epoch").items()) epochs.push_back(epoch.as_int());
    EXPECT_EQ(std::vector<int64_t>(history.epoch.begin(), history.epoch.end()), epochs);
    EXPECT_EQ(history.history.size(), fit.at("history").members().size());
    for (const auto& [name, values] : fit.at("history").members()) {
      ASSERT_TRUE(history.contains(name)) << name;
      ASSERT_EQ(history[name].size(), values.items().size()) << name;
      for (size_t i = 0; i < values.items().size(); ++i)
        EXPECT_NEAR(history[name][i], values.at(i).as_double(), 3e-6) << name;
    }
    for (const auto& [path, value] : fit.at("final").members())
      for (const Variable& weight : model.weights()) {
        if (!path.ends_with(weight.name()) && !weight.name().ends_with(path)) continue;
        EXPECT_THAT(floats(weight.value()),
                    ::testing::Pointwise(::testing::FloatNear(3e-6F), floats(tensor(value))))
            << path;
      }
    // The file has the same cells; the last digits are rounding.
    std::ifstream file(csv, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto cells = [](const std::string& all) {
      static const std::regex separator("[,\\n]");
      return std::vector<std::string>(std::sregex_token_iterator(all.begin(), all.end(), separator, -1), {});
    };
    const std::vector<std::string> ours = cells(text), theirs = cells(fit.at("csv").as_string());
    ASSERT_EQ(ours.size(), theirs.size()) << text;
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i] == theirs[i]) continue;
      EXPECT_EQ(ours[i].ends_with("\r"), theirs[i].ends_with("\r"));
      EXPECT_NEAR(std::stod(ours[i]), std::stod(theirs[i]), 3e-6) << text;
    }
  }
}

TEST(Evaluate, AgreesWithKeras) {
  const Tensor x = tensor(recorded().at("x")), y = tensor(recorded().at("y"));
  const Model model = recorded_model();
  for (const Json& evaluation : recorded().at("evaluations").items()) {
    const Json& arguments = evaluation.at("arguments");
    if (!evaluation.at("result").is_object()) continue;
    const Logs logs =
        model.evaluate(Data(x, y), {.batch_size = arguments.at("batch_size").as_int(), .verbose = 0});
    for (const auto& [name, value] : evaluation.at("result").members())
      EXPECT_NEAR(logs.find(name).value(), value.as_double(), 2e-6) << name;
  }
}

// --- batches -----------------------------------------------------------------------------------------------

TEST(Fit, TakesThirtyTwoExamplesAtATimeAndThePartialLastBatch) {
  std::vector<std::string> heard;
  const Model model = linear();
  model.fit(rows(70), column(70), {.verbose = 0, .callbacks = {make_callback<Listener>(heard)}});
  EXPECT_THAT(heard, ElementsAre("train", "epoch 0", "batch 0", "batch 1", "batch 2", "epoch end 0", "end"));

  std::vector<int64_t> sizes;
  const Sequential seen({make_layer<SeenBatches>(sizes), layers::Dense(1)});
  seen.compile({.optimizer = "sgd", .loss = "mse"});
  seen.fit(rows(70), column(70), {.verbose = 0});
  EXPECT_THAT(sizes, Contains(32));
  EXPECT_THAT(sizes, Contains(6)) << "a step is traced for the last batch as well";
}

TEST(Fit, ShufflesEachEpochInAnOrderThatTheSeedFixes) {
  const auto run = [](uint64_t seed, bool shuffle) {
    const Model model = linear({.optimizer = optimizers::SGD({.learning_rate = 1e-4}), .loss = "mse"});
    set_random_seed(seed);
    model.fit(rows(50), column(50), {.batch_size = 8, .epochs = 3, .verbose = 0, .shuffle = shuffle});
    return weights_of(model);
  };
  EXPECT_EQ(run(1, true), run(1, true));
  EXPECT_NE(run(1, true), run(2, true));
  EXPECT_EQ(run(1, false), run(2, false));
}

TEST(Stream, AShuffledPassGivesEveryExampleOnceAndAnotherOrderEachTime) {
  std::vector<float> last;
  // With and without prefetch, which batches of 64 KiB or more have.
  for (const int free_threads : {0, 1}) {
    const int64_t n = 1000, width = 600;
    std::vector<float> values(static_cast<size_t>(n * width));
    for (int64_t row = 0; row < n; ++row)
      std::fill_n(values.begin() + row * width, width, static_cast<float>(row));
    const Data data(Tensor::from(values, {n, width}), rows(n));
    BatchStream stream(data, {.batch_size = 64, .shuffle = true, .free_threads = free_threads}, false);
    for (int epoch = 0; epoch < 2; ++epoch) {
      stream.begin_epoch();
      std::vector<float> order;
      Batch batch;
      while (stream.next(batch)) {
        const std::vector<float> x = floats(batch.x[0]), y = floats(batch.y[0]);
        ASSERT_EQ(batch.x[0].shape()[0], order.size() < 960 ? 64 : 40);
        for (size_t i = 0; i < y.size() / 2; ++i) {
          EXPECT_EQ(x[i * static_cast<size_t>(width)], y[2 * i]);
          EXPECT_EQ(x[(i + 1) * static_cast<size_t>(width) - 1], y[2 * i]);
          order.push_back(y[2 * i]);
        }
      }
      EXPECT_NE(order, last);
      last = order;
      std::sort(order.begin(), order.end());
      ASSERT_EQ(order.size(), 1000U);
      for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], static_cast<float>(i));
    }
  }
}

TEST(Stream, ABatchThatSomebodyKeepsIsLeftAlone) {
  const Data data(rows(400), column(400));
  BatchStream stream(data, {.batch_size = 100, .shuffle = true}, false);
  stream.begin_epoch();
  Batch batch;
  std::vector<Tensor> kept;
  std::vector<std::vector<float>> values;
  while (stream.next(batch)) {
    kept.push_back(batch.x[0]);
    values.push_back(floats(batch.x[0]));
  }
  ASSERT_EQ(kept.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(floats(kept[i]), values[i]);
}

TEST(Stream, StandsWhereItStoodOnceRestored) {
  const Data data(rows(90), column(90));
  for (const bool continues : {false, true}) {
    set_random_seed(3);
    BatchStream stream(data, {.batch_size = 20, .shuffle = true}, continues);
    stream.begin_epoch();
    Batch batch;
    for (int i = 0; i < 3; ++i) stream.next(batch);
    const BatchStream::Position position = stream.position();
    const int64_t random = random_state();
    stream.next(batch);
    const std::vector<float> expected = floats(batch.x[0]);
    set_random_seed(99);
    BatchStream other(data, {.batch_size = 20, .shuffle = true}, continues);
    other.restore(position, random);
    EXPECT_EQ(random_state(), random);
    other.next(batch);
    EXPECT_EQ(floats(batch.x[0]), expected);
  }
}

// Batches from elsewhere, of unknown number.
class Counted final : public Data::Source {
 public:
  explicit Counted(int64_t batches) : batches_(batches) {}
  std::unique_ptr<BatchReader> read(const data::RowBatchOptions&) const override {
    class Reader final : public BatchReader {
     public:
      explicit Reader(int64_t left) : left_(left) {}
      bool next(Batch& batch) override {
        if (left_-- <= 0) return false;
        batch = {{rows(4)}, {column(4)}, {}};
        return true;
      }

     private:
      int64_t left_;
    };
    return std::make_unique<Reader>(batches_);
  }
  int64_t batches(int64_t) const override { return -1; }

 private:
  int64_t batches_;
};

TEST(Fit, WarnsOfDataThatEndsEarlyAndStartsOverWithTheNextEpoch) {
  std::vector<std::string> heard;
  const Warnings warnings;
  linear().fit(
      Data(std::make_shared<Counted>(3)),
      {.epochs = 2, .verbose = 0, .callbacks = {make_callback<Listener>(heard)}, .steps_per_epoch = 2});
  EXPECT_THAT(heard, ElementsAre("train", "epoch 0", "batch 0", "batch 1", "epoch end 0", "epoch 1",
                                 "batch 0", "epoch end 1", "end"));
  EXPECT_THAT(warnings.texts, Contains(HasSubstr("the data ended after 1 of 2 steps")));

  heard.clear();
  linear().fit(Data(std::make_shared<Counted>(2)),
               {.epochs = 2, .verbose = 0, .callbacks = {make_callback<Listener>(heard)}});
  EXPECT_THAT(heard, ElementsAre("train", "epoch 0", "batch 0", "batch 1", "epoch end 0", "epoch 1",
                                 "batch 0", "batch 1", "epoch end 1", "end"))
      << "without steps_per_epoch every epoch is a pass";
}

TEST(Fit, ValidatesTheEndOfTheDataOrOtherDataEverySoManyEpochs) {
  std::vector<std::string> heard;
  const Model model = linear();
  model.fit(rows(10), column(10),
            {.batch_size = 4,
             .epochs = 5,
             .verbose = 0,
             .callbacks = {make_callback<Listener>(heard)},
             .validation_split = 0.2,
             .initial_epoch = 2,
             .validation_freq = 2});
  EXPECT_THAT(heard, ElementsAre("train", "epoch 2", "batch 0", "batch 1", "epoch end 2", "epoch 3",
                                 "batch 0", "batch 1", "test", "test batch 0", "epoch end 3 validated",
                                 "epoch 4", "batch 0", "batch 1", "epoch end 4", "end"))
      << "epochs are counted from the first, whatever initial_epoch is";
  EXPECT_THAT(refusal([&] { model.fit(rows(1), column(1), {.verbose = 0, .validation_split = 0.1}); }),
              HasSubstr("validation_split 0.1 of 1 examples leaves nothing to train on"));
}

TEST(Fit, TellsCallbacksOncePerExecution) {
  std::vector<std::string> heard;
  const auto run = [&](int64_t steps) {
    heard.clear();
    const Model model = linear({.optimizer = "sgd", .loss = "mse", .steps_per_execution = steps});
    model.fit(
        rows(50), column(50),
        {.batch_size = 10, .verbose = 0, .callbacks = {make_callback<Listener>(heard)}, .shuffle = false});
    return weights_of(model);
  };
  const std::vector<float> one = run(1);
  EXPECT_EQ(run(2), one);
  EXPECT_THAT(heard, ElementsAre("train", "epoch 0", "batch 1", "batch 3", "batch 4", "epoch end 0", "end"));
}

TEST(Fit, StopsWhenAsked) {
  std::vector<std::string> heard;
  const Model model = linear();
  const auto stop = [&](int64_t batch, const Logs&) {
    if (batch == 1) model.stop_training();
  };
  const History history = model.fit(
      rows(50), column(50),
      {.batch_size = 10,
       .epochs = 3,
       .verbose = 0,
       .callbacks = {make_callback<Listener>(heard), callbacks::LambdaCallback({.on_train_batch_end = stop})},
       .validation_data = Data(rows(30), column(30))});
  EXPECT_THAT(heard, ElementsAre("train", "epoch 0", "batch 0", "batch 1", "test", "test batch 0",
                                 "test batch 1", "test batch 2", "epoch end 0 validated", "end"))
      << "the validation that follows is whole";
  EXPECT_FALSE(history.interrupted);
  EXPECT_TRUE(model.training_stopped());
  heard.clear();
  model.evaluate(rows(30), column(30),
                 {.batch_size = 10, .verbose = 0, .callbacks = {make_callback<Listener>(heard)}});
  EXPECT_EQ(heard.size(), 4U) << "an evaluation after it goes through all data";
  model.stop_training(false);
  EXPECT_FALSE(model.training_stopped());
}

TEST(Fit, CtrlCStopsAfterTheStep) {
  std::signal(SIGINT, SIG_DFL);  // what a shell runs in the background ignores it
  const Model model = linear();
  const Warnings warnings;
  std::vector<std::string> heard;
  const auto press = [](int64_t batch, const Logs&) {
    if (batch == 1) std::raise(SIGINT);
  };
  const History history = model.fit(rows(50), column(50),
                                    {.batch_size = 10,
                                     .epochs = 3,
                                     .verbose = 0,
                                     .callbacks = {make_callback<Listener>(heard),
                                                   callbacks::LambdaCallback({.on_train_batch_end = press})},
                                     .validation_split = 0.2});
  EXPECT_TRUE(history.interrupted);
  EXPECT_THAT(heard, ElementsAre("train", "epoch 0", "batch 0", "batch 1", "epoch end 0", "end"));
  EXPECT_FALSE(history.contains("val_loss"));
  EXPECT_NE(weights_of(model)[0], 0.0F) << "what was learnt is kept";
  EXPECT_THAT(warnings.texts, Contains(HasSubstr("interrupted")));

  const History again = model.fit(rows(50), column(50), {.batch_size = 10, .verbose = 0});
  EXPECT_FALSE(again.interrupted);
  EXPECT_EQ(again["loss"].size(), 1U);
  struct sigaction now {};
  sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL) << "the program's own Ctrl-C is back";
}

// --- inputs and outputs ------------------------------------------------------------------------------------

Model two_by_two() {
  const KerasTensor a = Input({2}, {.name = "a"}), b = Input({3}, {.name = "b"});
  const KerasTensor joined = layers::Concatenate()(KerasTensorList{a, b});
  return Model(KerasTensorList{a, b}, KerasTensorList{layers::Dense(1, {.name = "left"})(joined),
                                                      layers::Dense(2, {.name = "right"})(joined)});
}
Tensor filled(const Shape& shape, double value) { return Tensor::full(DType::float32, shape, value); }

TEST(Fit, TakesSeveralInputsAndOutputsByListAndByName) {
  const auto compile = [](const Model& model) {
    model.compile({.optimizer = "sgd",
                   .loss = std::map<std::string, Loss>{{"left", "mse"}, {"right", "mae"}},
                   .loss_weights = std::map<std::string, double>{{"right", 0.5}},
                   .metrics = std::map<std::string, std::vector<Metric>>{{"right", {"mse"}}}});
  };
  const Tensor a = filled({8, 2}, 1), b = filled({8, 3}, 2), left = filled({8, 1}, 3),
               right = filled({8, 2}, 4);
  const Model by_list = two_by_two(), by_name = two_by_two();
  compile(by_list);
  compile(by_name);
  by_name.set_weights(by_list.get_weights());
  const History one =
      by_list.fit(Data(TensorList{a, b}, TensorList{left, right}), {.epochs = 2, .verbose = 0});
  const History two = by_name.fit(Data({{"b", b}, {"a", a}}, {{"right", right}, {"left", left}}),
                                  {.epochs = 2, .verbose = 0});
  std::vector<std::string> names;
  for (const auto& [name, values] : one.history) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("left_loss", "loss", "right_loss", "right_mse"));
  EXPECT_EQ(weights_of(by_list), weights_of(by_name));
  EXPECT_EQ(one["loss"], two["loss"]);
  // A column that is no input is left alone, in arrays and in datasets.
  const Data::Named wide = {{"b", b}, {"other", filled({8, 1}, 5)}, {"a", a}};
  EXPECT_EQ(by_name.evaluate(Data(wide, {{"right", right}, {"left", left}}), {.verbose = 0})["loss"],
            by_name.evaluate(Data({{"b", b}, {"a", a}}, {{"right", right}, {"left", left}}),
                             {.verbose = 0})["loss"]);
  EXPECT_NEAR(one["loss"][1], one["left_loss"][1] + 0.5 * one["right_loss"][1], 1e-5);

  const TensorList predicted = by_list.predict_all(Data(TensorList{a, b}), {.batch_size = 3, .verbose = 0});
  ASSERT_EQ(predicted.size(), 2U);
  EXPECT_EQ(predicted[0].shape(), Shape({8, 1}));
  EXPECT_EQ(predicted[1].shape(), Shape({8, 2}));
  EXPECT_THAT(refusal([&] {
                by_list.predict(Data(TensorList{a, b}), {.verbose = 0});
              }),
              HasSubstr("gives 2 results; call predict_all()"));
  EXPECT_THAT(refusal([&] {
                by_name.fit(Data({{"a", a}, {"c", b}}, {}), {.verbose = 0});
              }),
              HasSubstr("the data names input \"c\", the model has \"a\", \"b\""));
  EXPECT_THAT(refusal([&] {
                by_name.fit(Data({{"a", a}}, {}), {.verbose = 0});
              }),
              HasSubstr("no input named \"b\""));
  EXPECT_THAT(refusal([&] {
                by_name.fit(Data({{"a", a}, {"b", b}}, {{"rigth", right}}), {.verbose = 0});
              }),
              HasSubstr("did you mean \"right\"?"));
  EXPECT_THAT(refusal([&] {
                by_name.fit(Data({{"a", a}, {"b", b}}, {{"right", right}}), {.verbose = 0});
              }),
              HasSubstr("output \"left\""));
}

TEST(Fit, LabelsMayBeLeftOutWhereAnOutputHasNoLoss) {
  const Model model = two_by_two();
  model.compile({.optimizer = "sgd", .loss = std::map<std::string, Loss>{{"right", "mae"}}});
  const Tensor a = filled({8, 2}, 1), b = filled({8, 3}, 2), right = filled({8, 2}, 4);
  const History by_name = model.fit(Data({{"a", a}, {"b", b}}, {{"right", right}}), {.verbose = 0});
  EXPECT_GT(by_name["loss"][0], 0);
  EXPECT_GT(model.fit(Data(TensorList{a, b}, TensorList{right}), {.verbose = 0})["loss"][0], 0);
}

TEST(Predict, JoinsTheBatches) {
  const Model model = linear();
  model.set_weights({Tensor::from<float>({1, 2}, {2, 1}), Tensor::from<float>({0.5}, {1})});
  std::vector<float> expected;
  for (int i = 0; i < 70; ++i)
    expected.push_back(static_cast<float>(i) + 2 * (static_cast<float>(i) + 0.5F) + 0.5F);
  for (const int64_t size : {1, 7, 32, 100})
    EXPECT_EQ(floats(model.predict(rows(70), {.batch_size = size, .verbose = 0})), expected) << size;
  EXPECT_EQ(floats(model.predict_on_batch({rows(70)})[0]), expected);
  EXPECT_THAT(refusal([&] { model.predict(rows(3), {.batch_size = 0}); }), HasSubstr("batch_size"));
}

TEST(TrainOnBatch, GivesTheLogsOfThisBatchAlone) {
  const Model model =
      linear({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mse", .metrics = {"mae"}});
  const Logs first = model.train_on_batch({{rows(4)}, {column(4)}, {}});
  const Logs second = model.train_on_batch({{rows(4)}, {column(4)}, {}});
  EXPECT_EQ(first.find("loss"), second.find("loss"));
  EXPECT_EQ(model.test_on_batch({{rows(4)}, {column(4)}, {}}).find("mae"), first.find("mae"));
  EXPECT_FLOAT_EQ(static_cast<float>(model.last_loss()), static_cast<float>(*first.find("loss")));
  // Weights of two classes; labels 0 and 1.
  const Model classes = linear({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mae"});
  const Tensor labels = Tensor::from<float>({0, 1, 1, 1}, {4, 1});
  EXPECT_NEAR(classes.train_on_batch({{rows(4)}, {labels}, {}}, {{0, 5}, {1, 2}}).find("loss").value(), 1.5,
              1e-6);
}

TEST(Fit, WeighsExamples) {
  const Model model = linear({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mae"});
  const Tensor y = Tensor::from<float>({1, 2, 3, 4}, {4, 1}), w = Tensor::from<float>({1, 0, 0, 2}, {4});
  EXPECT_NEAR(model.fit(Data(rows(4), y, w), {.verbose = 0})["loss"][0], (1 + 8) / 4.0, 1e-6);
  EXPECT_NEAR(model.fit(rows(4), y, {.verbose = 0, .class_weight = {{1, 3}, {4, 0}}})["loss"][0],
              (3 + 2 + 3 + 0) / 4.0, 1e-6);
}

TEST(Fit, TakesOtherElementTypes) {
  for (const DType dtype : {DType::float64, DType::uint8, DType::int32}) {
    const Model model = linear({.optimizer = optimizers::SGD({.learning_rate = 1e-4}), .loss = "mse"});
    const History history =
        model.fit(cast(rows(20), dtype), cast(column(20), dtype), {.epochs = 3, .verbose = 0});
    EXPECT_LT(history["loss"][2], history["loss"][0]) << dtype;
    EXPECT_EQ(model.weights()[0].dtype(), DType::float32);
  }
}

TEST(Fit, RunsEagerlyWithTheSameResults) {
  const auto run = [](bool eagerly) {
    set_random_seed(5);
    const Sequential model({layers::Dense(8, {.activation = "tanh", .input_shape = {2}}),
                            layers::BatchNormalization(), layers::Dense(1)});
    model.compile({.optimizer = "adam", .loss = "mse", .metrics = {"mae"}, .run_eagerly = eagerly});
    const History history =
        model.fit(rows(20) * 0.1, column(20) * 0.1, {.batch_size = 8, .epochs = 2, .verbose = 0});
    std::vector<double> all = history["loss"];
    all.push_back(history["mae"][1]);
    for (const float weight : weights_of(model)) all.push_back(weight);
    return all;
  };
  EXPECT_THAT(run(true), ::testing::Pointwise(::testing::DoubleNear(1e-5), run(false)));
}

TEST(Fit, TrainsInMixedPrecision) {
  for (const char* policy : {"mixed_bfloat16", "mixed_float16"}) {
    SCOPED_TRACE(policy);
    set_random_seed(2);
    mixed_precision::set_global_policy(policy);
    const Sequential model({layers::Dense(16, {.activation = "relu", .input_shape = {2}}),
                            layers::Dense(1, {.dtype = "float32"})});
    mixed_precision::set_global_policy("float32");
    model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.02}), .loss = "mse"});
    for (const Variable& weight : model.weights()) EXPECT_EQ(weight.dtype(), DType::float32);
    const History history =
        model.fit(rows(64) * 0.02, column(64) * 0.02, {.batch_size = 16, .epochs = 12, .verbose = 0});
    EXPECT_LT(history["loss"].back(), 0.5 * history["loss"].front());
    const bool scales = model.optimizer().serialize().at("class_name").as_string() == "LossScaleOptimizer";
    EXPECT_EQ(scales, std::string(policy) == "mixed_float16");
    // One that scales the loss already is taken as it is.
    model.compile({.optimizer = optimizers::LossScaleOptimizer(optimizers::SGD(), {.initial_scale = 64}),
                   .loss = "mse"});
    EXPECT_EQ(model.optimizer().serialize().at("config").at("initial_scale").as_double(), 64);
  }
}

// --- refusals ----------------------------------------------------------------------------------------------

TEST(Fit, RefusesWhatCannotBeTrained) {
  const Sequential fresh({layers::Dense(1, {.input_shape = {2}})}, {.name = "fresh"});
  EXPECT_THAT(refusal([&] { fresh.fit(rows(4), column(4)); }),
              HasSubstr("model \"fresh\" has no loss and optimizer yet; call compile() first"));
  fresh.compile({.optimizer = "sgd"});
  EXPECT_THAT(refusal([&] { fresh.fit(rows(4), column(4), {.verbose = 0}); }),
              HasSubstr("nothing to minimise: compile() got no loss"));
  fresh.compile({.optimizer = "sgd", .loss = "mse"});
  EXPECT_THAT(refusal([&] { fresh.fit(Data(rows(4)), {.verbose = 0}); }), HasSubstr("no labels (y)"));
  EXPECT_THAT(refusal([&] { fresh.fit(Data(), {.verbose = 0}); }), HasSubstr("no data was given"));
  EXPECT_THAT(refusal([&] { fresh.fit(rows(0), column(0), {.verbose = 0}); }), HasSubstr("no examples"));
  EXPECT_THAT(refusal([&] { fresh.fit(rows(4), column(5), {.verbose = 0}); }),
              AllOf(HasSubstr("(4, 2)"), HasSubstr("(5, 1)")));
  const std::string shape = refusal([&] { fresh.fit(filled({4, 3}, 0), column(4), {.verbose = 0}); });
  EXPECT_THAT(shape, AllOf(HasSubstr("input"), HasSubstr("model \"fresh\""), HasSubstr("(-1, 2)"),
                           HasSubstr("(4, 3)")));
  EXPECT_THAT(refusal([&] { fresh.fit(rows(4), column(4), {.batch_size = 0}); }), HasSubstr("received 0"));
  EXPECT_THAT(refusal([&] { fresh.fit(rows(4), column(4), {.callbacks = {Callback()}}); }),
              HasSubstr("callback 0 of 1 is empty"));
  EXPECT_THAT(refusal([&] {
                fresh.compile({.optimizer = "sgd", .loss = std::map<std::string, Loss>{{"nobody", "mse"}}});
                fresh.fit(rows(4), column(4), {.verbose = 0});
              }),
              HasSubstr("loss names output \"nobody\"; the model's outputs are"));
  EXPECT_THAT(refusal([&] {
                fresh.compile({.optimizer = "sgd", .loss = PerOutput<Loss>{"mse", "mse"}});
                fresh.fit(rows(4), column(4), {.verbose = 0});
              }),
              HasSubstr("2 losses for a model of 1 outputs"));
}

TEST(Fit, WithoutTrainableWeightsLossesAreComputedAlone) {
  for (const bool frozen : {true, false}) {
    const Layer layer = frozen ? layers::Dense(1, {.input_shape = {2}}) : layers::Rescaling(0.5);
    const Sequential model({layer});
    const Tensor labels = frozen ? column(4) : rows(4);
    model.set_trainable(!frozen);
    model.compile({.optimizer = "adam", .loss = "mse", .metrics = {"mae"}});
    const History history = model.fit(rows(4), labels, {.epochs = 2, .verbose = 0});
    EXPECT_EQ(history["loss"][0], history["loss"][1]) << frozen;
    EXPECT_EQ(history["loss"][1], model.evaluate(rows(4), labels, {.verbose = 0})["loss"]) << frozen;
  }
}

}  // namespace
}  // namespace lockstep::keras
