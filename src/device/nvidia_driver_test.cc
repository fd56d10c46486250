#include "device/nvidia_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#ifdef LOCKSTEP_FAKE_NVIDIA

#include "device/fake_nvidia_test.h"
#include "device/nvidia_json.h"

namespace lockstep::nvidia {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(NvidiaDriver, AMachineWithoutADriverSaysWhereItWasLookedFor) {
  const FakeMachine fake;
  const Machine machine = fake.discovered();
  EXPECT_EQ(machine.cuda.path, "");
  ASSERT_THAT(machine.cuda.failures, SizeIs(1));
  EXPECT_EQ(machine.cuda.failures[0].path, fake.libraries() + "/libcuda.so.1");
  EXPECT_THAT(machine.cuda.failures[0].reason, HasSubstr("No such file"));
  EXPECT_EQ(machine.nvml.path, "");
  EXPECT_THAT(machine.gpus, IsEmpty());
  EXPECT_FALSE(machine.visible.has_value());
  EXPECT_EQ(machine.mishap, "");
  EXPECT_THAT(machine.searched, ElementsAre(fake.libraries()));
  ASSERT_THAT(machine.libraries, SizeIs(5));
  for (const Library& library : machine.libraries) EXPECT_EQ(library.path, "") << library.title;
}

TEST(NvidiaDriver, TheLoadersSearchNamesItsFolders) {
  const Machine machine = discover({.timeout_s = 60});
  EXPECT_THAT(machine.searched, testing::Contains(testing::HasSubstr("/lib")));
}

class NvidiaGpus : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, NvidiaGpus, testing::Values(0, 1, 2, 8));

TEST_P(NvidiaGpus, AreAllFoundAndNumberedAsCudaDoes) {
  FakeMachine fake;
  const Machine machine = fake.with_gpus(GetParam()).discovered();
  ASSERT_THAT(machine.gpus, SizeIs(static_cast<size_t>(GetParam())));
  EXPECT_EQ(machine.driver_version, "580.65.06");
  EXPECT_EQ(machine.cuda_version, 13000);
  EXPECT_EQ(machine.cuda.path, fake.libraries() + "/libcuda.so.1");
  for (int i = 0; i < GetParam(); ++i) {
    const Gpu& gpu = machine.gpus[static_cast<size_t>(i)];
    EXPECT_EQ(gpu.name, "NVIDIA H200");
    EXPECT_EQ(gpu.uuid, test_uuid(i));
    EXPECT_EQ(gpu.pci, "00000000:0" + std::to_string(i + 1) + ":00.0");
    EXPECT_EQ(gpu.number, i);
    EXPECT_EQ(gpu.visible_number, i);
    EXPECT_EQ(gpu.capability, 90);
    EXPECT_EQ(gpu.memory, int64_t{141} << 30);
    EXPECT_EQ(gpu.memory_used, int64_t{600} << 20);
    EXPECT_EQ(gpu.multiprocessors, 132);
    EXPECT_EQ(gpu.clock_mhz, 1980);
    EXPECT_EQ(gpu.persistence, true);
    EXPECT_EQ(gpu.pcie_width, std::nullopt);
    EXPECT_THAT(gpu.peers, SizeIs(static_cast<size_t>(GetParam() - 1)));
    EXPECT_THAT(gpu.failures, IsEmpty());
  }
  EXPECT_THAT(machine.nodes, SizeIs(static_cast<size_t>(GetParam())));
  EXPECT_THAT(machine.on_bus, SizeIs(static_cast<size_t>(GetParam())));
  const std::string nothing = "cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected";
  EXPECT_EQ(machine.cuda.error, GetParam() == 0 ? nothing : "");
}

