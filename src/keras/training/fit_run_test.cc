// What holds for a run as a whole: when it may begin, what is left where it ends early.
#include "keras/training/fit_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "execute/compile_test.h"
#include "lockstep/keras/layers.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor rows(int64_t n) {
  std::vector<float> values(static_cast<size_t>(2 * n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01F * static_cast<float>(i);
  return Tensor::from(values, {n, 2});
}
Tensor column(int64_t n) { return reduce_sum(rows(n), {.axis = {1}, .keepdims = true}); }

Model linear() {
  const Sequential model({layers::Dense(1, {.kernel_initializer = "zeros", .input_shape = {2}})});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  return model;
}

std::vector<float> kernel_of(const Model& model) { return model.get_weights()[0].to_vector<float>(); }

Callback after_batch(int64_t batch, std::function<void()> act) {
  return callbacks::LambdaCallback({.on_train_batch_end = [=](int64_t number, const Logs&) {
    if (number == batch) act();
  }});
}

int64_t steps_of(const History& history) { return history.time.replicas.at(0).wall.count; }

TEST(FitRun, ACallbackMayEvaluateAndPredictButNotFit) {
  const Model model = linear();
  std::string refusal;
  int64_t predicted = 0;
  const History history = model.fit(
      rows(20), column(20),
      {.batch_size = 5,
       .verbose = 0,
       .callbacks = {after_batch(1,
                                 [&] {
                                   refusal = lockstep::testing::error_of([&] {
                                               model.fit(rows(4), column(4), {.verbose = 0});
                                             }).message();
                                   model.evaluate(rows(8), column(8), {.verbose = 0});
                                   predicted = model.predict(Data(rows(8)), {.verbose = 0}).shape()[0];
                                 })},
       .shuffle = false});
  EXPECT_THAT(refusal, AllOf(HasSubstr("fit"), HasSubstr("is being fitted already")));
  EXPECT_EQ(predicted, 8);
  EXPECT_EQ(steps_of(history), 4) << "the clock counts the training steps of this run alone";
  EXPECT_EQ(steps_of(model.fit(rows(20), column(20), {.batch_size = 10, .verbose = 0})), 2)
      << "and begins anew with the next run";
}

TEST(FitRun, WhatACallbackThrowsEndsItAndTheNextRunIsAsAnyOther) {
  const Model model = linear(), other = linear();
  struct Stop {};
  EXPECT_THROW(model.fit(rows(20), column(20),
                         {.batch_size = 5,
                          .verbose = 0,
                          .callbacks = {after_batch(1, [] { throw Stop(); })},
                          .shuffle = false}),
               Stop);
  other.fit(rows(10), column(10), {.batch_size = 5, .verbose = 0, .shuffle = false});
  EXPECT_EQ(kernel_of(model), kernel_of(other)) << "the steps that were made are kept";
  const History history = model.fit(rows(20), column(20), {.batch_size = 5, .verbose = 0, .shuffle = false});
  other.fit(rows(20), column(20), {.batch_size = 5, .verbose = 0, .shuffle = false});
  EXPECT_EQ(kernel_of(model), kernel_of(other));
  EXPECT_EQ(steps_of(history), 4);
}

TEST(FitRun, ACallbackMayCompileAgain) {
  const Model model = linear();
  const auto still = [&] {
    model.compile({.optimizer = optimizers::SGD({.learning_rate = 0}), .loss = "mse"});
  };
  std::vector<float> then;
  const History history = model.fit(rows(20), column(20),
                                    {.batch_size = 5,
                                     .verbose = 0,
                                     .callbacks = {after_batch(1,
                                                               [&] {
                                                                 still();
                                                                 then = kernel_of(model);
                                                               })},
                                     .shuffle = false});
  EXPECT_EQ(kernel_of(model), then) << "the new optimizer takes no steps";
  EXPECT_EQ(steps_of(history), 4) << "the clock goes on";
}

TEST(FitRun, StepsBetweenRunsAreNobodys) {
  const Model model = linear();
  model.fit(rows(20), column(20), {.batch_size = 5, .verbose = 0});
  for (int i = 0; i < 3; ++i) model.train_on_batch({{rows(5)}, {column(5)}, {}});
  const History history = model.fit(rows(20), column(20), {.batch_size = 5, .verbose = 0});
  EXPECT_EQ(steps_of(history), 4);
  EXPECT_EQ(history.time.replicas[0].counts[observe::Counter::examples], 20);
}

TEST(FitRun, ValidationTellsCallbacksOfItsBatchesAndOfNoMore) {
  class Counter final : public CallbackBase {
   public:
    void on_test_batch_begin(int64_t, const Logs&) override { ++begun; }
    void on_test_batch_end(int64_t, const Logs&) override { ++ended; }
    int begun = 0, ended = 0;
  };
  const auto counter = std::make_shared<Counter>();
  linear().fit(rows(20), column(20),
               {.batch_size = 5,
                .verbose = 0,
                .callbacks = {Callback(counter)},
                .validation_data = Data(rows(10), column(10)),
                .validation_batch_size = 4});
  EXPECT_EQ(counter->begun, 3);
  EXPECT_EQ(counter->ended, 3);
}

TEST(Predict, TakesStepsPerExecutionAndTheEndOfTheDataAsEvaluateDoes) {
  const Model model = linear();
  model.fit(rows(20), column(20), {.verbose = 0});
  const std::vector<float> expected = model.predict(Data(rows(21)), {.verbose = 0}).to_vector<float>();
  model.compile({.optimizer = "sgd", .loss = "mse", .steps_per_execution = 4});
  EXPECT_EQ(model.predict(Data(rows(21)), {.batch_size = 2, .verbose = 0}).to_vector<float>(), expected);
  EXPECT_EQ(model.predict(Data(rows(21), column(21)), {.batch_size = 5, .verbose = 0, .steps = 2}).shape(),
            (Shape{10, 1}));
}

TEST(Predict, ModelsThatShareNothingMayBeAskedBySeveralThreadsAtOnce) {
  constexpr size_t kThreads = 3;
  std::vector<Model> models;
  std::vector<std::vector<float>> expected;
  for (size_t i = 0; i < kThreads; ++i) {
    set_random_seed(i);
    models.push_back(
        Sequential({layers::Dense(8, {.activation = "relu", .input_shape = {2}}), layers::Dense(3)}));
    expected.push_back(models[i].predict(Data(rows(40)), {.batch_size = 7, .verbose = 0}).to_vector<float>());
  }
  std::vector<std::vector<float>> found(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 5; ++repeat)
        found[i] = models[i].predict(Data(rows(40)), {.batch_size = 7, .verbose = 0}).to_vector<float>();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace lockstep::keras
