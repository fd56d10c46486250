// Runs that outlive their workers: the weights are those of a run that nothing has disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "tensor/tensor_impl.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

namespace layers = keras::layers;
using distribute::MultiWorkerMirroredStrategy;
using ::testing::HasSubstr;

std::string setting(const char* name, const char* otherwise = "") {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}
int number(const char* name, int otherwise) {
  const std::string text = setting(name);
  return text.empty() ? otherwise : std::stoi(text);
}

std::string text_of(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

std::string text_of(const std::vector<Variable>& variables) {
  uint32_t sum = 0;
  for (const Variable& variable : variables) {
    const Tensor value = variable.value();
    sum = sum * 31 +
          crc32c(std::string_view(static_cast<const char*>(value.impl()->data()), value.spec().bytes()));
  }
  return std::to_string(sum);
}

keras::Sequential network() {
  keras::optimizers::AdamOptions adam{.learning_rate = 0.01};
  if (const int steps = number("TEST_ACCUMULATES", 0)) adam.gradient_accumulation_steps = steps;
  keras::Sequential model({layers::Dense(16, {.activation = "relu", .input_shape = {20}}),
                           layers::BatchNormalization(), layers::Dropout(0.2), layers::Dense(4)});
  model.compile({.optimizer = keras::optimizers::Adam(adam),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  return model;
}

struct Examples {
  Tensor x, y;
};
Examples examples(int64_t count) {
  std::vector<float> x;
  std::vector<int32_t> y;
  for (int64_t i = 0; i < count * 20; ++i) x.push_back(std::sin(static_cast<float>(i * i % 1009)));
  for (int64_t i = 0; i < count; ++i) y.push_back(static_cast<int32_t>((i * 7) % 4));
  return {Tensor::from(x, {count, 20}), Tensor::from(y, {count})};
}

constexpr int64_t kExamples = 90, kBatch = 16, kSteps = 6;  // of an epoch

// Dies after this batch of the epoch: TEST_DIES="1/3"; in the midst of a step where it is "1/3/steps".
class Mortal final : public keras::CallbackBase {
 public:
  void on_epoch_begin(int epoch, const keras::Logs&) override { epoch_ = epoch; }
  void on_train_batch_begin(int64_t batch, const keras::Logs&) override {
    if (at(batch) + "/step" == setting("TEST_DIES") && setting("TEST_STARTS") == "0")
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        kill(getpid(), SIGKILL);
      }).detach();
    // The others wait for it in the step's sum.
    std::this_thread::sleep_for(std::chrono::milliseconds(number("TEST_LATE_MS", 0)));
  }
  void on_train_batch_end(int64_t batch, const keras::Logs&) override {
    note_progress(epoch_ * kSteps + batch + 1);
    if (at(batch) == setting("TEST_DIES") && setting("TEST_STARTS") == "0") kill(getpid(), SIGKILL);
    if (at(batch) == setting("TEST_STOPS") && setting("TEST_STARTS") == "0") kill(getpid(), SIGSTOP);
    // A test that has to wait for something makes the run wait with it.
    const bool slow = std::filesystem::exists(setting("TEST_SLOW", "/nowhere"));
    std::this_thread::sleep_for(std::chrono::milliseconds(slow ? 100 : number("TEST_PAUSE_MS", 0)));
  }

 private:
  std::string at(int64_t batch) const { return detail::concat(epoch_, "/", batch); }
  int epoch_ = 0;
};

void train_elastically() {
  set_random_seed(7);
  const MultiWorkerMirroredStrategy strategy(
      {.reproducible = setting("TEST_REPRODUCIBLE", "1") == "1",
       .report = false,
       .communication = {.timeout_seconds = static_cast<double>(number("TEST_TIMEOUT", 60)),
                         .join_timeout_seconds = static_cast<double>(number("TEST_JOIN", 60))},
       .elastic = {.min_workers = number("TEST_MIN", 1),
                   .wait_seconds = static_cast<double>(number("TEST_WAIT", 60))}});
  keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = network();
  }
  const Examples train = examples(kExamples), test = examples(21);
  keras::FitOptions options{.batch_size = kBatch,
                            .epochs = number("TEST_EPOCHS", 4),
                            .verbose = 0,
                            .callbacks = {keras::make_callback<Mortal>()},
                            .validation_data = {test.x, test.y}};
  if (const std::string folder = setting("TEST_BACKUP"); !folder.empty())
    options.callbacks.push_back(keras::callbacks::BackupAndRestore(folder, {.save_freq = 3}));
  if (const std::string file = setting("TEST_CSV"); !file.empty())
    options.callbacks.push_back(keras::callbacks::CSVLogger(file));
  data::Dataset dataset =
      data::Dataset::from_tensor_slices({train.x, train.y}).shuffle(kExamples, {.seed = 3}).batch(kBatch);
  if (setting("TEST_SHARD") == "file")
    dataset = dataset.with_options({.auto_shard = data::AutoShardPolicy::file});
  const keras::History history =
      setting("TEST_DATASET") == "1" ? model.fit(dataset, options) : model.fit(train.x, train.y, options);
  report("weights " + text_of(model.weights()));
  std::string values;
  for (const auto& [name, each] : history.history)
    for (const double value : each) values += " " + name + " " + text_of(value);
  report("history" + values);
  std::string measured;
  for (const auto& [name, value] : model.evaluate(test.x, test.y, {.batch_size = 8, .verbose = 0}))
    measured += " " + name + " " + text_of(value);
  report("evaluated" + measured);
}
const RegisterScenario elastic("elastic", train_elastically);

