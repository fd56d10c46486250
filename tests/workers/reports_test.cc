// The closing report of several workers: one, from the chief, on all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

using distribute::MultiWorkerMirroredStrategy;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSteps = 20, kBatch = 32;

// Worker 1 has more to do before each step.
class Dawdling final : public keras::CallbackBase {
 public:
  void on_train_batch_begin(int64_t, const keras::Logs&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
};

void fit_with_report() {
  set_random_seed(3);
  const MultiWorkerMirroredStrategy strategy;
  keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = keras::Sequential({keras::layers::Dense(4, {.input_shape = {8}})});
    model.compile({.optimizer = "sgd", .loss = "mse"});
  }
  const Tensor x = random::normal({kSteps * kBatch, 8}), y = random::normal({kSteps * kBatch, 4});
  std::vector<keras::Callback> callbacks;
  if (strategy.worker() == 1) callbacks.push_back(keras::make_callback<Dawdling>());
  const keras::History history =
      model.fit(x, y, {.batch_size = kBatch, .verbose = 2, .callbacks = callbacks});
  const observe::RunSummary& time = history.time;
  int64_t examples = 0;
  for (const observe::ReplicaSummary& replica : time.replicas)
    examples += replica.counts[observe::Counter::examples];
  report(detail::concat(time.workers.size(), " workers, ", time.replicas.size(), " replicas, ", examples,
                        " examples"));
}
const RegisterScenario fit_reported("fit with report", fit_with_report);

void loop_with_report() {
  const MultiWorkerMirroredStrategy strategy;
  const auto step = [](const Tensor& x) {
    return distribute::all_reduce(distribute::ReduceOp::sum, reduce_sum(x));
  };
  const Tensor x = Tensor::full(DType::float32, {kBatch, 4}, 1);
  for (int i = 0; i < kSteps; ++i) strategy.run(step, strategy.distribute(x));
}
const RegisterScenario loop_reported("loop with report", loop_with_report);

// One worker leaves the loop by an exception: nobody waits for its figures.
void failing_loop() {
  const MultiWorkerMirroredStrategy strategy;
  const Tensor x = Tensor::full(DType::float32, {kBatch, 4}, 1);
  const auto step = [](const Tensor& each) {
    return distribute::all_reduce(distribute::ReduceOp::sum, reduce_sum(each));
  };
  for (int i = 0; i < kSteps; ++i) strategy.run(step, strategy.distribute(x));
  if (strategy.worker() == 1) throw std::runtime_error("worker 1 has had enough");
}
const RegisterScenario loop_failed("failing loop", failing_loop);

// The ids of the verdicts, and what bounds the run.
std::string ids_of(const observe::RunSummary& time) {
  std::string ids;
  for (const observe::Verdict& verdict : observe::judge(time)) ids += verdict.id + " ";
  return ids + "(" + observe::bound_by(time) + ")\n";
}

keras::Sequential dense_model(const MultiWorkerMirroredStrategy& strategy, int64_t units) {
  const auto scope = strategy.scope();
  keras::Sequential model({keras::layers::Dense(units, {.input_shape = {units}})});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  return model;
}

// Worker 1 has more to do before each step: the other waits for it, though both compute alike fast.
void uneven_workers() {
  const MultiWorkerMirroredStrategy strategy({.report = false});
  const Tensor x = random::normal({kSteps * kBatch, 8});
  std::vector<keras::Callback> callbacks;
  if (strategy.worker() == 1) callbacks.push_back(keras::make_callback<Dawdling>());
  report(ids_of(
      dense_model(strategy, 8).fit(x, x, {.batch_size = kBatch, .verbose = 0, .callbacks = callbacks}).time));
}
const RegisterScenario unevenly("uneven workers", uneven_workers);

// A gradient of 16 MB, for which next to nothing is computed.
void much_to_send() {
  constexpr int64_t kUnits = 2048;
  const MultiWorkerMirroredStrategy strategy({.report = false});
  const Tensor x = random::normal({2 * kSteps, kUnits});
  report(ids_of(dense_model(strategy, kUnits).fit(x, x, {.batch_size = 2, .verbose = 0}).time));
}
const RegisterScenario sends_much("much to send", much_to_send);

// Each worker reads all of the data.
void same_examples() {
  const MultiWorkerMirroredStrategy strategy({.report = false});
  const bool shared = std::getenv("TEST_SHARED") != nullptr;
  set_random_seed(5);
  const Tensor x = random::normal({kSteps * kBatch, 8});
  data::Dataset dataset =
      data::Dataset::from_tensor_slices({x, x}).with_options({.auto_shard = data::AutoShardPolicy::off});
  if (shared) dataset = dataset.shard(strategy.num_workers(), strategy.worker());
  report(ids_of(dense_model(strategy, 8).fit(dataset.batch(kBatch), {.verbose = 0}).time));
}
const RegisterScenario unshared("same examples", same_examples);

// In the middle of a long epoch the chief's record tells of the other worker.
class LooksAtTheRecord final : public keras::CallbackBase {
 public:
  explicit LooksAtTheRecord(std::string folder) : folder_(std::move(folder)) {}
  void on_train_batch_end(int64_t, const keras::Logs&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const observe::RunRecord record = observe::read_record(folder_);
    // The first word of the other worker is about its first steps.
    if (seen_ || record.epoch > 0 || record.replicas.size() < 2 || record.replicas[1].steps < 4) return;
    seen_ = true;
    report(detail::concat("worker 1 is seen with ", record.replicas[1].intervals.empty() ? "no " : "",
                          "intervals"));
    model().stop_training();
  }

 private:
  std::string folder_;
  bool seen_ = false;
};

