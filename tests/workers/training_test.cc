// Training over several processes: the same bits as in one, whoever holds which replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "tensor/tensor_impl.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

namespace layers = keras::layers;
using distribute::Distributed;
using distribute::MultiWorkerMirroredStrategy;
using distribute::StrategyOptions;
using ::testing::HasSubstr;

std::string text_of(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

// Weights as a sum of their bytes, so that one bit shows.
std::string text_of(const std::vector<Variable>& variables) {
  std::string text;
  for (const Variable& variable : variables) {
    const Tensor value = variable.value();
    text += detail::concat(
        variable.name(), " ",
        crc32c(std::string_view(static_cast<const char*>(value.impl()->data()), value.spec().bytes())), "\n");
  }
  return text;
}

void report_history(const keras::History& history) {
  for (const auto& [name, values] : history.history)
    for (const double value : values) report(name + " " + text_of(value));
}

keras::Sequential small_network() {
  return keras::Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {20}}),
                            layers::BatchNormalization({.synchronized = true}), layers::Dropout(0.2),
                            layers::Dense(4)});
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

// LOCKSTEP_TEST_REPRODUCIBLE=0 turns it off.
StrategyOptions options() {
  const char* off = std::getenv("TEST_REPRODUCIBLE");
  return {.reproducible = !off || *off != '0', .report = false, .communication = {.timeout_seconds = 60}};
}

keras::Sequential compiled_network(const MultiWorkerMirroredStrategy& strategy, int accumulation = 0) {
  const auto scope = strategy.scope();
  keras::Sequential model = small_network();
  keras::optimizers::AdamOptions adam{.learning_rate = 0.01};
  if (accumulation > 1) adam.gradient_accumulation_steps = accumulation;
  model.compile({.optimizer = keras::optimizers::Adam(adam),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  return model;
}

// Arrays, the last batch not whole; evaluation and prediction.
void fit_arrays() {
  set_random_seed(7);
  const MultiWorkerMirroredStrategy strategy(options());
  keras::Sequential model = compiled_network(strategy);
  const Examples train = examples(90), test = examples(21);
  report_history(model.fit(
      train.x, train.y, {.batch_size = 32, .epochs = 2, .verbose = 0, .validation_data = {test.x, test.y}}));
  report(text_of(model.weights()));
  for (const auto& [name, value] : model.evaluate(test.x, test.y, {.batch_size = 8, .verbose = 0}))
    report(name + " " + text_of(value));
  const Tensor predictions = model.predict(keras::Data(test.x), {.batch_size = 8, .verbose = 0});
  report(detail::concat("predictions ", predictions.shape()));
  for (const float value : predictions.to_vector<float>()) report(text_of(value));
}
const RegisterScenario arrays("fit arrays", fit_arrays);

void fit_dataset() {
  set_random_seed(7);
  const MultiWorkerMirroredStrategy strategy(options());
  keras::Sequential model = compiled_network(strategy, 2);
  const Examples train = examples(90);
  const data::Dataset dataset =
      data::Dataset::from_tensor_slices({train.x, train.y}).shuffle(90, {.seed = 3}).batch(16);
  report_history(model.fit(dataset, {.epochs = 2, .verbose = 0}));
  report(text_of(model.weights()));
}
const RegisterScenario dataset("fit dataset", fit_dataset);

// A loop by hand.
void run_by_hand() {
  set_random_seed(7);
  const MultiWorkerMirroredStrategy strategy(options());
  Variable w, b;
  std::optional<keras::optimizers::Optimizer> optimizer;
  {
    const auto scope = strategy.scope();
    w = Variable(random::normal({20, 4}, {.stddev = 0.1}), {.name = "w"});
    b = Variable(Tensor::full(DType::float32, {4}, 0), {.name = "b"});
    optimizer.emplace(keras::optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}));
  }
  const keras::Loss loss = keras::losses::SparseCategoricalCrossentropy(
      {.from_logits = true, .reduction = keras::Reduction::none});
  const Examples train = examples(50);
  const auto step = [&](const Tensor& x, const Tensor& y) {
    GradientTape tape;
    const Tensor mean = distribute::global_mean(loss(y, matmul(x, w) + b));
    optimizer->apply_gradients(tape.gradient(mean, std::vector<Variable>{w, b}), {w, b});
    return mean;
  };
  const data::Dataset dataset = data::Dataset::from_tensor_slices({train.x, train.y}).batch(16);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const distribute::DistributedElement& batch : strategy.distribute_dataset(dataset)) {
      const Distributed losses = strategy.run(step, batch);
      report(text_of(strategy.reduce(distribute::ReduceOp::sum, losses).item<float>()));
    }
  report(text_of({w, b}));
  // Each replica by its number, in order.
  const Distributed numbers = strategy.run([] { return cast(distribute::replica_id(), DType::float32); });
  const Tensor sum = strategy.reduce(distribute::ReduceOp::sum, numbers);
  report(detail::concat(strategy.num_replicas_in_sync(), " replicas, their numbers add up to ",
                        sum.item<float>()));
}
const RegisterScenario by_hand("by hand", run_by_hand);