class Elastic : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  }

  // What one worker alone comes to.
  static std::string undisturbed(const std::vector<std::string>& environment = {}) {
    const std::vector<WorkerResult> alone =
        run({.scenario = "elastic", .workers = 1, .launcher = Launcher::alone, .environment = environment});
    EXPECT_EQ(alone[0].status, 0) << alone[0].output;
    return alone[0].report;
  }
};

TEST_F(Elastic, AnyWorkerMayDie) {
  const std::string expected = undisturbed();
  for (const char* death :
       {"2:TEST_DIES=1/3", "0:TEST_DIES=1/3", "0:TEST_DIES=1/2/step", "3:TEST_DIES=0/0/step"}) {
    const std::vector<WorkerResult> results =
        run({.scenario = "elastic", .workers = 4, .environment = {death, "TEST_STARTS=0"}});
    for (int w = 0; w < 4; ++w) {
      const WorkerResult& worker = results[static_cast<size_t>(w)];
      if (w == death[0] - '0') {
        EXPECT_EQ(worker.status, -SIGKILL) << death << worker.output;
        continue;
      }
      EXPECT_EQ(worker.status, 0) << death << ", worker " << w << ":\n" << worker.output;
      EXPECT_EQ(worker.report, expected) << death << ", worker " << w << ":\n" << worker.output;
    }
  }
}

TEST_F(Elastic, DatasetsAreReadOnFromTheLostStep) {
  const std::string expected = undisturbed({"TEST_DATASET=1"});
  const std::vector<WorkerResult> results =
      run({.scenario = "elastic",
           .workers = 3,
           .environment = {"0:TEST_DIES=1/3/step", "TEST_STARTS=0", "TEST_DATASET=1"}});
  for (const size_t w : {1, 2}) EXPECT_EQ(results[w].report, expected) << results[w].output;
}

// Each of them becomes the chief in its turn.
TEST_F(Elastic, AllButOneMayDie) {
  const std::string expected = undisturbed();
  const std::vector<WorkerResult> results =
      run({.scenario = "elastic",
           .workers = 3,
           .environment = {"0:TEST_DIES=1/0", "1:TEST_DIES=2/5/step", "TEST_STARTS=0"}});
  EXPECT_EQ(results[2].status, 0) << results[2].output;
  EXPECT_EQ(results[2].report, expected) << results[2].output;
}

