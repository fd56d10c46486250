// lockstep train as several processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/saved_environment_test.h"
#include "cli/tool_test.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

class TrainWorkers : public ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    if (!fs::exists(fs::path(LOCKSTEP_TOOL).parent_path() / "liblockstep_gloo.so"))
      GTEST_SKIP() << "the plugin for Gloo is not built";
    write("run.json", R"({"model": {"zoo": "mlp", "hidden": [16], "dropout": 0.2},
        "data": {"name": "digits", "train_size": 512, "test_size": 64},
        "fit": {"epochs": 6, "batch_size": 32, "verbose": 2}, "output": "out"})");
  }
  const testing::SavedEnvironment environment_{
      {"TF_CONFIG", "RANK", "WORLD_SIZE", "SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_COMM_WORLD_SIZE",
       "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "LOCKSTEP_WORKERS", "LOCKSTEP_RANK"}};
};

TEST_F(TrainWorkers, WorkersTrainOneModelAndTheChiefSpeaks) {
  const Answer answer =
      shell("lockstep train run.json --workers 2 --step-log steps.csv --tensorboard events");
  ASSERT_EQ(answer.status, 0) << answer.output << answer.errors;
  EXPECT_THAT(answer.output, AllOf(HasSubstr("2 workers, each with 1 device"), Not(HasSubstr("[0]")),
                                   Not(HasSubstr("[1]"))));
  EXPECT_EQ(count(answer.output, "test - "), 1);
  EXPECT_TRUE(fs::exists(folder_ / "out/weights.safetensors"));
  EXPECT_EQ(Json::parse(text("out/history.json")).at("loss").items().size(), 6u);
  EXPECT_EQ(count(text("steps.csv"), "\n"), 1 + 6 * 512 / 32) << "one writer";

  const Answer json = shell("lockstep train run.json --workers=2 --json");
  ASSERT_EQ(json.status, 0) << json.errors;
  EXPECT_EQ(Json::parse(json.output).at("workers").as_int(), 2) << "nothing but the result";
}

TEST_F(TrainWorkers, ReproducibleRunsHaveTheBitsOfOneProcess) {
  ASSERT_EQ(shell("lockstep train run.json --reproducible --output one").status, 0);
  const Answer two = shell("lockstep train run.json --reproducible --output two --workers 2");
  ASSERT_EQ(two.status, 0) << two.errors;
  EXPECT_EQ(text("two/weights.safetensors"), text("one/weights.safetensors"));
}

TEST_F(TrainWorkers, AMistakeIsToldOnce) {
  write("bad.json", R"({"model": "mlp", "data": "digits", "fit": {"epoch": 3}})");
  expect_one_line("lockstep train bad.json --workers 3", "epoch");
  expect_one_line("lockstep train nowhere.json --workers 3", "nowhere.json");
  expect_one_line("lockstep train run.json --workers 0", "0 is not a whole number", 2);
  expect_one_line("lockstep train run.json --elastic 2", "--elastic is for several workers");
  expect_one_line("lockstep train run.json --workers 2 --elastic 3", "more than the 2 workers");
  expect_one_line("lockstep train run.json --workers 2 --elastic 1 --step-log s.csv", "exclude each other");
}

// The chief is killed in the midst of an elastic run: the next one goes on, and writes what the first would
// have.
TEST_F(TrainWorkers, AnElasticRunOutlivesItsChief) {
  ASSERT_EQ(shell("lockstep train run.json --reproducible --epochs 40 --output one").status, 0);
  const Answer answer = shell(
      "lockstep train run.json --reproducible --epochs 40 --output two --json two.json --workers 3 --elastic "
      "1 > log "
      "& job=$!\n"
      "until grep -q 'Epoch 3/' log; do sleep 0.02; done\n"
      "agent=$(cat /proc/$job/task/$job/children); workers=$(cat /proc/${agent% }/task/${agent% }/children)\n"
      "kill -9 ${workers%% *}\n"
      "wait $job");
  ASSERT_EQ(answer.status, 0) << answer.errors << text("log");
  EXPECT_THAT(answer.errors, HasSubstr("worker 0"));
  EXPECT_EQ(text("two/weights.safetensors"), text("one/weights.safetensors"));
  EXPECT_EQ(text("two/history.json"), text("one/history.json"));
  EXPECT_GT(Json::parse(text("two.json")).at("accuracy").as_double(), 0.0);
}

// A worker is killed in the midst of a run, and the job goes on from its backup.
TEST_F(TrainWorkers, AKilledWorkersJobGoesOnFromItsBackup) {
  ASSERT_EQ(shell("lockstep train run.json --reproducible --epochs 60 --output one").status, 0);
  const Answer answer = shell(
      "lockstep launch -n 2 --restarts 2 --backoff 0.1 --log-dir logs -- lockstep train run.json "
      "--reproducible --epochs 60 "
      "--output two --backup backup > /dev/null & job=$!\n"
      "until grep -q 'Epoch 3/' logs/rank_0.log 2> /dev/null; do sleep 0.02; done\n"
      "agent=$(cat /proc/$job/task/$job/children); workers=$(cat /proc/${agent% }/task/${agent% }/children)\n"
      "set -- $workers; kill -9 $2; wait $job");
  ASSERT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(answer.errors, AllOf(HasSubstr("restart 1 of 2"), HasSubstr("signal 9 (SIGKILL)")));
  EXPECT_EQ(text("two/weights.safetensors"), text("one/weights.safetensors"));
  EXPECT_EQ(text("two/history.json"), text("one/history.json"));
  EXPECT_THAT(text("logs/rank_0.restart_1.log"), Not(HasSubstr("Epoch 1/")));
}

TEST_F(TrainWorkers, PreemptedTheySaveAndSaySo) {
  const Answer answer = shell(
      "lockstep train run.json --workers 2 --epochs 100000 > log & job=$!\n"
      "until grep -q 'Epoch 3/' log; do sleep 0.02; done; kill -TERM $job; wait $job");
  EXPECT_EQ(answer.status, 128 + SIGTERM) << answer.errors;
  EXPECT_TRUE(fs::exists(folder_ / "out/weights.safetensors"));
  EXPECT_GE(Json::parse(text("out/history.json")).at("loss").items().size(), 2u);
}

}  // namespace
}  // namespace lockstep::cli
