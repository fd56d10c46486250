#include "doctor/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "doctor/checks_test.h"
#include "doctor/report.h"

namespace lockstep::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Checks, AMachineOnWhichAllIsWellHasNoFindings) {
  FakeMachine fake;
  EXPECT_THAT(names(diagnose(around(fake.with_gpus(1).with_libraries()))), IsEmpty());
  FakeMachine eight;
  eight.with_gpus(8).with_libraries().script["nvlink"] = true;
  EXPECT_THAT(names(diagnose(around(eight))), IsEmpty());
}

TEST(Checks, AMachineWithoutGpusIsHealthy) {
  const FakeMachine fake;
  const Surroundings seen = around(fake);
  EXPECT_THAT(names(diagnose(seen)), ElementsAre("no_gpu"));
  EXPECT_TRUE(report_on(seen).healthy());
  FakeMachine with_driver;
  EXPECT_EQ(only(around(with_driver.with_driver()), "no_gpu").severity, Severity::note);
}

TEST(Checks, Runs) {
  Trial trial{
      .device = "/CPU:0", .work = "a matmul", .correct = true, .rate = 90, .ceiling = 100, .unit = "GFLOP/s"};
  EXPECT_THAT(diagnose(std::vector{trial}), IsEmpty());
  trial.rate = 10;
  EXPECT_THAT(names(diagnose(std::vector{trial})), ElementsAre("slow_device"));
  trial.disturbed = true;
  EXPECT_THAT(diagnose(std::vector{trial}), IsEmpty()) << "what a busy machine reaches says little";
  trial.correct = false;
  trial.fault = "element 3 is wrong";
  EXPECT_THAT(names(diagnose(std::vector{trial})), ElementsAre("wrong_result"));
  EXPECT_THAT(diagnose(std::vector{trial})[0].evidence[0], HasSubstr("element 3 is wrong"));
  trial.rate = 0;
  EXPECT_THAT(names(diagnose(std::vector{trial})), ElementsAre("trial_failed"));
}

TEST(Checks, AreAllInTheDocumentationAndNoOthers) {
  std::ostringstream text;
  text << std::ifstream(LOCKSTEP_SOURCE_DIR "/docs/doctor.md").rdbuf();
  std::ostringstream source;
  for (const char* tests : {"checks", "driver_checks", "gpu_checks", "software_checks", "host_checks"})
    source << std::ifstream(LOCKSTEP_SOURCE_DIR "/src/doctor/" + std::string(tests) + "_test.cc").rdbuf();
  for (const CheckInfo& check : all_checks()) {
    EXPECT_THAT(text.str(), HasSubstr("| `" + std::string(check.name) + "` |"));
    EXPECT_THAT(source.str(), HasSubstr("\"" + std::string(check.name) + "\"")) << "a check without a test";
  }
}

}  // namespace
}  // namespace lockstep::doctor