// Dies where TEST_DIES says so, after some batches of the second epoch.
class Death final : public keras::CallbackBase {
 public:
  void on_epoch_begin(int epoch, const keras::Logs&) override { epoch_ = epoch; }
  void on_train_batch_end(int64_t batch, const keras::Logs&) override {
    if (epoch_ == 1 && batch == 3 && std::getenv("TEST_DIES")) kill(getpid(), SIGKILL);
  }

 private:
  int epoch_ = 0;
};

void fit_with_backup() {
  set_random_seed(7);
  const MultiWorkerMirroredStrategy strategy(options());
  keras::Sequential model = compiled_network(strategy, 2);
  const Examples train = examples(90);
  const std::string folder = std::getenv("TEST_FOLDER");
  const keras::Callback backup = keras::callbacks::BackupAndRestore(folder, {.save_freq = 2});
  const keras::Callback log = keras::callbacks::CSVLogger(folder + "/log.csv");
  const bool arrays = std::string(std::getenv("TEST_DATA")) == "arrays";
  const keras::FitOptions fit{
      .batch_size = 16, .epochs = 3, .verbose = 0, .callbacks = {backup, log, keras::make_callback<Death>()}};
  const data::Dataset dataset =
      data::Dataset::from_tensor_slices({train.x, train.y}).shuffle(90, {.seed = 3}).batch(16);
  report_history(arrays ? model.fit(train.x, train.y, fit) : model.fit(dataset, fit));
  report(text_of(model.weights()));
}
const RegisterScenario with_backup("with backup", fit_with_backup);

std::string report_of(const Run& start) {
  const std::vector<WorkerResult> results = run(start);
  for (size_t w = 0; w < results.size(); ++w) {
    EXPECT_EQ(results[w].status, 0) << start.scenario << ", worker " << w << " of " << results.size() << ":\n"
                                    << results[w].output;
    EXPECT_EQ(results[w].report, results[0].report) << start.scenario << ", worker " << w;
  }
  return results[0].report;
}

class SameBits : public ::testing::TestWithParam<const char*> {};

TEST_P(SameBits, ForEveryDivisionOverWorkersAndDevices) {
  if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  const std::string alone =
      report_of({.scenario = GetParam(), .workers = 1, .devices = 4, .launcher = Launcher::alone});
  EXPECT_THAT(alone, HasSubstr("\n"));
  for (const auto& [workers, devices] : {std::pair(2, 2), std::pair(4, 1), std::pair(3, 1)})
    EXPECT_EQ(report_of({.scenario = GetParam(), .workers = workers, .devices = devices}), alone)
        << workers << " workers of " << devices << " devices";
  EXPECT_EQ(report_of({.scenario = GetParam(), .workers = 1, .devices = 3, .launcher = Launcher::alone}),
            alone);
}

TEST_P(SameBits, OnMpi) {
  if (const std::string why = missing(Launcher::mpirun); !why.empty()) GTEST_SKIP() << why;
  const std::string alone =
      report_of({.scenario = GetParam(), .workers = 1, .devices = 4, .launcher = Launcher::alone});
  EXPECT_EQ(report_of({.scenario = GetParam(), .workers = 2, .devices = 2, .launcher = Launcher::mpirun}),
            alone);
}

class Backups : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
    char name[] = "/tmp/lockstep_worker_backup_XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  lockstep::testing::Run with(int workers, int devices, std::vector<std::string> more = {}) const {
    more.push_back("TEST_FOLDER=" + folder_);
    more.push_back(std::string("TEST_DATA=") + GetParam());
    return {.scenario = "with backup", .workers = workers, .devices = devices, .environment = more};
  }
  std::string folder_;
};

// Killed with three workers, it goes on with two, is killed again, and ends with one: as if nothing had
// happened.
TEST_P(Backups, GoOnWithAnotherNumberOfWorkers) {
  lockstep::testing::Run undisturbed = with(1, 4);
  undisturbed.launcher = Launcher::alone;
  const std::string expected = report_of(undisturbed);
  for (const WorkerResult& worker : run(with(3, 1, {"1:TEST_DIES=1"}))) EXPECT_NE(worker.status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/backup.safetensors"));
  for (const WorkerResult& worker : run(with(2, 2, {"0:TEST_DIES=1"}))) EXPECT_NE(worker.status, 0);
  EXPECT_EQ(report_of(with(2, 1)), expected);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/backup.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Workers, Backups, ::testing::Values("arrays", "dataset"));

INSTANTIATE_TEST_SUITE_P(Workers, SameBits, ::testing::Values("fit arrays", "fit dataset", "by hand"));

}  // namespace
}  // namespace lockstep::testing
