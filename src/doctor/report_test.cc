#include "doctor/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/fake_nvidia_test.h"
#include "doctor/schema_test.h"
#include "lockstep/base/error.h"

namespace lockstep::doctor {
namespace {

using testing::HasSubstr;
using testing::Not;

Surroundings rich(const nvidia::FakeMachine& fake) {
  Surroundings seen = look_around(fake.search());
  seen.build = nvidia::Build{.cuda = 13000, .architectures = {90}};
  return seen;
}

TEST(Report, ItsJsonFitsTheDocumentedSchema) {
  const Schema schema(LOCKSTEP_SOURCE_DIR "/docs/doctor.schema.json");
  nvidia::FakeMachine bare;
  Report report = report_on(look_around(bare.search()));
  EXPECT_EQ(schema.mismatch(Json::parse(report.to_json())), "");

  nvidia::FakeMachine fake;
  fake.with_gpus(2).with_libraries().without("libnccl.so.2");
  auto& gpu = fake.script["gpus"][0];
  gpu["processes"] = {{{"pid", 7}, {"name", "x"}, {"bytes", int64_t{9} << 30}}};
  gpu["links"] = {{{"active", 1}, {"peer", "switch"}}};
  gpu["values"]["nvmlDeviceGetPowerUsage"] = 100500;
  report = report_on(rich(fake));
  report.trials.push_back({.device = "/CPU:0", .work = "x", .correct = true, .rate = 1.5, .ceiling = 2});
  const Json json = Json::parse(report.to_json());
  EXPECT_EQ(schema.mismatch(json), "");
  EXPECT_EQ(json.at("healthy"), Json(report.healthy()));
  EXPECT_EQ(json.at("nvidia").at("gpus").at(1).at("uuid"), Json(nvidia::test_uuid(1)));

  Json other = json;
  other["nvidia"].set("gpus", 3);
  EXPECT_THAT(schema.mismatch(other), HasSubstr("$.nvidia.gpus")) << "the schema is looked at";
}

TEST(Report, ItsTextShowsWhatThereIs) {
  nvidia::FakeMachine fake;
  fake.with_gpus(2).with_libraries().script["nvlink"] = true;
  fake.script["gpus"][0]["processes"] = {{{"pid", 7}, {"name", "python"}, {"bytes", int64_t{9} << 30}}};
  const std::string text = report_on(rich(fake)).to_text();
  for (const char* part :
       {"Machine", "GPUs", "  580.65.06, /", "for CUDA up to 13.0", "NVIDIA H200, 141.0 GiB, 0.6 GiB in use",
        "compute capability 9.0", "visible as number 1", "pid 7 python holds 9.0 GiB", "Libraries", "cuDNN",
        "9.14.0", "Links", "GPU 0 - GPU 1", "NVLink, between NUMA nodes, read each other's memory", "Plugins",
        "Backend cpu", "Devices", "/physical_device:CPU:0"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Report, FindingsHaveCauseEvidenceAndFix) {
  Report report;
  report.findings.push_back(
      {"tf_config", Severity::problem, "It is wrong.", {"line 1", "line 2"}, "unset TF_CONFIG"});
  report.findings.push_back({"no_gpu", Severity::note, "There is none.", {}, ""});
  EXPECT_FALSE(report.healthy());
  EXPECT_EQ(report.to_text(),
            "\nproblem: It is wrong.  [tf_config]\n  line 1\n  line 2\n  fix: unset TF_CONFIG\n"
            "\nnote: There is none.  [no_gpu]\n\n1 problem, 0 warnings\n");
  report.findings.erase(report.findings.begin());
  EXPECT_TRUE(report.healthy());
  EXPECT_THAT(report.to_text(), HasSubstr("No problems found."));
}

TEST(Report, RunsAreShownAgainstTheirCeiling) {
  Report report;
  report.trials.push_back({.device = "/CPU:0",
                           .work = "a matmul",
                           .correct = true,
                           .rate = 80,
                           .ceiling = 100,
                           .unit = "GFLOP/s",
                           .ceiling_is = "measured now"});
  report.trials.push_back(
      {.device = "/CPU:1", .work = "a matmul", .correct = false, .fault = "element 3 is wrong"});
  EXPECT_THAT(report.to_text(), HasSubstr("a matmul: right, 80 GFLOP/s, 80% of 100 (measured now)"));
  EXPECT_THAT(report.to_text(), HasSubstr("a matmul: element 3 is wrong"));
  report.trials[0].disturbed = true;
  EXPECT_THAT(report.to_text(), HasSubstr("a matmul: right, 80 GFLOP/s while other processes had the cores"));
}

TEST(Report, OnlyVariablesThatMatterAreShown) {
  const nvidia::FakeMachine fake;
  Surroundings seen = look_around(fake.search());
  seen.environment = {{"NCCL_DEBUG", "INFO"},
                      {"SECRET_TOKEN", "abc"},
                      {"LOCKSTEP_SECRET", "known to us"},
                      {"OMP_NUM_THREADS", "2"}};
  const Report report = report_on(seen);
  for (const std::string& text : {report.to_text(), report.to_json()}) {
    EXPECT_THAT(text, HasSubstr("NCCL_DEBUG"));
    EXPECT_THAT(text, HasSubstr("OMP_NUM_THREADS"));
    EXPECT_THAT(text, Not(HasSubstr("SECRET_TOKEN")));
    EXPECT_THAT(text, AllOf(HasSubstr("LOCKSTEP_SECRET"), Not(HasSubstr("known to us"))));
  }
}

TEST(Report, AQuickExaminationOfThisMachineHasNoRuns) {
  const Report report = examine({.quick = true});
  EXPECT_TRUE(report.trials.empty());
  EXPECT_EQ(Schema(LOCKSTEP_SOURCE_DIR "/docs/doctor.schema.json").mismatch(Json::parse(report.to_json())),
            "");
}

TEST(Surroundings, FilesOfTheHostAreRead) {
  nvidia::FakeMachine fake;
  fake.file("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n")
      .file("/proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n")
      .file("/etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 12\"\n")
      .file("/sys/fs/cgroup/cpu.max", "150000 100000\n")
      .file("/sys/fs/cgroup/memory.max", "1048576\n");
  const Host host = look_at_host(fake.search().root);
  EXPECT_EQ(host.cpu, "Fast CPU @ 3 GHz");
  EXPECT_EQ(host.memory, 2048 * 1024);
  EXPECT_EQ(host.memory_available, 1024 * 1024);
  EXPECT_THAT(host.system, HasSubstr("Some Linux 12, Linux "));
  EXPECT_EQ(host.core_quota, 1.5);
  EXPECT_EQ(host.memory_limit, 1048576);
  fake.file("/sys/fs/cgroup/cpu.max", "max 100000\n").file("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(look_at_host(fake.search().root).core_quota, std::nullopt);
  EXPECT_EQ(look_at_host(fake.search().root).memory_limit, std::nullopt);
}

}  // namespace
}  // namespace lockstep::doctor
