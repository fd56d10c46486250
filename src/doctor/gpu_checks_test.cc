#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/checks_test.h"

namespace lockstep::doctor {
namespace {

using nvidia::test_uuid;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(GpuChecks, AGpuThatIsLost) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().script["returns"] = {{"nvmlDeviceGetMemoryInfo", 15}};
  EXPECT_THAT(only(around(fake), "gpu_failing").evidence, Contains(HasSubstr("GPU is lost (15)")));
}

class Visible : public testing::Test {
 protected:
  Visible() {
    fake_.with_gpus(3).with_libraries().script["nvlink"] = true;
    const auto none = nlohmann::json::array();
    fake_.script["visible"] = {{"", none}, {"-1", none}, {"1", {1}}, {"0,7", {0}}, {"0,0", none}};
  }
  Finding with(const char* value, std::string_view check) {
    setenv("CUDA_VISIBLE_DEVICES", value, 1);
    return only(around(fake_), check);
  }
  FakeMachine fake_;
};

TEST_F(Visible, EmptyAndNegativeHideAll) {
  EXPECT_EQ(with("", "visible_devices_empty").severity, Severity::warning);
  const Finding negative = with("-1", "visible_devices_negative");
  EXPECT_EQ(negative.severity, Severity::warning);
  EXPECT_THAT(negative.evidence, Contains("GPU 0 (NVIDIA H200), " + test_uuid(0) + ": hidden"));
  EXPECT_THAT(negative.fix, HasSubstr("unset CUDA_VISIBLE_DEVICES"));
}

TEST_F(Visible, AChoiceIsWorthANote) {
  const Finding finding = with("1", "visible_devices_hide");
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_EQ(finding.cause, "CUDA_VISIBLE_DEVICES hides 2 of 3 GPUs.");
  EXPECT_THAT(finding.evidence, Contains("GPU 1 (NVIDIA H200), " + test_uuid(1) + ": visible as number 0"));
}

TEST_F(Visible, WhatIsNotUnderstoodIsAProblem) {
  const Finding cut = with("0,7", "visible_devices_malformed");
  EXPECT_EQ(cut.severity, Severity::problem);
  EXPECT_THAT(cut.evidence, Contains("entry 2, \"7\": there are 3 GPUs, 0 to 2"));
  EXPECT_THAT(with("0,0", "visible_devices_malformed").evidence, Contains(HasSubstr("for the second time")));
}

TEST(GpuChecks, AChipThatTheBuildHasNoCodeFor) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().script["gpus"][0]["capability"] = 100;
  Finding finding = only(around(fake), "chip_unsupported");
  EXPECT_THAT(finding.evidence, Contains("its compute capability is 10.0"));
  EXPECT_THAT(finding.evidence, Contains("this build has code for 80, 90"));
  EXPECT_THAT(finding.fix, HasSubstr("CMAKE_CUDA_ARCHITECTURES=100"));
  fake.script["gpus"][0]["capability"] = 61;
  Surroundings seen = around(fake);
  seen.build.reset();
  EXPECT_THAT(only(seen, "chip_unsupported").fix, HasSubstr("another GPU"));
}

TEST(GpuChecks, MemoryThatOthersHold) {
  FakeMachine fake;
  fake.with_gpus(2).with_libraries().script["nvlink"] = true;
  auto& gpu = fake.script["gpus"][0];
  gpu["used"] = int64_t{40} << 30;
  gpu["processes"] = {{{"pid", 4242}, {"name", "python"}, {"bytes", int64_t{39} << 30}}};
  const Finding finding = only(around(fake), "gpu_memory_held");
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_THAT(finding.evidence, ElementsAre("GPU 0 (NVIDIA H200): pid 4242 (python) holds 39936 MiB",
                                            "GPU 0 (NVIDIA H200): 101.0 GiB of 141.0 GiB are free"));
  EXPECT_THAT(finding.fix, HasSubstr("CUDA_VISIBLE_DEVICES=" + test_uuid(1)));

  fake.script["gpus"].erase(1);
  EXPECT_THAT(only(around(fake), "gpu_memory_held").fix, HasSubstr("kill 4242"));
  Surroundings own = around(fake);
  own.own_pid = 4242;
  EXPECT_THAT(names(diagnose(own)), IsEmpty()) << "what this process holds is no finding";
  fake.script["gpus"][0]["processes"] = nlohmann::json::array();
  EXPECT_THAT(only(around(fake), "gpu_memory_held").evidence,
              Contains(HasSubstr("cannot be seen from here")));
}

TEST(GpuChecks, TheStateOfAGpu) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries();
  auto& gpu = fake.script["gpus"][0];
  gpu["mig"] = 1;
  gpu["values"] = {{"nvmlDeviceGetCurrPcieLinkWidth", 4},
                   {"nvmlDeviceGetMaxPcieLinkWidth", 16},
                   {"nvmlDeviceGetCurrentClocksThrottleReasons", 0x40},
                   {"nvmlDeviceGetComputeMode", 2},
                   {"nvmlDeviceGetPersistenceMode", 0},
                   {"uncorrected", 3}};
  const Surroundings seen = around(fake);
  EXPECT_THAT(only(seen, "pcie_width").evidence[0], HasSubstr("4 lanes of 16: copies to it take 4.0 times"));
  EXPECT_THAT(only(seen, "gpu_slowed").evidence[0], HasSubstr("heat (hardware)"));
  EXPECT_THAT(only(seen, "compute_mode").evidence[0], HasSubstr("prohibited"));
  EXPECT_EQ(only(seen, "persistence_off").severity, Severity::note);
  EXPECT_THAT(only(seen, "gpu_memory_errors").evidence[0], HasSubstr("3 uncorrected"));
  EXPECT_EQ(only(seen, "mig_without_parts").severity, Severity::problem);
}

TEST(GpuChecks, PcieWhereNvlinkExists) {
  FakeMachine fake;
  fake.with_gpus(2).with_libraries();
  fake.script["gpus"][0]["links"] = {{{"active", 1}, {"peer", "00000000:09:00.0"}},
                                     {{"active", 0}, {"peer", ""}}};
  const Finding finding = only(around(fake), "nvlink_unused");
  EXPECT_THAT(finding.evidence, Contains("GPU 0 (NVIDIA H200): 1 of its 2 NVLinks are not active"));
  EXPECT_THAT(finding.evidence,
              Contains("GPU 0 (NVIDIA H200) - GPU 1 (NVIDIA H200): PCIe (between NUMA nodes)"));
  EXPECT_THAT(finding.fix, HasSubstr("nvidia-smi topo -m"));
}

TEST(GpuChecks, GpusThatCannotReadEachOther) {
  FakeMachine fake;
  fake.with_gpus(2).with_libraries().script["no_peer_access"] = 3;
  EXPECT_THAT(only(around(fake), "no_peer_access").evidence,
              ElementsAre(HasSubstr("the topology of the machine does not support it")));
}

TEST(GpuChecks, SmallSharedMemoryMattersToSeveralGpus) {
  FakeMachine fake;
  Surroundings seen = around(fake.with_gpus(2).with_libraries().file("/.dockerenv"));
  seen.host.shared_memory = 64 << 20;
  EXPECT_THAT(only(seen, "shared_memory_small").fix, HasSubstr("--shm-size"));
}

}  // namespace
}  // namespace lockstep::doctor