void recorded() {
  const MultiWorkerMirroredStrategy strategy({.report = false});
  const std::string folder = std::getenv("TEST_FOLDER");
  const Tensor x = random::normal({kBatch, 8});
  const data::Dataset forever = data::Dataset::from_tensor_slices({x, x}).batch(kBatch).repeat();
  std::vector<keras::Callback> callbacks = {keras::callbacks::RunRecord(folder)};
  if (strategy.is_chief()) callbacks.push_back(keras::make_callback<LooksAtTheRecord>(folder));
  dense_model(strategy, 8).fit(forever, {.verbose = 0, .callbacks = callbacks, .steps_per_epoch = 20'000});
}
const RegisterScenario kept_live("recorded", recorded);

// What else the machine does must not take longer than the cause: one attempt of some will do. Where others
// had the processors all the time, workers rightly have no verdict on each other.
void expect_verdict(const char* scenario, const std::string& id,
                    const std::vector<std::string>& environment = {}) {
  if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "code that is not optimised takes longer than the cause";
#endif
  constexpr int kAttempts = 3;
  std::string said;
  int disturbed = 0;
  for (int i = 0; i < kAttempts; ++i) {
    const auto results = run({.scenario = scenario, .workers = 2, .environment = environment});
    for (const WorkerResult& worker : results) ASSERT_EQ(worker.status, 0) << worker.output;
    EXPECT_EQ(results[0].report, results[1].report) << "all workers know the same";
    if (results[0].report.find(id) != std::string::npos) return;
    said += results[0].report;
    disturbed += results[0].report.find("other programs had its processors") != std::string::npos;
  }
  if (disturbed == kAttempts) GTEST_SKIP() << "other programs had the processors";
  FAIL() << "not " << id << " but\n" << said;
}

TEST(VerdictsOnWorkers, ThatWaitForEachOther) { expect_verdict("uneven workers", "waiting-for-others"); }
TEST(VerdictsOnWorkers, ThatSendMoreThanTheyCompute) {
  expect_verdict("much to send", "communication-bound");
}
TEST(VerdictsOnWorkers, ThatReadTheSameExamples) {
  expect_verdict("same examples", "not-sharded");
  if (IsSkipped()) return;
  const auto results = run({.scenario = "same examples", .workers = 2, .environment = {"TEST_SHARED=1"}});
  EXPECT_THAT(results[0].report, Not(HasSubstr("not-sharded")))
      << "each has its own part, though nobody cut it";
}

TEST(RecordsOfWorkers, AreLive) {
  if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "live_record";
  std::filesystem::remove_all(folder);
  const auto results =
      run({.scenario = "recorded", .workers = 2, .environment = {"TEST_FOLDER=" + folder.string()}});
  for (const WorkerResult& worker : results) EXPECT_EQ(worker.status, 0) << worker.output;
  EXPECT_EQ(results[0].report, "worker 1 is seen with intervals\n");
  const observe::RunRecord record = observe::read_record(folder.string());
  ASSERT_EQ(record.replicas.size(), 2u);
  EXPECT_EQ(record.replicas[1].steps, record.replicas[0].steps) << "when all have ended, all is known";
  std::filesystem::remove_all(folder);
}

class Reports : public ::testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    if (const std::string why = missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(Reports, OfFitCoverAllWorkersAndComeFromTheChief) {
  const auto results =
      run({.scenario = "fit with report", .workers = 2, .devices = 2, .launcher = GetParam()});
  for (const WorkerResult& worker : results) {
    EXPECT_EQ(worker.status, 0) << worker.output;
    EXPECT_EQ(worker.report, detail::concat("2 workers, 4 replicas, ", kSteps * kBatch, " examples\n"));
  }
  const std::string& text = results[0].output;
  EXPECT_THAT(text, HasSubstr("20 steps on 4 replicas of 2 workers: mean "));
  EXPECT_THAT(text, HasSubstr(" examples/s\n"));
  EXPECT_THAT(text, HasSubstr("replica 3:"));
  EXPECT_THAT(text, HasSubstr("slowest: worker 1 (process "));
  EXPECT_THAT(text, HasSubstr("fastest: worker 0 (process "));
  EXPECT_THAT(text, HasSubstr("waiting: worker 0 (process "));
  // mpirun has one output for all.
  EXPECT_EQ(text.find(" steps on "), text.rfind(" steps on ")) << text;
  if (GetParam() == Launcher::lockstep) {
    EXPECT_THAT(results[1].output, Not(HasSubstr(" steps on ")));
  }
}

TEST_P(Reports, OfALoopByHandToo) {
  const auto results = run({.scenario = "loop with report", .workers = 3, .launcher = GetParam()});
  for (const WorkerResult& worker : results) EXPECT_EQ(worker.status, 0) << worker.output;
  const std::string& text = results[0].output;
  EXPECT_THAT(text,
              HasSubstr("MultiWorkerMirroredStrategy::run\n20 steps on 3 replicas of 3 workers: mean "));
  EXPECT_EQ(text.find(" steps on "), text.rfind(" steps on ")) << text;
}

TEST(ReportsOfAFailedLoop, AreTheChiefsOwn) {
  if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  const auto results = run({.scenario = "failing loop", .workers = 2});
  EXPECT_EQ(results[0].status, 0) << results[0].output;
  EXPECT_NE(results[1].status, 0);
  EXPECT_THAT(results[0].output, HasSubstr("the report covers worker 0 alone"));
  EXPECT_THAT(results[0].output, HasSubstr("20 steps on 1 replica: mean "));
}

INSTANTIATE_TEST_SUITE_P(Engines, Reports, ::testing::Values(Launcher::lockstep, Launcher::mpirun),
                         [](const auto& info) { return info.param == Launcher::mpirun ? "Mpi" : "Gloo"; });

}  // namespace
}  // namespace lockstep::testing
