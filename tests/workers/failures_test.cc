// Mistakes that are named before the first step, and workers that do not come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "comm/cluster.h"
#include "comm/workers.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

namespace layers = keras::layers;
using distribute::MultiWorkerMirroredStrategy;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

keras::Sequential network(int64_t units) {
  keras::Sequential model(
      {layers::Dense(units, {.activation = "relu", .input_shape = {8}}), layers::Dense(2)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  return model;
}

Tensor inputs(int64_t count) { return Tensor::full(DType::float32, {count, 8}, 0.5); }
Tensor labels(int64_t count) { return Tensor::full(DType::float32, {count, 2}, 1); }

// What a worker does that is told TEST_MISTAKE.
void make_mistake() {
  const std::string mistake = setting("TEST_MISTAKE");
  const distribute::StrategyOptions options{
      .virtual_replicas = mistake == "options" ? 4 : 8,
      .report = false,
      .communication = {.timeout_seconds = 5, .join_timeout_seconds = 5}};
  const MultiWorkerMirroredStrategy strategy(options);
  keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = network(mistake == "shape" ? 5 : 4);
    if (mistake == "loss") model.compile({.optimizer = "sgd", .loss = "mae"});
  }
  const int64_t count = mistake == "data" ? 60 : 64;
  const Tensor x = inputs(count), y = labels(count);
  if (mistake == "evaluates") {
    model.evaluate(x, y, {.verbose = 0});
    return;
  }
  model.fit(
      x, y,
      {.batch_size = 16, .epochs = mistake == "epochs" ? 2 : 1, .verbose = 0, .shuffle = mistake != "order"});
}
const RegisterScenario mistakes("mistakes", make_mistake);

// Every worker says what is wrong, and none trains.
void expect_all_say(const Run& start, const ::testing::Matcher<const std::string&>& says) {
  for (const WorkerResult& worker : run(start)) {
    EXPECT_EQ(worker.status, 1) << worker.output;
    EXPECT_THAT(worker.report, says);
  }
}

class Mistakes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(Mistakes, OtherOptions) {
  expect_all_say(
      {.scenario = "mistakes", .workers = 2, .environment = {"1:TEST_MISTAKE=options"}},
      AllOf(HasSubstr("the workers differ in the options of the strategy"), HasSubstr("virtual_replicas 4")));
}

TEST_F(Mistakes, OtherVariables) {
  expect_all_say(
      {.scenario = "mistakes", .workers = 3, .environment = {"2:TEST_MISTAKE=shape"}},
      AllOf(HasSubstr("the workers differ in the variables: variable 1 is "),
            HasSubstr("float32(8, 4) at the chief, and "), HasSubstr("float32(8, 5) at worker 2")));
}

// A mistake of the program: a scheduler is not told to start it again.
TEST_F(Mistakes, OtherPrograms) {
  for (const WorkerResult& worker :
       run({.scenario = "mistakes", .workers = 3, .environment = {"2:TEST_MISTAKE=loss"}})) {
    EXPECT_EQ(worker.status, 1) << worker.output;
    EXPECT_THAT(worker.report, HasSubstr("the workers do not run the same program"));
  }
}

TEST_F(Mistakes, OtherOptionsOfFit) {
  expect_all_say({.scenario = "mistakes", .workers = 2, .environment = {"1:TEST_MISTAKE=epochs"}},
                 AllOf(HasSubstr("the workers differ in the options of fit"), HasSubstr("epochs 1,"),
                       HasSubstr("epochs 2,")));
  expect_all_say({.scenario = "mistakes", .workers = 2, .environment = {"1:TEST_MISTAKE=order"}},
                 AllOf(HasSubstr("the workers differ in the options of fit"), HasSubstr("shuffle 0")));
}

TEST_F(Mistakes, OtherData) {
  expect_all_say({.scenario = "mistakes", .workers = 2, .environment = {"1:TEST_MISTAKE=data"}},
                 AllOf(HasSubstr("the workers differ in the size of the data"), HasSubstr("64 examples"),
                       HasSubstr("60 examples")));
}

TEST_F(Mistakes, AnotherSecret) {
  const auto results =
      run({.scenario = "mistakes", .workers = 2, .environment = {"1:LOCKSTEP_SECRET=another"}});
  EXPECT_THAT(results[0].report, HasSubstr("rank 1 of 2 did not come"));
  EXPECT_THAT(results[1].report, HasSubstr("rank 0 did not take the secret"));
}

TEST_F(Mistakes, OtherDevices) {
  expect_all_say({.scenario = "mistakes", .workers = 2, .environment = {"1:TEST_DEVICES=2"}},
                 AllOf(HasSubstr("the workers differ in their devices"), HasSubstr("CPU, CPU")));
}

// One trains, the others evaluate.
TEST_F(Mistakes, AnotherCall) {
  expect_all_say({.scenario = "mistakes", .workers = 3, .environment = {"1:TEST_MISTAKE=evaluates"}},
                 AnyOf(HasSubstr("the workers do not do the same"), HasSubstr("cannot happen: rank ")));
}

TEST_F(Mistakes, AWorkerThatNeverComes) {
  const auto results = run({.scenario = "mistakes", .workers = 1, .environment = {"LOCKSTEP_WORKERS=2"}});
  EXPECT_THAT(results[0].report, HasSubstr("rank 1 of 2 did not come"));
}

// --- workers that do not come ------------------------------------------------------------------------------

class Disturbance final : public keras::CallbackBase {
 public:
  explicit Disturbance(std::string what) : what_(std::move(what)) {}
  void on_train_batch_end(int64_t batch, const keras::Logs&) override {
    if (batch != 2) return;
    if (what_ == "dies") kill(getpid(), SIGKILL);
    if (what_ == "stops") kill(getpid(), SIGSTOP);
    if (what_ == "sleeps") std::this_thread::sleep_for(std::chrono::hours(1));
    if (what_ == "throws") fail(ErrorCode::io, std::source_location::current(), "the disk is full");
    if (what_ == "leaves") std::exit(0);
  }

 private:
  const std::string what_;
};

void be_disturbed() {
  const MultiWorkerMirroredStrategy strategy({.report = false, .communication = {.timeout_seconds = 4}});
  keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = network(4);
  }
  model.fit(inputs(64), labels(64),
            {.batch_size = 4,
             .epochs = 1000,
             .verbose = 0,
             .callbacks = {keras::make_callback<Disturbance>(setting("TEST_DISTURBANCE"))}});
}
const RegisterScenario disturbed("disturbed", be_disturbed);

