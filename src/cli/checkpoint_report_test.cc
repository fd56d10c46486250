#include "cli/checkpoint_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "cli/commands.h"
#include "lockstep/train/checkpoint.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointReport : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_checkpoint_report_" + std::to_string(getpid());
    fs::remove_all(folder_);
    checkpoint_.save(folder_ + "/ckpt", {.asynchronous = false});
    weight_.assign(Tensor::from<float>({1, 2.5, NAN, -3}, {2, 2}));
    checkpoint_.save(folder_ + "/ckpt", {.asynchronous = false});
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The exit status of `lockstep checkpoint ...`; `said` is what it printed.
  int run(std::vector<std::string> arguments, std::string* said = nullptr) const {
    CLI::App app;
    int status = 0;
    add_checkpoint(app, status);
    arguments.insert(arguments.begin(), "checkpoint");
    std::reverse(arguments.begin(), arguments.end());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    try {
      app.parse(arguments);
    } catch (const std::exception&) {
      status = -1;
    }
    const std::string out = testing::internal::GetCapturedStdout();
    testing::internal::GetCapturedStderr();
    if (said) *said = out;
    return status;
  }

  Variable weight_{Tensor::from<float>({1, 2, 3, 4}, {2, 2}), {.name = "dense/kernel"}};
  int64_t step_ = 5;
  train::Checkpoint checkpoint_{{{"weight", weight_}, {"step", step_}}};
  std::string folder_;
};

TEST_F(CheckpointReport, InspectListsTensors) {
  std::string said;
  EXPECT_EQ(run({"inspect", folder_}, &said), 0);
  EXPECT_THAT(said,
              AllOf(HasSubstr("ckpt-2.safetensors"), HasSubstr("save 2"), HasSubstr("2 tensors, 24 bytes"),
                    HasSubstr("weight (Variable), step (int64)"), HasSubstr("float32"), HasSubstr("[2,2]"),
                    HasSubstr("dense/kernel"), Not(HasSubstr("mean"))));
  EXPECT_EQ(run({"inspect", "--stats", folder_ + "/ckpt-2"}, &said), 0);
  EXPECT_THAT(said, AllOf(HasSubstr("mean"), HasSubstr("-3"), HasSubstr("2.5"), HasSubstr("0.166667")));
  EXPECT_EQ(run({"inspect", "--stats", "--json", folder_ + "/ckpt-2.safetensors"}, &said), 0);
  const Json json = Json::parse(said);
  EXPECT_EQ(json.at("tensors").at(0).at("nan").as_int(), 1);
  EXPECT_EQ(json.at("tensors").at(0).at("min").as_double(), -3);
  EXPECT_EQ(json.at("tensors").at(1).at("mean").as_double(), 5);
  EXPECT_EQ(run({"inspect", folder_ + "/none"}), -1);
}

TEST_F(CheckpointReport, DiffSaysWhatDiffers) {
  const std::string one = folder_ + "/ckpt-1", two = folder_ + "/ckpt-2";
  std::string said;
  EXPECT_EQ(run({"diff", one, one}, &said), 0);
  EXPECT_EQ(said, "the same\n");
  EXPECT_EQ(run({"diff", two, two}, &said), 0) << "a NaN is no difference to a NaN";
  EXPECT_EQ(run({"diff", one, two}, &said), 1);
  EXPECT_THAT(said,
              AllOf(HasSubstr("weight"), HasSubstr("up to NaN in 3 of 4 elements"), Not(HasSubstr("step"))));
  weight_.assign(Tensor::from<float>({1, 2, 3, 4.25}, {2, 2}));
  checkpoint_.save(folder_ + "/ckpt", {.asynchronous = false});
  EXPECT_EQ(run({"diff", "--json", one, folder_}, &said), 1);
  const Json json = Json::parse(said);
  EXPECT_EQ(json.at("differing").at(0).at("max_difference").as_double(), 0.25);
  EXPECT_EQ(json.at("differing").at(0).at("differing_elements").as_int(), 1);
  EXPECT_EQ(run({"diff", "--tolerance", "0.5", one, folder_}), 0);

  const Variable other(Tensor::from<float>({1}, {1}));
  const train::Checkpoint another({{"weight", other}, {"extra", other}});
  another.save(folder_ + "/other", {.asynchronous = false});
  EXPECT_EQ(run({"diff", one, folder_ + "/other-1"}, &said), 1);
  EXPECT_THAT(said, AllOf(HasSubstr("only in"), HasSubstr("step"), HasSubstr("extra"),
                          HasSubstr("float32(2, 2) and float32(1,)")));
  EXPECT_EQ(run({"diff", one, folder_ + "/none"}), 2);

  // Numbers that float64 cannot tell apart.
  step_ = (int64_t{1} << 60) + 1;
  const std::string large = checkpoint_.save(folder_ + "/ckpt", {.asynchronous = false});
  ++step_;
  EXPECT_EQ(run({"diff", large, checkpoint_.save(folder_ + "/ckpt", {.asynchronous = false})}, &said), 1);
  EXPECT_THAT(said, HasSubstr("step  up to 1 in 1 of 1 elements"));
}

TEST_F(CheckpointReport, VerifyFindsDamage) {
  std::string said;
  EXPECT_EQ(run({"verify", folder_ + "/ckpt-1", folder_ + "/ckpt-2"}, &said), 0);
  EXPECT_THAT(said, HasSubstr("ckpt-2.safetensors: good"));
  std::fstream file(folder_ + "/ckpt-2.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\7');
  file.close();
  EXPECT_EQ(run({"verify", folder_ + "/ckpt-1", folder_ + "/ckpt-2"}, &said), 1);
  EXPECT_THAT(said, AllOf(HasSubstr("ckpt-1.safetensors: good"), HasSubstr("ckpt-2.safetensors: damaged"),
                          HasSubstr("tensor \"weight\"")));
  EXPECT_EQ(run({"verify", "--json", folder_}, &said), 1);
  EXPECT_FALSE(Json::parse(said).at("good").as_bool());
  EXPECT_EQ(run({"verify", folder_ + "/none"}, &said), 1);
}

}  // namespace
}  // namespace lockstep::cli
