// The tool itself, as a script would call it, with stand-ins for NVIDIA's libraries where the loader finds
// them first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "device/fake_nvidia_test.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;

struct Answer {
  std::string output;
  int status = -1;
};

Answer called(const nvidia::FakeMachine& fake, const std::string& variables, const std::string& arguments) {
  fake.search();  // writes the script
  const std::string command =
      "LD_LIBRARY_PATH=" + fake.libraries() + " " + variables + " " LOCKSTEP_TOOL " " + arguments;
  Answer answer;
  std::FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) answer.output.append(buffer, count);
  answer.status = WEXITSTATUS(pclose(pipe));
  return answer;
}

std::vector<std::string> checks(const Json& report) {
  std::vector<std::string> names;
  for (const Json& finding : report.at("findings").items()) names.push_back(finding.at("check").as_string());
  return names;
}

TEST(Doctor, FindsGpusThroughTheLoaderAndSaysWhyTheyAreNotUsed) {
  nvidia::FakeMachine fake;
  fake.with_gpus(2).script["visible"] = {{"1", {1}}};
  const Answer answer = called(fake, "CUDA_VISIBLE_DEVICES=1", "doctor --quick --json");
  const Json report = Json::parse(answer.output);
  const Json& gpus = report.at("nvidia").at("gpus");
  ASSERT_EQ(gpus.items().size(), 2u);
  EXPECT_TRUE(gpus.at(0).at("visible_number").is_null());
  EXPECT_EQ(gpus.at(1).at("visible_number"), Json(0));
  EXPECT_EQ(report.at("nvidia").at("cuda").at("path"), Json(fake.libraries() + "/libcuda.so.1"));
  EXPECT_THAT(checks(report), Contains("visible_devices_hide"));
  EXPECT_EQ(answer.status, report.at("healthy").as_bool() ? 0 : 1);
}

TEST(Doctor, ProblemsAreStatusOne) {
  nvidia::FakeMachine fake;
  fake.with_gpus(1).script["returns"] = {{"cuInit", 999}};
  const Answer answer = called(fake, "", "doctor --quick");
  EXPECT_EQ(answer.status, 1) << answer.output;
  EXPECT_THAT(answer.output, HasSubstr("CUDA_ERROR_UNKNOWN (999)"));
}

TEST(Doctor, AWrongCallIsStatusTwo) {
  const nvidia::FakeMachine fake;
  EXPECT_EQ(called(fake, "", "doctor --quik").status, 2);
  EXPECT_EQ(called(fake, "", "doctor --help").status, 0);
}

}  // namespace
}  // namespace lockstep::cli
