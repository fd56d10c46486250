#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/checks_test.h"

namespace lockstep::doctor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(DriverChecks, AGpuWithoutADriver) {
  FakeMachine fake;
  fake.on_bus("0000:01:00.0");
  const Finding finding = only(around(fake), "driver_missing");
  EXPECT_EQ(finding.severity, Severity::problem);
  EXPECT_THAT(finding.evidence, Contains(HasSubstr("on the PCI bus: 0000:01:00.0")));
  EXPECT_THAT(finding.evidence, Contains(AllOf(HasSubstr("libcuda.so.1"), HasSubstr("No such file"))));
  EXPECT_THAT(finding.evidence, Contains("searched: " + fake.libraries()));
  EXPECT_THAT(finding.fix, HasSubstr("apt install"));

  fake.file("/.dockerenv");
  EXPECT_THAT(only(around(fake), "driver_missing").fix, HasSubstr("--gpus all"));
  fake.place(fake.folder() + "/cuda/lib/libcuda.so.1");
  EXPECT_EQ(only(around(fake), "driver_missing").fix,
            "export LD_LIBRARY_PATH=" + fake.folder() + "/cuda/lib:$LD_LIBRARY_PATH");
}

TEST(DriverChecks, ADriverThatIsTooOld) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().script["cuda_version"] = 12020;
  fake.script["driver_version"] = "535.113.01";
  const Finding finding = only(around(fake), "driver_too_old");
  EXPECT_THAT(finding.evidence,
              ElementsAre("driver 535.113.01 supports CUDA up to 12.2; this build of Lockstep needs 13.0"));
  EXPECT_THAT(finding.fix, HasSubstr("580.65 or newer"));
  fake.script["cuda_version"] = 13020;
  EXPECT_THAT(names(diagnose(around(fake))), IsEmpty());
}

struct Broken {
  const char* call;
  int code;
  const char* evidence;
  const char* fix;
};
class BrokenDriver : public testing::TestWithParam<Broken> {};
INSTANTIATE_TEST_SUITE_P(Codes, BrokenDriver,
                         testing::Values(Broken{"cuInit", 999, "CUDA_ERROR_UNKNOWN", "nvidia_uvm"},
                                         Broken{"cuInit", 803, "803", "restart the machine"},
                                         Broken{"cuInit", 802, "802", "fabricmanager"},
                                         Broken{"cuInit", 804, "804", "compat"},
                                         Broken{"cuInit", 34, "34", "stub"},
                                         Broken{"cuDeviceGetCount", 46, "46", "nvidia-smi -c DEFAULT"},
                                         Broken{"cuInit", 1, "(1)", "nvidia-smi"}));

TEST_P(BrokenDriver, IsAProblemWithItsOwnFix) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().script["returns"] = {{GetParam().call, GetParam().code}};
  const Finding finding = only(around(fake), "driver_broken");
  EXPECT_EQ(finding.severity, Severity::problem);
  EXPECT_THAT(finding.evidence, Contains(AllOf(HasSubstr(GetParam().call), HasSubstr(GetParam().evidence))));
  EXPECT_THAT(finding.fix, HasSubstr(GetParam().fix));
}

TEST(DriverChecks, NvmlThatDoesNotStart) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().script["returns"] = {{"nvmlInit_v2", 18}, {"cuInit", 803}};
  EXPECT_THAT(only(around(fake), "driver_broken").cause, HasSubstr("different versions"));
  fake.script["returns"] = {{"nvmlInit_v2", 9}, {"cuInit", 999}};
  EXPECT_THAT(only(around(fake), "driver_broken").fix, HasSubstr("modprobe nvidia"));
  fake.script["returns"] = {{"nvmlInit_v2", 999}};
  EXPECT_EQ(only(around(fake), "driver_broken").severity, Severity::warning);
}

TEST(DriverChecks, ADriverThatHangsOrCrashes) {
  FakeMachine fake;
  fake.with_gpus(1).script["hangs"] = "cuInit";
  nvidia::Search search = fake.search();
  search.timeout_s = 0.5;
  const Finding finding = only(around(nvidia::discover(search)), "driver_broken");
  EXPECT_EQ(finding.cause, "NVIDIA's driver hangs.");
  EXPECT_EQ(finding.evidence[0], "asking it did not answer within 0.5 s in cuInit");
  fake.script.erase("hangs");
  fake.script["crashes"] = "cuDeviceGetCount";
  EXPECT_EQ(only(around(fake), "driver_broken").cause, "NVIDIA's driver crashes.");
}

TEST(DriverChecks, MissingNvml) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().without("libnvidia-ml.so.1");
  EXPECT_EQ(only(around(fake), "nvml_missing").severity, Severity::warning);
}

TEST(DriverChecks, AContainerWithoutDeviceNodes) {
  FakeMachine fake;
  fake.with_driver().with_libraries().file("/.dockerenv").on_bus("0000:01:00.0");
  const Finding finding = only(around(fake), "device_nodes_missing");
  EXPECT_EQ(finding.severity, Severity::problem);
  EXPECT_THAT(finding.evidence, Contains("this is a container: docker"));
  EXPECT_THAT(finding.evidence, Contains("there is no /dev/nvidia0"));
  EXPECT_THAT(finding.fix, HasSubstr("docker run --gpus all"));

  FakeMachine blind;
  blind.with_driver().file("/.dockerenv");
  EXPECT_EQ(only(around(blind), "device_nodes_missing").severity, Severity::warning);
}

}  // namespace
}  // namespace lockstep::doctor