struct Case {
  const char* disturbance;
  std::vector<const char*> words;
};
class Disturbed : public Mistakes, public ::testing::WithParamInterface<Case> {};

TEST_P(Disturbed, IsNamedOnAllOthers) {
  for (const int who : {2, 0}) {
    const std::vector<WorkerResult> results =
        run({.scenario = "disturbed",
             .workers = 3,
             .environment = {detail::concat(who, ":TEST_DISTURBANCE=", GetParam().disturbance)},
             .killed_last = who});
    for (int w = 0; w < 3; ++w) {
      if (w == who) continue;
      const WorkerResult& worker = results[static_cast<size_t>(w)];
      EXPECT_EQ(worker.status, errors::kUnavailableStatus) << worker.output;
      EXPECT_THAT(worker.report, HasSubstr(detail::concat("rank ", who, " (process ")));
      for (const char* word : GetParam().words) EXPECT_THAT(worker.report, HasSubstr(word));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, Disturbed,
                         ::testing::Values(Case{"dies", {"is gone: it closed the connection"}},
                                           Case{"throws", {"gave up", "the disk is full"}},
                                           Case{"stops", {"nothing was heard of it: it is stopped"}},
                                           Case{"sleeps", {"has not come to", "it is in a callback"}},
                                           Case{"leaves", {}}),
                         [](const auto& info) { return std::string(info.param.disturbance); });

}  // namespace
}  // namespace lockstep::testing
