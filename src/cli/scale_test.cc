// lockstep scale and lockstep plan, called as people call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/tool_test.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRun =
    R"({"model": {"zoo": "mlp", "hidden": [8]}, "data": {"name": "digits", "train_size": 256, "test_size": 64},
        "fit": {"epochs": 2, "batch_size": 16, "verbose": 2}, "output": "out", "backup": "kept"})";

class ScaleTest : public ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    write("run.json", kRun);
  }
  // The error of a validation is kept in the test's own folder.
  Answer tool(const std::string& words) const { return shell("XDG_CACHE_HOME=cache lockstep " + words); }
};

TEST_F(ScaleTest, MeasuresEveryCount) {
  const Answer answer = tool("scale run.json --devices 1,2 --steps 6 --output scale.json");
  ASSERT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(answer.output, HasSubstr("strong scaling"));
  EXPECT_THAT(answer.output, HasSubstr("weak scaling"));
  EXPECT_THAT(answer.errors, HasSubstr("[1/3] 1 device")) << "one device is the same in both tables";
  const Json json = Json::parse(text("scale.json"));
  ASSERT_EQ(json.at("tables").items().size(), 2u);
  for (const Json& table : json.at("tables").items()) {
    const bool weak = table.at("scaling").as_string() == "weak";
    for (const Json& row : table.at("rows").items()) {
      const int64_t replicas = row.at("replicas").as_int();
      EXPECT_EQ(row.at("batch_size").as_int(), weak ? 16 * replicas : 16);
      EXPECT_GT(row.at("examples_per_s").as_double(), 0);
      double shares = 0;
      for (const auto& [name, share] : row.at("breakdown").members()) shares += share.as_double();
      EXPECT_NEAR(shares, 1, 0.1);
    }
    const Json& first = table.at("rows").at(size_t{0});
    EXPECT_EQ(first.at("speedup").as_double(), 1);
    EXPECT_EQ(first.at("efficiency").as_double(), 1);
  }
  EXPECT_FALSE(fs::exists(folder_ / "out")) << "a measurement leaves nothing where the run would";
  EXPECT_FALSE(fs::exists(folder_ / "kept"));
}

TEST_F(ScaleTest, MeasuresWorkers) {
  const Answer answer = tool("scale run.json --devices 1 --workers 1,2 --weak --steps 5 --json");
  ASSERT_EQ(answer.status, 0) << answer.errors;
  const Json json = Json::parse(answer.output);
  const Json& rows = json.at("tables").at(size_t{0}).at("rows");
  EXPECT_EQ(rows.at(size_t{1}).at("workers").as_int(), 2);
  EXPECT_EQ(rows.at(size_t{1}).at("batch_size").as_int(), 32);
}

TEST_F(ScaleTest, SaysWhatIsWrong) {
  expect_one_line("lockstep scale", "run is required", 2);
  expect_one_line("lockstep scale run.json --devices 0", "0 is not a whole number from 1 to 256", 2);
  expect_one_line("lockstep scale nowhere.json --devices 1 2>&1 | grep -v '^\\[' >&2; false",
                  "there is no run file \"nowhere.json\"");
  expect_one_line("lockstep plan run.json --link ib40", "there is no link \"ib40\"; did you mean \"ib400\"?");
  expect_one_line("lockstep plan run.json --link x=1", "name=GBps:latency_us");
  expect_one_line("lockstep plan run.json --device h10", "did you mean \"h100\"?");
}

TEST_F(ScaleTest, TooFewStepsAreNoMeasurement) {
  const Answer answer = tool("scale run.json --devices 1 --steps 9 --batch-size 128");
  EXPECT_EQ(answer.status, 1);
  EXPECT_THAT(answer.errors, HasSubstr("only 2 steps of 128 examples were made"));
}

TEST_F(ScaleTest, CtrlCLeavesNothingBehind) {
  const Answer answer = shell(
      "TMPDIR=$PWD lockstep scale run.json --devices 1 --steps 1000000 & p=$!; "
      "while ! ls -d lockstep_runs_* > /dev/null 2>&1; do sleep 0.1; done; kill -INT $p; wait $p; echo $?; "
      "ls -d lockstep_runs_* 2> /dev/null | wc -l");
  EXPECT_THAT(answer.output, HasSubstr("130\n0\n")) << answer.errors;
}

TEST_F(ScaleTest, ForecastsAreComputed) {
  const Answer answer = tool("plan run.json --gpus 1,8,64 --link nvlink,ib400 --output plan.json");
  ASSERT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(answer.output, HasSubstr("products at 70%")) << "what is assumed is said";
  EXPECT_THAT(answer.output,
              HasSubstr("Assumed, not measured: the parts of its ceilings that h100 reaches; of "
                        "nvlink4 that 80% of the nominal 450 GB/s are reached, and the latency"));
  EXPECT_THAT(answer.output, HasSubstr("Error: not known")) << "nothing was compared here";
  const Json json = Json::parse(text("plan.json"));
  EXPECT_EQ(json.at("device"), Json("h100"));
  EXPECT_EQ(json.at("between").at("name"), Json("ib400"));
  EXPECT_THAT(json.at("between").at("assumed").as_string(), HasSubstr("80% of the nominal 50 GB/s"));
  ASSERT_EQ(json.at("rows").items().size(), 3u);
  double last = 1.0001;
  for (const Json& row : json.at("rows").items()) {
    EXPECT_LE(row.at("efficiency").as_double(), last);
    last = row.at("efficiency").as_double();
    EXPECT_GT(row.at("memory_bytes").as_double(), 0);
  }
  EXPECT_GT(json.at("rows").at(size_t{2}).at("communication_between_s").as_double(), 0);
}

// As `lockstep train` takes it: the folder may be what an earlier training of that network has left.
TEST_F(ScaleTest, ANetworkIsOneWhateverFoldersThereAre) {
  fs::create_directory(folder_ / "linear");
  const Answer answer = tool("plan linear --gpus 1 --batch-size 8 --json");
  ASSERT_EQ(answer.status, 0) << answer.errors;
  EXPECT_EQ(Json::parse(answer.output).at("rows").items().size(), 1u);
}

TEST_F(ScaleTest, LongTheErrorOfForecastsIsKept) {
  const Answer validation = tool("plan --validate run.json --steps 6 --output v.json");
  ASSERT_EQ(validation.status, 0) << validation.errors;
  const Json kept = Json::parse(text("v.json"));
  EXPECT_EQ(kept.at("rows").items().size(), 7u);
  EXPECT_GE(kept.at("waited_for_cores").as_double(), 0);
  EXPECT_THAT(validation.output, HasSubstr("waited for cores\n"));
  const Answer forecast = tool("plan run.json --device this --gpus 1,2,4 --steps 6");
  ASSERT_EQ(forecast.status, 0) << forecast.errors;
  EXPECT_THAT(forecast.output, HasSubstr("forecasts for mlp were off by"));
  EXPECT_THAT(forecast.output, HasSubstr("measured on one device of this machine"));
}

}  // namespace
}  // namespace lockstep::cli
