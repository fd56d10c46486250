// Who reads what, and epochs that end together whatever each worker has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/test_folder_test.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using data::AutoShardPolicy;
using data::Dataset;
using distribute::MultiWorkerMirroredStrategy;
using ::testing::HasSubstr;

// Files of numbers 0, 1, 2, ...: so many lines in each.
std::unique_ptr<TestFolder> write_files(const std::vector<int>& lines) {
  auto folder = std::make_unique<TestFolder>("worker_files");
  int next = 0;
  for (size_t f = 0; f < lines.size(); ++f) {
    std::ofstream file(*folder / ("part_" + std::to_string(f) + ".txt"));
    for (int i = 0; i < lines[f]; ++i) file << next++ << "\n";
  }
  return folder;
}

Dataset numbers(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return data::TextLineDataset(files).map(
      [](const Tensor& line) { return Tensor::scalar(std::stof(data::text(line))); });
}

// Every global batch: how many examples, and their sum.
void sum_batches() {
  const MultiWorkerMirroredStrategy strategy({.report = false});
  const std::string policy = std::getenv("TEST_POLICY");
  const Dataset dataset = numbers(std::getenv("TEST_FOLDER"))
                              .batch(8)
                              .with_options({.auto_shard = policy == "file"   ? AutoShardPolicy::file
                                                           : policy == "data" ? AutoShardPolicy::data
                                                           : policy == "off"  ? AutoShardPolicy::off
                                                                              : AutoShardPolicy::automatic});
  const auto count_and_sum = [](const Tensor& x) {
    return distribute::all_reduce(distribute::ReduceOp::sum,
                                  stack(TensorList{reduce_sum(x * 0.0 + 1.0), reduce_sum(x)}));
  };
  double examples = 0, sum = 0;
  int batches = 0;
  const distribute::DistributedDataset shared = strategy.distribute_dataset(dataset);
  if (std::getenv("TEST_EXPLAINS")) report(data::to_text(shared.explain({.elements = 2})));
  for (const distribute::DistributedElement& batch : shared) {
    const std::vector<float> both = strategy.run(count_and_sum, batch).at(0).to_vector<float>();
    examples += both[0];
    sum += both[1];
    ++batches;
  }
  report(detail::concat(batches, " batches, ", examples, " examples, sum ", sum));
}
const RegisterScenario summed("sum batches", sum_batches);

// The same with fit: every example is seen once, so that the mean of the labels is the loss of a model that
// says 0.
void fit_files() {
  const MultiWorkerMirroredStrategy strategy({.report = false});
  keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = keras::Sequential({keras::layers::Dense(1, {.kernel_initializer = "zeros", .input_shape = {1}})});
    model.compile({.optimizer = keras::optimizers::SGD({.learning_rate = 0}), .loss = "mae"});
  }
  const Dataset dataset =
      numbers(std::getenv("TEST_FOLDER"))
          .map([](const Tensor& x) { return data::Element(reshape(x, {1}), reshape(x, {1})); })
          .batch(8);
  const keras::History history = model.fit(dataset, {.epochs = 2, .verbose = 0});
  for (const double loss : history["loss"]) report(detail::concat("loss ", loss));
}
const RegisterScenario fitted("fit files", fit_files);

// Batches by rows of numbers that are shuffled; TEST_SHUFFLED says when, and how: every example is seen once,
// or it is refused.
void shuffle_and_sum() {
  const std::string how = std::getenv("TEST_SHUFFLED");
  const auto shuffled = [&](std::optional<uint64_t> seed) {
    return Dataset::range(64).shuffle(64, {.seed = seed}).batch(8);
  };
  const Dataset early = shuffled(how == "before, seeded" ? std::optional<uint64_t>(5) : std::nullopt);
  const Dataset sampled = Dataset::sample_from_datasets({Dataset::range(32), Dataset::range(32, 64)});
  const MultiWorkerMirroredStrategy strategy({.report = false});
  if (how == "after other draws" && strategy.worker() == 1) random::uniform({1});
  const Dataset dataset =
      how == "sampled before" ? sampled.batch(8)
      : how == "as they come"
          ? Dataset::range(64)
                .map([](const Tensor& x) { return x; }, {.num_parallel_calls = 2, .deterministic = false})
                .batch(8)
      : how.starts_with("after") ? shuffled({})
                                 : early;
  const auto sums = [](const Tensor& x) {
    const Tensor value = cast(x, DType::float32);
    return distribute::all_reduce(distribute::ReduceOp::sum,
                                  stack(TensorList{reduce_sum(value), reduce_sum(value * value)}));
  };
  double sum = 0, squares = 0;
  for (const distribute::DistributedElement& batch : strategy.distribute_dataset(dataset)) {
    const std::vector<float> both = strategy.run(sums, batch).at(0).to_vector<float>();
    sum += both[0];
    squares += both[1];
  }
  report(detail::concat("sum ", sum, ", of squares ", squares));
}
const RegisterScenario shuffled_and_summed("shuffle and sum", shuffle_and_sum);

