// The record that a run leaves, while it goes on and afterwards.
#include "lockstep/keras/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/observe/run_record.h"
#include "lockstep/observe/span.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

namespace fs = std::filesystem;
using observe::RunRecord;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunRecordTest : public ::testing::Test {
 protected:
  RunRecordTest()
      : folder_((fs::path(::testing::TempDir()) / ("run_record_" + std::to_string(getpid()))).string()) {
    fs::remove_all(folder_);
  }
  ~RunRecordTest() override { fs::remove_all(folder_); }

  static Sequential make_model() {
    random::set_seed(3);
    Sequential model(
        {layers::Dense(8, {.activation = "relu", .name = "<img onerror=x>", .input_shape = Dims{4}}),
         layers::Dense(1)});
    model.compile({.optimizer = "sgd", .loss = "mse"});
    return model;
  }
  static Tensor examples(int64_t count) { return random::uniform({count, 4}); }

  RunRecord record() const { return observe::read_record(folder_); }

  std::string folder_;
};

int64_t steps_in(const RunRecord::Replica& replica) {
  int64_t steps = 0;
  for (const RunRecord::Interval& interval : replica.intervals) steps += interval.steps;
  return steps;
}

TEST_F(RunRecordTest, HoldsAllOfAShortRun) {
  Sequential model = make_model();
  const Tensor x = examples(64);
  model.fit(x, reduce_sum(x, {1}),
            {.batch_size = 8,
             .epochs = 3,
             .verbose = 0,
             .callbacks = {callbacks::RunRecord(folder_, {.configuration = Json::object({{"batch_size", 8}}),
                                                          .flops_per_second = 1e9,
                                                          .half_flops_per_second = 4e9,
                                                          .ceiling_is = "told"})},
             .validation_split = 0.25});
  const RunRecord record = this->record();
  EXPECT_EQ(record.state, RunRecord::State::finished);
  EXPECT_EQ(record.model, model.name());
  EXPECT_EQ(record.process, getpid());
  EXPECT_EQ(record.epoch, 3);
  EXPECT_EQ(record.epochs, 3);
  EXPECT_EQ(record.steps_per_epoch, 6);
  EXPECT_EQ(record.step, 18);
  EXPECT_GT(record.examples_per_second, 0);
  EXPECT_EQ(record.configuration.at("batch_size"), Json(8));
  EXPECT_TRUE(record.versions.contains("lockstep"));
  EXPECT_THAT(record.history_epochs, ElementsAre(0, 1, 2));
  ASSERT_EQ(record.curves.size(), 2u);
  EXPECT_EQ(record.curves[0].name, "loss");
  EXPECT_EQ(record.curves[1].name, "val_loss");
  EXPECT_EQ(record.curves[1].values.size(), 3u);
  ASSERT_FALSE(record.losses.empty());
  EXPECT_EQ(record.losses.back().step, 18);
  ASSERT_EQ(record.replicas.size(), 1u);
  EXPECT_EQ(record.replicas[0].steps, 18);
  EXPECT_EQ(steps_in(record.replicas[0]), 18);
  EXPECT_EQ(record.interval_steps, 1);
  EXPECT_EQ(record.categories.size(), observe::kCategories);
  double times = 0;
  for (const double ms : record.replicas[0].times_ms) times += ms;
  EXPECT_NEAR(times, record.replicas[0].mean_ms, 1e-6);
  ASSERT_EQ(record.memory.size(), 1u);
  EXPECT_GT(record.memory[0].peak, 0);
  EXPECT_THAT(record.memory[0].uses, Contains("variables"));
  ASSERT_TRUE(record.timeline.has_value());
  EXPECT_GE(record.timeline->steps, 3);
  EXPECT_EQ(record.timeline->first_step, 4);
  EXPECT_THAT(record.timeline->names, Contains(HasSubstr("<img onerror=x>")))
      << "layers are named as they are";
  ASSERT_TRUE(record.kernels.has_value());
  EXPECT_FALSE(record.kernels->list.empty());
  EXPECT_EQ(record.kernels->flops_per_second, 1e9);
  EXPECT_EQ(record.kernels->half_flops_per_second, 4e9);
  EXPECT_FALSE(record.input.has_value()) << "arrays are no pipeline";
  EXPECT_FALSE(observe::tracing());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1)
      << "no draft is left";
}

TEST_F(RunRecordTest, TrainingWithItHasTheSameBits) {
  const auto trained = [&](std::vector<Callback> callbacks) {
    Sequential model = make_model();
    const Tensor x = examples(64);
    return model.fit(x, reduce_sum(x, {1}),
                     {.batch_size = 8, .epochs = 2, .verbose = 0, .callbacks = std::move(callbacks)})["loss"];
  };
  EXPECT_EQ(trained({}), trained({callbacks::RunRecord(folder_)}));
}

