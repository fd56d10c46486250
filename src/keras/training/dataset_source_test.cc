// fit, evaluate and predict over a Dataset.
#include "keras/training/dataset_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "execute/compile_test.h"
#include "keras/training/stream.h"
#include "lockstep/base/log.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/observe/verdict.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

using data::Dataset;
using data::Element;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class F>
std::string refusal(F&& f) {
  return lockstep::testing::error_of(f).what();
}

Tensor rows(int64_t n, int64_t columns = 2) {
  std::vector<float> values(static_cast<size_t>(n * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01F * static_cast<float>(i);
  return Tensor::from(values, {n, columns});
}
Tensor column(int64_t n) { return reduce_sum(rows(n), {.axis = {1}, .keepdims = true}); }

Model linear() {
  const Sequential model({layers::Dense(1, {.kernel_initializer = "zeros", .input_shape = {2}})});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  return model;
}

std::vector<float> weights_of(const Model& model) {
  std::vector<float> all;
  for (const Tensor& weight : model.get_weights())
    for (const float value : weight.to_vector<float>()) all.push_back(value);
  return all;
}

Dataset batches(int64_t n, int64_t size) {
  return Dataset::from_tensor_slices({rows(n), column(n)}).batch(size);
}

TEST(DatasetSource, TrainsAsTheSameArraysDo) {
  const Model arrays = linear(), dataset = linear(), weighted = linear();
  arrays.fit(rows(50), column(50), {.batch_size = 8, .epochs = 2, .verbose = 0, .shuffle = false});
  const History history =
      dataset.fit(batches(50, 8).prefetch(), {.epochs = 2, .verbose = 0, .validation_data = batches(20, 7)});
  EXPECT_EQ(weights_of(dataset), weights_of(arrays));
  EXPECT_EQ(history["val_loss"].size(), 2U);
  EXPECT_EQ(history.time.replicas[0].wall.count, 14);
  EXPECT_EQ(history.time.replicas[0].counts[observe::Counter::examples], 100);

  const Tensor twos = Tensor::full(DType::float32, {50}, 2.0);
  const Data three(Dataset::from_tensor_slices({rows(50), column(50), twos}).batch(8));
  weighted.fit(three, {.verbose = 0});
  const Model by_arrays = linear();
  by_arrays.fit(Data(rows(50), column(50), twos), {.batch_size = 8, .verbose = 0, .shuffle = false});
  EXPECT_EQ(weights_of(weighted), weights_of(by_arrays));
}

TEST(DatasetSource, IsEvaluatedAndPredicted) {
  const Model model = linear();
  model.fit(rows(50), column(50), {.verbose = 0});
  const double expected = *model.evaluate(rows(20), column(20), {.verbose = 0}).find("loss");
  EXPECT_NEAR(*model.evaluate(batches(20, 6), {.verbose = 0}).find("loss"), expected, 1e-6);
  const std::vector<float> answers = model.predict(Data(rows(20)), {.verbose = 0}).to_vector<float>();
  EXPECT_EQ(model.predict(Data(batches(20, 6)), {.verbose = 0}).to_vector<float>(), answers);
  EXPECT_EQ(
      model.predict(Data(Dataset::from_tensor_slices(rows(20)).batch(6)), {.verbose = 0}).to_vector<float>(),
      answers)
      << "x alone";
  EXPECT_EQ(model.predict(Data(batches(20, 6).repeat()), {.verbose = 0, .steps = 2}).shape(), (Shape{12, 1}));
}

TEST(DatasetSource, TuplesAndNamesFindTheirInputsAndOutputs) {
  const auto run = [](const Data& data) {
    set_random_seed(4);
    const KerasTensor a = Input({2}, {.name = "a"}), b = Input({2}, {.name = "b"});
    const Model model({a, b}, {layers::Dense(1, {.name = "sum"})(layers::Add()({a, b})),
                               layers::Dense(1, {.name = "other"})(b)});
    model.compile({.optimizer = "sgd", .loss = "mse"});
    model.fit(data, {.batch_size = 5, .verbose = 0, .shuffle = false});
    return weights_of(model);
  };
  const Tensor a = rows(20), b = rows(20) * 3.0, sum = column(20), other = column(20) * 2.0;
  const std::vector<float> expected = run(Data(TensorList{a, b}, TensorList{sum, other}));
  const Element x = Element::dict({{"b", b}, {"a", a}}), y = Element::dict({{"other", other}, {"sum", sum}});
  EXPECT_EQ(run(Dataset::from_tensor_slices({x, y}).batch(5)), expected);
  EXPECT_EQ(run(Dataset::from_tensor_slices({Element(a, b), Element(sum, other)}).batch(5)), expected);
  const Element wrong = Element::dict({{"a", a}, {"c", b}});
  EXPECT_THAT(refusal([&] {
                run(Dataset::from_tensor_slices({wrong, y}).batch(5));
              }),
              HasSubstr("names input \"c\", the model has \"a\", \"b\""));
  const Element half = Element::dict({{"a", a}});
  EXPECT_THAT(refusal([&] {
                run(Dataset::from_tensor_slices({half, y}).batch(5));
              }),
              HasSubstr("no input named \"b\""));
}

TEST(DatasetSource, AModelIsBuiltFromWhatTheDatasetGives) {
  const Sequential model({layers::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  model.fit(batches(20, 5).map([](const Tensor& x, const Tensor& y) {
    return Element(concat(TensorList{x, x}, 1), y);
  }),
            {.verbose = 0});
  EXPECT_EQ(model.weights()[0].shape(), (Shape{4, 1}));
}

TEST(DatasetSource, WhatHasNoEndNeedsSteps) {
  const Model model = linear();
  const Dataset endless = batches(20, 5).repeat();
  EXPECT_THAT(refusal([&] { model.fit(endless, {.verbose = 0}); }),
              AllOf(HasSubstr("fit: the dataset has no end"), HasSubstr("steps_per_epoch")));
  EXPECT_THAT(refusal([&] { model.fit(batches(20, 5), {.verbose = 0, .validation_data = endless}); }),
              HasSubstr("validation_steps"));
  EXPECT_THAT(refusal([&] { model.evaluate(endless, {.verbose = 0}); }), HasSubstr("with steps how many"));
  EXPECT_THAT(refusal([&] { model.predict(Data(endless), {.verbose = 0}); }), HasSubstr("predict"));
  const History history = model.fit(
      endless,
      {.epochs = 2, .verbose = 0, .validation_data = endless, .steps_per_epoch = 3, .validation_steps = 1});
  EXPECT_EQ(history.time.replicas[0].wall.count, 6);
}

TEST(DatasetSource, DataWithoutABatchIsRefused) {
  const Model model = linear();
  for (const Dataset& none :
       {batches(20, 5).take(0),
        Dataset::from_tensor_slices({rows(3), column(3)}).batch(4, {.drop_remainder = true})}) {
    EXPECT_THAT(refusal([&] { model.fit(none, {.verbose = 0}); }), HasSubstr("the data gave no batch"));
    EXPECT_THAT(refusal([&] { model.fit(batches(20, 5), {.verbose = 0, .validation_data = none}); }),
                HasSubstr("the data gave no batch"));
    EXPECT_THAT(refusal([&] { model.evaluate(none, {.verbose = 0}); }), HasSubstr("the data gave no batch"));
    EXPECT_THAT(refusal([&] { model.predict(Data(none), {.verbose = 0}); }),
                HasSubstr("the data gave no batch"));
  }
}

TEST(DatasetSource, TheLastBatchOfAColumnMayHaveOneRow) {
  Sequential model({layers::Dense(1, {.input_shape = {1}})});
  model.compile({.loss = "mse"});
  const Tensor numbers = squeeze(column(9), {1});
  const Dataset batched = Dataset::from_tensor_slices({numbers, numbers}).batch(4);
  EXPECT_EQ(model.predict(batched, {.verbose = 0}).shape(), (Shape{9, 1}));
  model.fit(batched, {.verbose = 0});
  EXPECT_THAT(refusal([&] {
                model.fit(Dataset::from_tensor_slices({column(9), numbers}), {.verbose = 0});
              }),
              HasSubstr("dataset.batch(batch_size)"));
}

TEST(DatasetSource, SingleExamplesAreRefused) {
  const Model model = linear();
  const auto fit = [&](const Dataset& data) { return refusal([&] { model.fit(data, {.verbose = 0}); }); };
  const Dataset slices = Dataset::from_tensor_slices({rows(20), column(20)});
  EXPECT_THAT(fit(slices), HasSubstr("dataset.batch(batch_size)"));
  EXPECT_THAT(fit(Dataset::from_tensor_slices({rows(20), squeeze(column(20), {1})})),
              AllOf(HasSubstr("a scalar is no batch"), HasSubstr("dataset.batch(batch_size)")));
  EXPECT_THAT(refusal([&] { model.predict(Data(Dataset::from_tensor_slices(rows(20))), {.verbose = 0}); }),
              AllOf(HasSubstr("one example for the model's input"), HasSubstr("dataset.batch(batch_size)")));
  EXPECT_THAT(fit(Dataset::from_tensors({rows(2), rows(2), rows(2), rows(2)})),
              HasSubstr("(x, y, sample_weight)"));
  EXPECT_THAT(refusal([&] { model.fit(batches(20, 5), {.verbose = 0, .validation_split = 0.5}); }),
              HasSubstr("take(n) and skip(n)"));
}

TEST(DatasetSource, ClassesWeigh) {
  const auto run = [](const Data& data) {
    const Model model = linear();
    model.fit(data, {.batch_size = 5, .verbose = 0, .shuffle = false, .class_weight = {{0, 2}, {1, 0.5}}});
    return weights_of(model);
  };
  const Tensor y = Tensor::from<float>({0, 1, 2, 1, 0, 0, 1, 2, 1, 0}, {10, 1});
  EXPECT_EQ(run(Dataset::from_tensor_slices({rows(10), y}).batch(5)), run(Data(rows(10), y)));
}

std::vector<float> next(BatchStream& stream) {
  Batch batch;
  return stream.next(batch) ? batch.x[0].to_vector<float>() : std::vector<float>();
}

TEST(DatasetSource, AStreamStandsWhereItStoodWithoutReadingUpToIt) {
  const auto make = [](int& calls) {
    return Dataset::from_tensor_slices({rows(60), column(60)})
        .shuffle(20, {.seed = 7})
        .batch(10)
        .map([&calls](const Tensor& x, const Tensor& y) {
          ++calls;
          return Element(x, y);
        })
        .repeat(2);
  };
  for (const bool continues : {false, true}) {
    int calls = 0, calls_again = 0;
    BatchStream stream(make(calls), {}, continues);
    stream.begin_epoch();
    for (int i = 0; i < 4; ++i) next(stream);
    const BatchStream::Position middle = stream.position();
    std::vector<std::vector<float>> expected;
    while (!(expected.emplace_back(next(stream))).empty()) {
    }
    const BatchStream::Position end = stream.position_after_epoch();
    stream.begin_epoch();
    const std::vector<float> first_of_next = next(stream);

    BatchStream other(make(calls_again), {}, continues);
    other.restore(middle, random_state());
    for (const auto& values : expected) EXPECT_EQ(next(other), values);
    EXPECT_EQ(calls_again, 8);
    other.begin_epoch();
    EXPECT_EQ(next(other), first_of_next) << "the pass after it has its order too";

    BatchStream later(make(calls_again), {}, continues);
    later.restore(end, random_state());
    EXPECT_EQ(next(later), first_of_next);
  }
}

TEST(DatasetSource, FitSaysWhichStageKeptItWaitingLong) {
  std::vector<std::string> warnings;
  const LogSink previous =
      set_log_sink([&](const LogMessage& message) { warnings.emplace_back(message.text); });
  const auto fit = [](const Dataset& data) { return linear().fit(data, {.verbose = 0}).time; };
  // Long enough to be what counts also where other programs take the processors.
  const observe::RunSummary slow = fit(batches(16, 2).map([](const Tensor& x, const Tensor& y) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return Element(x, y);
  }));
  set_log_sink(previous);
  EXPECT_THAT(slow.input.bottleneck,
              AllOf(HasSubstr("map [dataset_source_test.cc:"), HasSubstr("per element")));
  EXPECT_THAT(slow.input.fix, HasSubstr("num_parallel_calls"));
  const std::vector<observe::Verdict> verdicts = observe::judge(slow);
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].id, "input-bound");
  EXPECT_EQ(verdicts[0].fix, slow.input.fix);
  EXPECT_THAT(verdicts[0].evidence, HasSubstr(slow.input.bottleneck));
  EXPECT_THAT(observe::to_json(slow), HasSubstr("\"bottleneck\""));
  EXPECT_THAT(warnings,
              ElementsAre(AllOf(HasSubstr("waits for the next batch"), HasSubstr("num_parallel_calls"))));
}

}  // namespace
}  // namespace lockstep::keras