class Shuffled : public ::testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    if (const std::string why = missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  // What both workers report.
  static std::string of(const std::string& how) {
    const auto results = run({.scenario = "shuffle and sum",
                              .workers = 2,
                              .launcher = GetParam(),
                              .environment = {"TEST_SHUFFLED=" + how}});
    return results[0].report + results[1].report;
  }
};
constexpr const char* kEachOnce = "sum 2016, of squares 85344\n";

TEST_P(Shuffled, AfterTheStrategyEveryExampleIsSeenOnce) {
  EXPECT_EQ(of("after"), std::string(kEachOnce) + kEachOnce);
}
TEST_P(Shuffled, BeforeTheStrategyWithASeedToo) {
  EXPECT_EQ(of("before, seeded"), std::string(kEachOnce) + kEachOnce);
}
TEST_P(Shuffled, BeforeTheStrategyWithoutASeedIsRefused) {
  const std::string text = of("before");
  EXPECT_THAT(text, HasSubstr("the batches cannot be shared among 2 workers by rows: shuffle ["));
  EXPECT_THAT(text, HasSubstr("has no seed"));
  EXPECT_THAT(text, HasSubstr("make the strategy before the dataset"));
  EXPECT_THAT(of("sampled before"), HasSubstr("by rows: sample_from_datasets ["));
}
TEST_P(Shuffled, ElementsInTheOrderOfThreadsAreRefused) {
  EXPECT_THAT(of("as they come"), HasSubstr("gives elements as they become ready (deterministic = false)"));
}
TEST_P(Shuffled, AWorkerThatDrewMoreThanTheOthersIsNamed) {
  const std::string text = of("after other draws");
  EXPECT_THAT(text, HasSubstr("the workers differ in the order of the data"));
  EXPECT_THAT(text, HasSubstr("; rank 1 has shuffle ["));
}
INSTANTIATE_TEST_SUITE_P(Engines, Shuffled, ::testing::Values(Launcher::lockstep, Launcher::mpirun),
                         [](const auto& info) { return info.param == Launcher::mpirun ? "Mpi" : "Gloo"; });

class Sharding : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  }
  std::string of(const char* scenario, const char* policy, const std::vector<int>& lines, int workers) {
    folder_ = write_files(lines);
    const auto results = run(
        {.scenario = scenario,
         .workers = workers,
         .environment = {detail::concat("TEST_POLICY=", policy), "TEST_FOLDER=" + folder_->path().string()}});
    for (const WorkerResult& worker : results) {
      EXPECT_EQ(worker.report, results[0].report);
      if (worker.status != 0) return worker.report + worker.output;
    }
    return results[0].report;
  }
  std::unique_ptr<TestFolder> folder_;
};

// Each says what it reads itself.
TEST_F(Sharding, IsExplained) {
  const auto explained = [&](const char* policy, const std::vector<int>& lines) {
    folder_ = write_files(lines);
    return run({.scenario = "sum batches",
                .workers = 2,
                .environment = {detail::concat("TEST_POLICY=", policy),
                                "TEST_FOLDER=" + folder_->path().string(), "TEST_EXPLAINS=1"}});
  };
  EXPECT_THAT(explained("data", {30})[1].report,
              HasSubstr("the data is shared by rows: every worker reads all batches and keeps its rows"));
  const auto by_files = explained("file", {10, 20});
  for (int w = 0; w < 2; ++w)
    EXPECT_THAT(
        by_files[static_cast<size_t>(w)].report,
        HasSubstr(detail::concat("by files: worker ", w, " of 2 reads files ", w, ", ", w + 2, ", ")));
}

TEST_F(Sharding, ByDataGlobalBatchesAreThoseOfTheDataset) {
  EXPECT_EQ(of("sum batches", "data", {30}, 3), "4 batches, 30 examples, sum 435\n");
}
TEST_F(Sharding, ByFilesWithSharesOfVeryDifferentSizes) {
  EXPECT_THAT(of("sum batches", "file", {40, 1, 3}, 3), HasSubstr("44 examples, sum 946\n"));
}
TEST_F(Sharding, AutomaticSharesFilesWhereThereAreEnough) {
  EXPECT_THAT(of("sum batches", "auto", {10, 20}, 2), HasSubstr("30 examples, sum 435\n"));
  EXPECT_EQ(of("sum batches", "auto", {30}, 2), "4 batches, 30 examples, sum 435\n");
}
TEST_F(Sharding, OffShowsEverythingToEach) {
  EXPECT_THAT(of("sum batches", "off", {30}, 2), HasSubstr("60 examples, sum 870\n"));
}
TEST_F(Sharding, OneFileCannotBeSharedByTwo) {
  EXPECT_THAT(of("sum batches", "file", {30}, 2), HasSubstr("the files cannot be shared among 2 workers"));
}
TEST_F(Sharding, FitSeesEveryExampleOnce) {
  EXPECT_EQ(of("fit files", "auto", {20, 1, 9}, 3), "loss 14.5\nloss 14.5\n");
}

}  // namespace
}  // namespace lockstep::testing