// Until it holds, for as long as one of the crew runs.
template <class Condition>
bool await(Crew& crew, Condition condition) {
  while (!condition()) {
    bool any = false;
    for (int w = 0; w < crew.size(); ++w) any = crew.running(w) || any;
    if (!any) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

TEST_F(Elastic, AWorkerComesBackWithTheOthersState) {
  const std::string expected = undisturbed({"TEST_EPOCHS=30"});
  for (const int who : {2, 0}) {
    Crew crew({.scenario = "elastic",
               .workers = 3,
               .environment = {"TEST_EPOCHS=30", "TEST_PAUSE_MS=10", "TEST_MIN=2"}});
    ASSERT_TRUE(await(crew, [&] { return crew.progress(who) > 20; }));
    crew.kill(who);
    crew.start(who);
    // It has made steps, and so it was let in.
    const bool joined = await(crew, [&] { return crew.progress(who) > 0; });
    const std::vector<WorkerResult> results = crew.wait();
    EXPECT_TRUE(joined) << results[static_cast<size_t>(who)].output;
    for (const WorkerResult& worker : results) {
      EXPECT_EQ(worker.status, 0) << worker.output;
      EXPECT_EQ(worker.report, expected) << worker.output;
    }
  }
}

// The time is printed, and nothing is said about it here: bench/ is where speed is compared.
TEST_F(Elastic, TheTimeFromAKillToTheNextFinishedStep) {
  for (const int who : {3, 0}) {
    Crew crew({.scenario = "elastic", .workers = 4, .environment = {"TEST_EPOCHS=100"}});
    const int other = who == 0 ? 1 : 0;
    ASSERT_TRUE(await(crew, [&] { return crew.progress(who) > 30; }));
    crew.kill(who);
    const auto killed = std::chrono::steady_clock::now();
    // The step that was under way may have been finished before; the one behind it was not.
    const int64_t before = crew.progress(other);
    EXPECT_TRUE(await(crew, [&] { return crew.progress(other) > before + 1; }));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count();
    std::printf("from the kill of worker %d of 4 to the next finished step: %.3f s\n", who, seconds);
    RecordProperty("recovery_seconds_" + std::to_string(who), std::to_string(seconds));
  }
}

// Between two steps, where it waits for the others to agree, and in the midst of a sum, where it waits in the
// engine.
TEST_F(Elastic, LongAWorkerThatWasStoppedForTooLongJoinsAnew) {
  const std::string expected = undisturbed({"TEST_EPOCHS=40"});
  for (const int who : {2, 0})
    for (const char* where : {"TEST_PAUSE_MS=40", "1:TEST_LATE_MS=40"}) {
      SCOPED_TRACE(detail::concat("worker ", who, ", ", where));
      Crew crew({.scenario = "elastic",
                 .workers = 3,
                 .environment = {"TEST_EPOCHS=40", where, "TEST_MIN=2", "TEST_TIMEOUT=2"}});
      ASSERT_TRUE(await(crew, [&] { return crew.progress(who) > 20; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      crew.signal(who, SIGSTOP);
      const int64_t stood = crew.progress(who);
      EXPECT_TRUE(await(crew, [&] { return crew.progress(1) > stood + 5; }));
      crew.signal(who, SIGCONT);
      const std::vector<WorkerResult> results = crew.wait();
      EXPECT_THAT(results[static_cast<size_t>(who)].output, HasSubstr("it joins anew"));
      for (const WorkerResult& worker : results) {
        EXPECT_EQ(worker.status, 0) << worker.output;
        EXPECT_EQ(worker.report, expected) << worker.output;
      }
    }
}

// Half of the workers, and not the first: the other cannot know whether that has gone on. Who wakes goes on.
TEST_F(Elastic, LongTheFirstOfTwoIsWaitedFor) {
  const std::string expected = undisturbed({"TEST_EPOCHS=20"});
  Crew crew({.scenario = "elastic",
             .workers = 2,
             .environment = {"TEST_EPOCHS=20", "TEST_PAUSE_MS=40", "TEST_TIMEOUT=1"}});
  ASSERT_TRUE(await(crew, [&] { return crew.progress(0) > 20; }));
  crew.signal(0, SIGSTOP);
  const int64_t stood = crew.progress(0);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  EXPECT_LE(crew.progress(1), stood + 1);
  crew.signal(0, SIGCONT);
  for (const WorkerResult& worker : crew.wait()) {
    EXPECT_EQ(worker.status, 0) << worker.output;
    EXPECT_EQ(worker.report, expected) << worker.output;
  }
}

TEST_F(Elastic, BelowTheMinimumTheyWaitForOthers) {
  const std::string expected = undisturbed();
  Crew crew({.scenario = "elastic", .workers = 2, .environment = {"0:TEST_DIES=1/3", "TEST_MIN=2"}});
  ASSERT_TRUE(await(crew, [&] { return !crew.running(0); }));
  crew.start(0);
  for (const WorkerResult& worker : crew.wait()) {
    EXPECT_EQ(worker.status, 0) << worker.output;
    EXPECT_EQ(worker.report, expected) << worker.output;
  }
}

TEST_F(Elastic, TooFewStopWithABackupOfTheLastStep) {
  const std::string expected = undisturbed();
  Crew crew({.scenario = "elastic",
             .workers = 2,
             .environment = {"0:TEST_DIES=1/3", "TEST_MIN=2", "TEST_WAIT=1", "TEST_TIMEOUT=1",
                             "TEST_BACKUP=/tmp/lockstep_elastic_" + std::to_string(getpid())}});
  const std::vector<WorkerResult> results = crew.wait();
  EXPECT_EQ(results[1].status, 75) << results[1].output;
  EXPECT_THAT(results[1].report, HasSubstr("the backup has step 4 of epoch 2"));
  EXPECT_THAT(results[1].report, HasSubstr("it takes 2 (min_workers)"));
  crew.start(0);
  crew.start(1);
  for (const WorkerResult& worker : crew.wait()) {
    EXPECT_EQ(worker.status, 0) << worker.output;
    EXPECT_THAT(worker.report, HasSubstr(expected));
  }
  std::filesystem::remove_all("/tmp/lockstep_elastic_" + std::to_string(getpid()));
}

TEST_F(Elastic, WhatIsTheChiefsMovesToTheNext) {
  const std::string file = "/tmp/lockstep_elastic_" + std::to_string(getpid()) + ".csv";
  const auto lines_of = [&](const std::vector<std::string>& environment, int workers) {
    std::filesystem::remove(file);
    for (const WorkerResult& worker : run({.scenario = "elastic",
                                      .workers = workers,
                                      .launcher = workers == 1 ? Launcher::alone : Launcher::lockstep,
                                      .environment = environment}))
      EXPECT_TRUE(worker.status == 0 || worker.status == -SIGKILL) << worker.output;
    std::ifstream text(file);
    return std::string((std::istreambuf_iterator<char>(text)), std::istreambuf_iterator<char>());
  };
  const std::string csv = "TEST_CSV=" + file;
  const std::string expected = lines_of({csv}, 1);
  EXPECT_THAT(expected, HasSubstr("\n3,"));
  EXPECT_EQ(lines_of({csv, "0:TEST_DIES=2/3", "TEST_STARTS=0"}, 3), expected);
  std::filesystem::remove(file);
}

// In the midst of what is accumulated, a worker and the chief.
TEST_F(Elastic, AccumulatedGradientsAreNotLost) {
  const std::string expected = undisturbed({"TEST_ACCUMULATES=4"});
  const std::vector<WorkerResult> results = run(
      {.scenario = "elastic",
       .workers = 4,
       .environment = {"TEST_ACCUMULATES=4", "0:TEST_DIES=1/3/step", "2:TEST_DIES=2/0", "TEST_STARTS=0"}});
  for (const size_t w : {1, 3}) {
    EXPECT_EQ(results[w].status, 0) << results[w].output;
    EXPECT_EQ(results[w].report, expected) << results[w].output;
  }
}

TEST_F(Elastic, PartsOfTheirOwnAreRefused) {
  for (const WorkerResult& worker :
       run({.scenario = "elastic", .workers = 2, .environment = {"TEST_DATASET=1", "TEST_SHARD=file"}}))
    EXPECT_THAT(worker.report, HasSubstr("the dataset's auto_shard policy is FILE"));
}

// --- several fits ------------------------------------------------------------------------------------------

// What it does between them depends on how the first went.
void fit_twice() {
  set_random_seed(7);
  const MultiWorkerMirroredStrategy strategy(
      {.reproducible = true, .report = false, .elastic = {.min_workers = 2}});
  const Examples train = examples(kExamples);
  keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = network();
  }
  const auto fit = [&](int epochs) {
    return model.fit(train.x, train.y,
                     {.batch_size = kBatch,
                      .epochs = epochs,
                      .verbose = 0,
                      .callbacks = {keras::make_callback<Mortal>()}});
  };
  const keras::History first = fit(2);
  report("first " + text_of(first["loss"].back()) + detail::concat(" in ", first.epoch.size(), " epochs"));
  // Tells the test that the first is over.
  note_progress(1000);
  {
    const auto scope = strategy.scope();
    model.compile({.optimizer = keras::optimizers::SGD({.learning_rate = 0.01 * first["loss"].back()}),
                   .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  }
  const keras::History second = fit(40);
  report("second " + text_of(second["loss"].back()) + ", weights " + text_of(model.weights()));
}
const RegisterScenario twice("elastic two fits", fit_twice);

TEST_F(Elastic, AWorkerThatComesBackJoinsTheFitThatTheOthersAreIn) {
  const std::string expected =
      run({.scenario = "elastic two fits", .workers = 1, .launcher = Launcher::alone})[0].report;
  EXPECT_THAT(expected, HasSubstr("second"));
  for (const int who : {2, 0}) {
    Crew crew({.scenario = "elastic two fits", .workers = 3, .environment = {"TEST_PAUSE_MS=10"}});
    const int other = 1;
    ASSERT_TRUE(await(crew, [&] { return crew.progress(other) == 1000; }));
    // In the second one, whose steps are counted anew.
    ASSERT_TRUE(await(crew, [&] { return crew.progress(other) != 1000 && crew.progress(other) > 10; }));
    crew.kill(who);
    crew.start(who);
    const bool joined = await(crew, [&] { return crew.progress(who) > 0 && crew.progress(who) != 1000; });
    const std::vector<WorkerResult> results = crew.wait();
    EXPECT_TRUE(joined) << results[static_cast<size_t>(who)].output;
    for (size_t w = 0; w < results.size(); ++w) {
      EXPECT_EQ(results[w].status, 0) << results[w].output;
      // What it has reported before it was killed stands in front.
      EXPECT_TRUE(results[w].report.ends_with(expected)) << results[w].report << results[w].output;
    }
  }
}

// --- without elastic ---------------------------------------------------------------------------------------

TEST_F(Elastic, WithoutItAllStopWithABackupOfTheLastStep) {
  const std::string expected = undisturbed();
  const std::string folder = "/tmp/lockstep_elastic_" + std::to_string(getpid());
  Crew crew({.scenario = "elastic",
             .workers = 3,
             .environment = {"2:TEST_DIES=1/4", "TEST_MIN=0", "TEST_BACKUP=" + folder}});
  const std::vector<WorkerResult> results = crew.wait();
  for (const size_t w : {0, 1}) EXPECT_EQ(results[w].status, 75) << results[w].output;
  EXPECT_THAT(results[0].report, HasSubstr("the backup has step 5 of epoch 2"));
  for (int w = 0; w < 3; ++w) crew.start(w);
  for (const WorkerResult& worker : crew.wait()) {
    EXPECT_EQ(worker.status, 0) << worker.output;
    EXPECT_THAT(worker.report, HasSubstr(expected));
  }
  std::filesystem::remove_all(folder);
}

// --- loops by hand -----------------------------------------------------------------------------------------

void loop_by_hand() {
  set_random_seed(7);
  const MultiWorkerMirroredStrategy strategy(
      {.reproducible = true, .report = false, .elastic = {.min_workers = 1}});
  Variable w;
  std::optional<keras::optimizers::Optimizer> optimizer;
  {
    const auto scope = strategy.scope();
    w = Variable(Tensor::full(DType::float32, {20, 1}, 0.1F), {.name = "w"});
    optimizer = keras::optimizers::Adam({.learning_rate = 0.01});
    optimizer->build({w});
  }
  std::vector<Variable> variables = optimizer->variables();
  variables.push_back(w);
  const Examples train = examples(96);
  const data::Dataset dataset =
      data::Dataset::from_tensor_slices({train.x}).batch(16).repeat(number("TEST_REPEATS", 4));
  const distribute::DistributedDataset batches = strategy.distribute_dataset(dataset);
  int64_t step = 0;
  for (auto batch = batches.begin(); batch != batches.end();) {
    // Whoever has joined goes on from the step that the others are at.
    const int64_t at = strategy.admit(step, variables);
    for (; step < at; ++step) ++batch;
    batch.again();
    note_progress(step);
    if (detail::concat(step) == setting("TEST_DIES") && setting("TEST_STARTS") == "0")
      kill(getpid(), SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(number("TEST_PAUSE_MS", 0)));
    int64_t done = step;
    try {
      strategy.run(
          [&](const Tensor& x) {
            GradientTape tape;
            const Tensor loss = distribute::global_mean(square(matmul(x, w) - 1.0));
            optimizer->apply_gradients(tape.gradient(loss, std::vector<Variable>{w}), {w});
          },
          *batch);
      ++done;
    } catch (const errors::UnavailableError&) {
      done = strategy.recover(step, variables);
    }
    if (done == step)
      batch.again();
    else
      ++batch;
    step = done;
  }
  report(detail::concat(step, " steps, ", text_of({w})));
}
const RegisterScenario by_hand("elastic loop by hand", loop_by_hand);

TEST_F(Elastic, ALoopByHandGoesOnFromTheStepThatTheFarthestHasFinished) {
  const std::string expected =
      run({.scenario = "elastic loop by hand", .workers = 1, .launcher = Launcher::alone})[0].report;
  EXPECT_THAT(expected, HasSubstr("24 steps"));
  const std::vector<WorkerResult> results =
      run({.scenario = "elastic loop by hand",
           .workers = 3,
           .environment = {"0:TEST_DIES=5", "2:TEST_DIES=17", "TEST_STARTS=0"}});
  EXPECT_EQ(results[1].status, 0) << results[1].output;
  EXPECT_EQ(results[1].report, expected) << results[1].output;
}

TEST_F(Elastic, AWorkerThatComesBackJoinsALoopByHand) {
  const std::vector<std::string> longer = {"TEST_REPEATS=40", "TEST_PAUSE_MS=10"};
  const std::string expected = run({.scenario = "elastic loop by hand",
                                    .workers = 1,
                                    .launcher = Launcher::alone,
                                    .environment = {"TEST_REPEATS=40"}})[0]
                                   .report;
  EXPECT_THAT(expected, HasSubstr("240 steps"));
  for (const int who : {2, 0}) {
    Crew crew({.scenario = "elastic loop by hand", .workers = 3, .environment = longer});
    ASSERT_TRUE(await(crew, [&] { return crew.progress(who) > 10; }));
    crew.kill(who);
    crew.start(who);
    const bool joined = await(crew, [&] { return crew.progress(who) > 10; });
    const std::vector<WorkerResult> results = crew.wait();
    EXPECT_TRUE(joined) << results[static_cast<size_t>(who)].output;
    for (const WorkerResult& worker : results) {
      EXPECT_EQ(worker.status, 0) << worker.output;
      EXPECT_EQ(worker.report, expected) << worker.output;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