TEST(NvidiaDriver, EverythingNvmlTellsIsKept) {
  FakeMachine fake;
  fake.with_gpus(2);
  fake.script["nvlink"] = true;
  auto& gpu = fake.script["gpus"][0];
  gpu["processes"] = {{{"pid", 4242}, {"name", "python"}, {"bytes", 1 << 30}}, {{"pid", 7}, {"name", "x"}}};
  gpu["links"] = {{{"active", 1}, {"peer", "00000000:02:00.0"}},
                  {{"active", 1}, {"peer", "switch"}},
                  {{"active", 0}, {"peer", ""}}};
  gpu["mig"] = 1;
  gpu["mig_devices"] = {"MIG-a", "MIG-b"};
  gpu["values"] = {{"nvmlDeviceGetCurrPcieLinkGeneration", 4},
                   {"nvmlDeviceGetCurrPcieLinkWidth", 8},
                   {"nvmlDeviceGetMaxPcieLinkGeneration", 5},
                   {"nvmlDeviceGetMaxPcieLinkWidth", 16},
                   {"nvmlDeviceGetCurrentClocksThrottleReasons", 0x44},
                   {"nvmlDeviceGetComputeMode", 3},
                   {"nvmlDeviceGetPowerUsage", 650500},
                   {"nvmlDeviceGetTemperature", 81},
                   {"corrected", 12},
                   {"uncorrected", 1}};
  const Machine machine = fake.discovered();
  const Gpu& found = machine.gpus[0];
  ASSERT_THAT(found.processes, SizeIs(2));
  EXPECT_EQ(found.processes[0].pid, 4242);
  EXPECT_EQ(found.processes[0].name, "python");
  EXPECT_EQ(found.processes[0].bytes, 1 << 30);
  EXPECT_EQ(found.processes[1].bytes, std::nullopt);
  ASSERT_THAT(found.links, SizeIs(3));
  EXPECT_EQ(found.links[0].peer, "00000000:02:00.0");
  EXPECT_EQ(found.links[1].peer, "switch");
  EXPECT_FALSE(found.links[2].active);
  EXPECT_EQ(found.mig, true);
  EXPECT_THAT(found.mig_devices, ElementsAre("MIG-a", "MIG-b"));
  EXPECT_EQ(found.pcie_generation, 4);
  EXPECT_EQ(found.pcie_width, 8);
  EXPECT_EQ(found.pcie_max_width, 16);
  EXPECT_THAT(found.slowed_by, ElementsAre("power limit", "heat (hardware)"));
  EXPECT_EQ(found.compute_mode, "exclusive process");
  EXPECT_EQ(found.watts, 650.5);
  EXPECT_EQ(found.celsius, 81);
  EXPECT_EQ(found.ecc_corrected, 12);
  EXPECT_EQ(found.ecc_uncorrected, 1);
  ASSERT_THAT(found.peers, SizeIs(1));
  EXPECT_EQ(found.peers[0].uuid, test_uuid(1));
  EXPECT_TRUE(found.peers[0].access);
  EXPECT_TRUE(found.peers[0].nvlink);
  EXPECT_EQ(found.peers[0].distance, "between NUMA nodes");
}

TEST(NvidiaDriver, OtherProcessesOfAGpuInWords) {
  FakeMachine fake;
  fake.with_gpus(2);
  fake.script["gpus"][0]["processes"] = {{{"pid", 4242}, {"name", "/usr/bin/python"}, {"bytes", 1 << 30}},
                                         {{"pid", getpid()}, {"name", "self"}, {"bytes", 1 << 20}},
                                         {{"pid", 7}, {"name", ""}}};
  EXPECT_EQ(other_processes(test_uuid(0), fake.search()), "python (4242) with 1024 MiB, process (7)");
  EXPECT_EQ(other_processes(test_uuid(1), fake.search()), "");
  EXPECT_EQ(other_processes("GPU-unknown", fake.search()), "");
}

TEST(NvidiaDriver, MoreProcessesThanFitAtFirstAreAllListed) {
  FakeMachine fake;
  fake.with_gpus(1);
  for (int i = 1; i <= 100; ++i)
    fake.script["gpus"][0]["processes"].push_back({{"pid", i}, {"name", "x"}, {"bytes", i}});
  EXPECT_THAT(fake.discovered().gpus[0].processes, SizeIs(100));
}

TEST(NvidiaDriver, CudasOrderIsTakenWhereItIsNotNvmls) {
  FakeMachine fake;
  fake.with_gpus(2).script["cuda_order"] = {1, 0};
  const Machine machine = fake.discovered();
  EXPECT_EQ(machine.gpus[0].uuid, test_uuid(1));
  EXPECT_EQ(machine.gpus[0].number, 0);
  EXPECT_EQ(machine.gpus[0].memory_used, int64_t{600} << 20);
}