TEST_F(RunRecordTest, HasTheReplicasOfAStrategyAndTheInputPipeline) {
  const Tensor x = examples(64);
  const auto data =
      data::Dataset::from_tensor_slices({x, reduce_sum(x, {1})}).shuffle(64).batch(8).prefetch(2);
  const distribute::MirroredStrategy strategy({}, {.report = false});
  Sequential model;
  {
    const auto scope = strategy.scope();
    model = make_model();
  }
  model.fit(data, {.epochs = 2, .verbose = 0, .callbacks = {callbacks::RunRecord(folder_)}});
  const RunRecord record = this->record();
  EXPECT_EQ(record.replicas.size(), strategy.devices().size());
  EXPECT_EQ(record.replicas[0].name, "replica 0");
  ASSERT_TRUE(record.input.has_value());
  EXPECT_EQ(record.input->root.name, "prefetch");
  EXPECT_GT(record.input->root.elements, 0);
}

TEST_F(RunRecordTest, ARunUnderWayCanBeReadAndOneThatFailsSaysSo) {
  Sequential model = make_model();
  const Tensor x = examples(64);
  RunRecord::State state = RunRecord::State::finished;
  const auto fit = [&] {
    model.fit(x, reduce_sum(x, {1}),
              {.batch_size = 8,
               .epochs = 2,
               .verbose = 0,
               .callbacks = {callbacks::RunRecord(folder_),
                             callbacks::LambdaCallback({.on_epoch_end = [&](int, const Logs&) {
                               state = record().state;
                               throw std::runtime_error("enough");
                             }})}});
  };
  EXPECT_THROW(fit(), std::runtime_error);
  EXPECT_EQ(state, RunRecord::State::running);
  EXPECT_EQ(record().state, RunRecord::State::failed);
  EXPECT_EQ(record().epoch, 1) << "what was known then is kept";
}

TEST_F(RunRecordTest, ARunThatGoesOnGoesOnInItsRecord) {
  const Tensor x = examples(64);
  Sequential model = make_model();
  const auto fit = [&](int initial_epoch, int epochs) {
    model.fit(x, reduce_sum(x, {1}),
              {.batch_size = 8,
               .epochs = epochs,
               .verbose = 0,
               .callbacks = {callbacks::RunRecord(folder_)},
               .initial_epoch = initial_epoch});
  };
  fit(0, 2);
  const RunRecord before = record();
  fit(2, 3);
  const RunRecord after = record();
  EXPECT_THAT(after.history_epochs, ElementsAre(0, 1, 2));
  EXPECT_EQ(after.curves[0].values[0], before.curves[0].values[0]);
  EXPECT_EQ(after.step, 24);
  EXPECT_EQ(steps_in(after.replicas[0]), 24);
  EXPECT_EQ(after.started_ms, before.started_ms);
  fit(0, 1);
  EXPECT_THAT(record().history_epochs, ElementsAre(0)) << "a run that begins has a record of its own";
  EXPECT_EQ(record().step, 8);
}

TEST_F(RunRecordTest, AProgramThatTracesItselfKeepsItsTrace) {
  Sequential model = make_model();
  const Tensor x = examples(64);
  observe::start_tracing({.events_per_thread = 1 << 12});
  model.fit(x, reduce_sum(x, {1}),
            {.batch_size = 8, .epochs = 2, .verbose = 0, .callbacks = {callbacks::RunRecord(folder_)}});
  EXPECT_TRUE(observe::tracing());
  observe::stop_tracing();
  EXPECT_FALSE(observe::take_trace().events.empty());
  EXPECT_FALSE(record().timeline.has_value());
}

TEST_F(RunRecordTest, WhatCannotBeWrittenIsKnownBeforeTheFirstStep) {
  std::ofstream(folder_) << "no folder";
  Sequential model = make_model();
  const Tensor x = examples(16);
  int batches = 0;
  const auto fit = [&] {
    model.fit(x, reduce_sum(x, {1}),
              {.batch_size = 8,
               .verbose = 0,
               .callbacks = {callbacks::RunRecord(folder_),
                             callbacks::LambdaCallback(
                                 {.on_train_batch_end = [&](int64_t, const Logs&) { ++batches; }})}});
  };
  EXPECT_THROW(fit(), Error);
  EXPECT_EQ(batches, 0);
}

TEST_F(RunRecordTest, OptionsAreChecked) {
  EXPECT_THROW(callbacks::RunRecord(""), Error);
  EXPECT_THROW(callbacks::RunRecord(folder_, {.configuration = Json::List{1}}), Error);
}

}  // namespace
}  // namespace lockstep::keras
