// Runs that outlive their workers: the weights are those of a run that nothing has disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/crc32c.h"
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
  keras::Sequential model({layers::Dense(16, {.activation = "relu", .input_shape = {20}}),
                           layers::BatchNormalization(), layers::Dropout(0.2), layers::Dense(4)});
  model.compile({.optimizer = keras::optimizers::Adam({.learning_rate = 0.01}),
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
  }
  void on_train_batch_end(int64_t batch, const keras::Logs&) override {
    if (at(batch) == setting("TEST_DIES") && setting("TEST_STARTS") == "0") kill(getpid(), SIGKILL);
    if (at(batch) == setting("TEST_STOPS") && setting("TEST_STARTS") == "0") kill(getpid(), SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(number("TEST_PAUSE_MS", 0)));
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
       .communication = {.timeout_seconds = static_cast<double>(number("TEST_TIMEOUT", 60))},
       .elastic = {.min_workers = number("TEST_MIN", 1), .wait_seconds = 60}});
  keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = network();
  }
  const Examples train = examples(90), test = examples(21);
  keras::FitOptions options{.batch_size = 16,
                            .epochs = number("TEST_EPOCHS", 4),
                            .verbose = 0,
                            .callbacks = {keras::make_callback<Mortal>()},
                            .validation_data = {test.x, test.y}};
  if (const std::string folder = setting("TEST_BACKUP"); !folder.empty())
    options.callbacks.push_back(keras::callbacks::BackupAndRestore(folder, {.save_freq = 3}));
  if (const std::string file = setting("TEST_CSV"); !file.empty())
    options.callbacks.push_back(keras::callbacks::CSVLogger(file));
  const data::Dataset dataset =
      data::Dataset::from_tensor_slices({train.x, train.y}).shuffle(90, {.seed = 3}).batch(16);
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

}  // namespace
}  // namespace lockstep::testing