TEST(NvidiaDriver, HiddenGpusAreFoundAllTheSame) {
  FakeMachine fake;
  fake.with_gpus(3).script["visible"] = {{"2,0", {2, 0}}, {"-1", nlohmann::json::array()}};
  setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  Machine machine = fake.discovered();
  ASSERT_THAT(machine.gpus, SizeIs(3));
  EXPECT_EQ(machine.gpus[0].visible_number, 1);
  EXPECT_EQ(machine.gpus[1].visible_number, std::nullopt);
  EXPECT_EQ(machine.gpus[2].visible_number, 0);
  EXPECT_THAT(*machine.visible, ElementsAre(test_uuid(2), test_uuid(0)));
  EXPECT_STREQ(std::getenv("CUDA_VISIBLE_DEVICES"), "2,0");

  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  machine = fake.discovered();
  EXPECT_THAT(machine.gpus, SizeIs(3));
  ASSERT_TRUE(machine.visible.has_value());
  EXPECT_THAT(*machine.visible, IsEmpty());
}

TEST(NvidiaDriver, WithoutNvmlTheDriverTellsLess) {
  FakeMachine fake;
  const Machine machine = fake.with_gpus(2).without("libnvidia-ml.so.1").discovered();
  ASSERT_THAT(machine.gpus, SizeIs(2));
  EXPECT_EQ(machine.gpus[1].name, "NVIDIA H200");
  EXPECT_EQ(machine.gpus[1].uuid, test_uuid(1));
  EXPECT_EQ(machine.gpus[1].memory, int64_t{141} << 30);
  EXPECT_EQ(machine.gpus[1].memory_used, std::nullopt);
  ASSERT_THAT(machine.gpus[1].peers, SizeIs(1));
  EXPECT_TRUE(machine.gpus[1].peers[0].access);
  EXPECT_EQ(machine.nvml.path, "");
}

TEST(NvidiaDriver, WithoutCudaNvmlTellsOfTheGpus) {
  FakeMachine fake;
  const Machine machine = fake.with_gpus(1).without("libcuda.so.1").discovered();
  ASSERT_THAT(machine.gpus, SizeIs(1));
  EXPECT_EQ(machine.gpus[0].number, std::nullopt);
  EXPECT_EQ(machine.cuda.path, "");
  EXPECT_FALSE(machine.visible.has_value());
}

TEST(NvidiaDriver, ADriverThatDoesNotStartIsQuoted) {
  FakeMachine fake;
  fake.with_gpus(1).script["returns"] = {{"cuInit", 999}, {"nvmlInit_v2", 18}};
  const Machine machine = fake.discovered();
  EXPECT_EQ(machine.cuda.code, 999);
  EXPECT_EQ(machine.cuda.error, "cuInit: CUDA_ERROR_UNKNOWN (999): unknown error");
  EXPECT_EQ(machine.nvml.code, 18);
  EXPECT_EQ(machine.nvml.error, "nvmlInit_v2: Driver/library version mismatch (18)");
  EXPECT_EQ(machine.cuda_version, 13000);
  EXPECT_FALSE(machine.visible.has_value());
}

TEST(NvidiaDriver, ACallThatFailsIsKeptWithItsGpu) {
  FakeMachine fake;
  fake.with_gpus(1).script["returns"] = {{"nvmlDeviceGetMemoryInfo", 15}};
  const Machine machine = fake.discovered();
  EXPECT_THAT(machine.gpus[0].failures, ElementsAre("nvmlDeviceGetMemoryInfo: GPU is lost (15)"));
  fake.script["returns"] = {{"nvmlDeviceGetHandleByIndex_v2", 15}, {"cuInit", 999}};
  EXPECT_THAT(fake.discovered().gpus[0].failures,
              ElementsAre("nvmlDeviceGetHandleByIndex_v2(0): GPU is lost (15)"));
}

TEST(NvidiaDriver, ADriverThatHangsOrCrashesLeavesWhatWasKnown) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().script["hangs"] = "cuInit";
  Search search = fake.search();
  search.timeout_s = 0.5;
  Machine machine = discover(search);
  EXPECT_EQ(machine.mishap, "did not answer within 0.5 s in cuInit");
  EXPECT_THAT(machine.gpus, SizeIs(1));
  EXPECT_THAT(machine.libraries, SizeIs(5));

  fake.script.erase("hangs");
  fake.script["crashes"] = "nvmlInit_v2";
  machine = fake.discovered();
  EXPECT_THAT(machine.mishap, AllOf(HasSubstr("signal 11"), HasSubstr("in nvmlInit_v2")));
}

TEST(NvidiaDriver, LibrariesHavePathsAndVersions) {
  FakeMachine fake;
  const Machine machine = fake.with_libraries().discovered();
  std::vector<std::string> seen;
  for (const Library& library : machine.libraries) {
    EXPECT_EQ(library.path, fake.libraries() + "/" + library.file);
    seen.push_back(library.title + " " + library.version);
  }
  EXPECT_THAT(
      seen, ElementsAre("CUDA runtime 13.0", "cuBLASLt 13.0.0", "NVRTC 13.0", "cuDNN 9.14.0", "NCCL 2.28.3"));
}

TEST(NvidiaDriver, AMissingLibraryNamesCopiesElsewhere) {
  FakeMachine fake;
  fake.with_libraries().without("libcudnn.so.9");
  fake.place(fake.folder() + "/cuda-12/lib/libcudnn.so.8");
  const Machine machine = fake.discovered();
  const Library& cudnn = machine.libraries[3];
  EXPECT_EQ(cudnn.path, "");
  ASSERT_THAT(cudnn.failures, SizeIs(1));
  EXPECT_THAT(cudnn.failures[0].reason, HasSubstr("No such file"));
  EXPECT_THAT(cudnn.elsewhere, ElementsAre(fake.folder() + "/cuda-12/lib/libcudnn.so.8"));
}

TEST(NvidiaDriver, AFileThatIsNoLibraryKeepsTheLoadersWords) {
  FakeMachine fake;
  std::ofstream(fake.libraries() + "/libcuda.so.1") << "nothing";
  const Machine machine = fake.discovered();
  ASSERT_THAT(machine.cuda.failures, SizeIs(1));
  EXPECT_THAT(machine.cuda.failures[0].reason, HasSubstr("file too short"));
}

TEST(NvidiaDriver, FilesOfTheSystemAreRead) {
  FakeMachine fake;
  fake.file("/dev/nvidia0")
      .file("/dev/nvidiactl")
      .file("/dev/nvidia-uvm")
      .file("/dev/null")
      .file("/.dockerenv");
  fake.on_bus("0000:01:00.0").file("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n");
  fake.file("/sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n");
  fake.file("/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.113.01  Tue Sep 12 19:41:24 UTC 2023\n");
  const Machine machine = fake.discovered();
  EXPECT_THAT(machine.nodes, ElementsAre("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"));
  EXPECT_THAT(machine.on_bus, ElementsAre("0000:01:00.0"));
  EXPECT_EQ(machine.module_version, "535.113.01");
  EXPECT_EQ(machine.container, "docker");
}

TEST(NvidiaDriver, GoesThroughJsonUnchanged) {
  FakeMachine fake;
  const Machine machine = fake.with_gpus(2).with_libraries().discovered();
  const nlohmann::json json = machine;
  EXPECT_EQ(nlohmann::json(json.get<Machine>()), json);
}

TEST(NvidiaBuild, RunsOnChipsOfItsGenerationAndByPtxOnNewerOnes) {
  const Build build{.architectures = {80, 90}, .ptx_architectures = {}};
  EXPECT_TRUE(runs_on(build, 80));
  EXPECT_TRUE(runs_on(build, 86));
  EXPECT_TRUE(runs_on(build, 90));
  EXPECT_FALSE(runs_on(build, 75));
  EXPECT_FALSE(runs_on(build, 100));
  EXPECT_TRUE(runs_on({.architectures = {90}, .ptx_architectures = {90}}, 120));
  EXPECT_FALSE(runs_on({.architectures = {90}, .ptx_architectures = {90}}, 89));
}

TEST(NvidiaBuild, VersionsReadAsTheLibrariesWriteThem) {
  const Build build{.cuda = 13000, .cublas = 130102, .cudnn = 91900, .nccl = 22803};
  EXPECT_EQ(built_with(build, "CUDA runtime"), "13.0");
  EXPECT_EQ(built_with(build, "cuBLASLt"), "13.1.2");
  EXPECT_EQ(built_with(build, "cuDNN"), "9.19.0");
  EXPECT_EQ(built_with(build, "NCCL"), "2.28.3");
  EXPECT_EQ(built_with({}, "NCCL"), "");
}

}  // namespace
}  // namespace lockstep::nvidia

#else

TEST(NvidiaDriver, IsTestedWithStandIns) { GTEST_SKIP() << "built without LOCKSTEP_FAKE_NVIDIA"; }

#endif
