#include "doctor/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "device/fake_nvidia_test.h"
#include "doctor/report.h"

namespace lockstep::doctor {
namespace {

using nvidia::FakeMachine;
using nvidia::test_uuid;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A machine on which nothing is wrong, but for what its NVIDIA part may hold.
Surroundings around(nvidia::Machine machine) {
  Surroundings seen;
  seen.host = {.cpu = "a processor",
               .instruction_sets = "AVX2",
               .system = "Linux",
               .avx2 = true,
               .cores = 8,
               .usable_cores = 8,
               .core_quota = {},
               .memory = int64_t{64} << 30,
               .memory_available = int64_t{32} << 30,
               .memory_limit = {},
               .shared_memory = int64_t{16} << 30};
  seen.nvidia = std::move(machine);
  seen.build = nvidia::Build{
      .cuda = 13000, .cublas = 130000, .cudnn = 91400, .nccl = 22803, .architectures = {80, 90}};
  PluginStatus cuda;
  cuda.name = "cuda";
  cuda.loaded = true;
  cuda.path = "/lib/liblockstep_cuda.so";
  seen.plugins = {cuda};
  seen.devices = {"/physical_device:CPU:0"};
  for (const nvidia::Gpu& gpu : seen.nvidia.gpus)
    if (gpu.visible_number)
      seen.devices.push_back("/physical_device:GPU:" + std::to_string(*gpu.visible_number));
  if (const char* value = std::getenv("CUDA_VISIBLE_DEVICES"))
    seen.environment["CUDA_VISIBLE_DEVICES"] = value;
  seen.own_pid = 1;
  return seen;
}

Surroundings around(const FakeMachine& fake) { return around(fake.discovered()); }

std::vector<std::string> names(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  for (const Finding& finding : findings) all.push_back(finding.check);
  return all;
}

// The one finding of this name; everything that a finding must have is there.
Finding only(const Surroundings& seen, std::string_view check) {
  for (const Finding& finding : diagnose(seen))
    if (finding.check == check) {
      EXPECT_FALSE(finding.cause.empty());
      EXPECT_FALSE(finding.evidence.empty());
      EXPECT_TRUE(finding.severity == Severity::note || !finding.fix.empty()) << finding.cause;
      return finding;
    }
  ADD_FAILURE() << "no finding " << check << " but " << testing::PrintToString(names(diagnose(seen)));
  return {};
}

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

TEST(Checks, AGpuWithoutADriver) {
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

TEST(Checks, ADriverThatIsTooOld) {
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

TEST(Checks, NvmlThatDoesNotStart) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().script["returns"] = {{"nvmlInit_v2", 18}, {"cuInit", 803}};
  EXPECT_THAT(only(around(fake), "driver_broken").cause, HasSubstr("different versions"));
  fake.script["returns"] = {{"nvmlInit_v2", 9}, {"cuInit", 999}};
  EXPECT_THAT(only(around(fake), "driver_broken").fix, HasSubstr("modprobe nvidia"));
  fake.script["returns"] = {{"nvmlInit_v2", 999}};
  EXPECT_EQ(only(around(fake), "driver_broken").severity, Severity::warning);
}

TEST(Checks, ADriverThatHangsOrCrashes) {
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

TEST(Checks, MissingNvml) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().without("libnvidia-ml.so.1");
  EXPECT_EQ(only(around(fake), "nvml_missing").severity, Severity::warning);
}

TEST(Checks, AContainerWithoutDeviceNodes) {
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

TEST(Checks, AGpuThatIsLost) {
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

TEST(Checks, AChipThatTheBuildHasNoCodeFor) {
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

TEST(Checks, MemoryThatOthersHold) {
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

TEST(Checks, TheStateOfAGpu) {
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

TEST(Checks, PcieWhereNvlinkExists) {
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

TEST(Checks, GpusThatCannotReadEachOther) {
  FakeMachine fake;
  fake.with_gpus(2).with_libraries().script["no_peer_access"] = 3;
  EXPECT_THAT(only(around(fake), "no_peer_access").evidence,
              ElementsAre(HasSubstr("the topology of the machine does not support it")));
}

TEST(Checks, SmallSharedMemoryMattersToSeveralGpus) {
  FakeMachine fake;
  Surroundings seen = around(fake.with_gpus(2).with_libraries().file("/.dockerenv"));
  seen.host.shared_memory = 64 << 20;
  EXPECT_THAT(only(seen, "shared_memory_small").fix, HasSubstr("--shm-size"));
}

TEST(Checks, MissingLibraries) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().without("libcudnn.so.9").without("libnccl.so.2");
  const Surroundings seen = around(fake);
  EXPECT_THAT(names(diagnose(seen)), ElementsAre("library_missing")) << "one GPU needs no NCCL";
  const Finding finding = only(seen, "library_missing");
  EXPECT_EQ(finding.cause, "cuDNN (libcudnn.so.9) is not found.");
  EXPECT_THAT(finding.evidence, Contains(AllOf(HasSubstr("loader: "), HasSubstr("No such file"))));
  EXPECT_THAT(finding.evidence, Contains("searched: " + fake.libraries()));
  EXPECT_THAT(finding.fix, HasSubstr("libcudnn9-cuda-13"));

  fake.place(fake.folder() + "/cuda-13/lib/libcudnn.so.9");
  EXPECT_EQ(only(around(fake), "library_missing").fix,
            "export LD_LIBRARY_PATH=" + fake.folder() + "/cuda-13/lib:$LD_LIBRARY_PATH");
}

TEST(Checks, SeveralGpusNeedNccl) {
  FakeMachine fake;
  fake.with_gpus(2).with_libraries().without("libnccl.so.2");
  EXPECT_EQ(only(around(fake), "nccl_missing").severity, Severity::problem);
}

TEST(Checks, LibrariesOfAnotherVersion) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().script["versions"] = {{"cudnn", 91900}};
  Finding finding = only(around(fake), "library_version");
  EXPECT_EQ(finding.cause, "cuDNN is of version 9.19.0, and Lockstep was built with 9.14.0.");
  EXPECT_EQ(finding.severity, Severity::note);
  fake.script["versions"] = {{"cudnn", 8907}};
  EXPECT_EQ(only(around(fake), "library_version").severity, Severity::problem);
}

TEST(Checks, PluginsThatAreMissingOrRefused) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries();
  Surroundings seen = around(fake);
  seen.plugins[0].loaded = false;
  seen.plugins[0].reason = "liblockstep_cuda.so not found in /usr/lib";
  EXPECT_THAT(only(seen, "built_without_cuda").fix, HasSubstr("cmake --preset cuda"));
  seen.plugins[0].reason = "/usr/lib/liblockstep_cuda.so: libcublasLt.so.13: cannot open shared object file";
  EXPECT_THAT(only(seen, "plugin_refused").fix, HasSubstr("LD_LIBRARY_PATH"));
  seen.plugins[0].reason = "/usr/lib/liblockstep_cuda.so: built for another Lockstep";
  EXPECT_THAT(only(seen, "plugin_refused").fix, HasSubstr("build the library and its plugins together"));

  const FakeMachine bare;
  Surroundings no_gpu = around(bare);
  no_gpu.plugins[0].loaded = false;
  no_gpu.plugins[0].reason = "liblockstep_cuda.so not found in /usr/lib";
  EXPECT_THAT(names(diagnose(no_gpu)), ElementsAre("no_gpu"));
}

TEST(Checks, EnginesBetweenWorkersThatAreMissingOrRefused) {
  const FakeMachine bare;
  Surroundings seen = around(bare);
  PluginStatus engine;
  engine.kind = PluginKind::communicator;
  const auto with = [&](const char* name, const char* reason) {
    engine.name = name;
    engine.reason = reason;
    seen.plugins = {engine};
  };
  with("gloo", "liblockstep_gloo.so not found in /usr/lib");
  Finding finding = only(seen, "engine_missing");
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_EQ(finding.cause,
            "This Lockstep has no plugin for Gloo, which joins workers over TCP, whoever starts them.");
  EXPECT_THAT(finding.fix, HasSubstr("apt install libgloo-dev"));
  // A launcher has started workers that it would join.
  seen.environment["WORLD_SIZE"] = "4";
  EXPECT_EQ(only(seen, "engine_missing").severity, Severity::problem);
  seen.environment["OMPI_COMM_WORLD_SIZE"] = "4";
  EXPECT_EQ(only(seen, "engine_missing").severity, Severity::note);
  with("mpi", "liblockstep_mpi.so not found in /usr/lib");
  finding = only(seen, "engine_missing");
  EXPECT_EQ(finding.severity, Severity::problem);
  EXPECT_THAT(finding.fix, HasSubstr("openmpi-bin"));

  with("mpi", "/usr/lib/liblockstep_mpi.so: libmpi.so.40: cannot open shared object file: No such file");
  finding = only(seen, "plugin_refused");
  EXPECT_EQ(finding.severity, Severity::problem);
  EXPECT_THAT(finding.fix, HasSubstr("apt install libopenmpi3"));
  seen.environment.clear();
  EXPECT_EQ(only(seen, "plugin_refused").severity, Severity::warning);

  with("nccl", "liblockstep_nccl.so not found in /usr/lib");
  EXPECT_THAT(names(diagnose(seen)), ElementsAre("no_gpu"));
  FakeMachine fake;
  seen = around(fake.with_gpus(1).with_libraries());
  with("nccl", "liblockstep_nccl.so not found in /usr/lib");
  seen.environment["WORLD_SIZE"] = "2";
  EXPECT_EQ(only(seen, "engine_missing").severity, Severity::problem);
}

TEST(Checks, AGpuIsNeverUnusedInSilence) {
  FakeMachine fake;
  Surroundings seen = around(fake.with_gpus(2).with_libraries());
  seen.devices.pop_back();
  EXPECT_EQ(only(seen, "gpus_unused").cause, "CUDA shows 2 GPUs, and Lockstep uses 1.");
  seen.devices_fault = "TF_FORCE_GPU_ALLOW_GROWTH ...";
  EXPECT_THAT(names(diagnose(seen)), Contains("devices_failed"));
}

TEST(Checks, TheEnvironment) {
  const FakeMachine fake;
  Surroundings seen = around(fake);
  seen.unknown_variables = {{"LOCKSTEP_LOGG", "LOCKSTEP_LOG"}};
  seen.environment = {{"LOCKSTEP_LOG", "loud"},
                      {"TF_FORCE_GPU_ALLOW_GROWTH", "maybe"},
                      {"OMP_WAIT_POLICY", "passive"},
                      {"TF_CONFIG", "{}"}};
  const std::vector<Finding> findings = diagnose(seen);
  EXPECT_THAT(names(findings), ElementsAre("unknown_variable", "invalid_variable", "invalid_variable",
                                           "tf_config", "wait_policy", "no_gpu"));
  EXPECT_THAT(findings[0].fix, HasSubstr("did you mean LOCKSTEP_LOG?"));
  EXPECT_THAT(findings[1].evidence[0], AllOf(HasSubstr("LOCKSTEP_LOG"), HasSubstr("loud")));
  EXPECT_THAT(findings[3].evidence, Contains(HasSubstr("cluster")));
  seen.environment = {{"LOCKSTEP_LOG", "Debug"}, {"TF_FORCE_GPU_ALLOW_GROWTH", "true"}};
  seen.unknown_variables.clear();
  EXPECT_THAT(names(diagnose(seen)), ElementsAre("no_gpu"));
}

TEST(Checks, LaunchBlockingMattersToGpus) {
  FakeMachine fake;
  Surroundings seen = around(fake.with_gpus(1).with_libraries());
  seen.environment["CUDA_LAUNCH_BLOCKING"] = "1";
  EXPECT_EQ(only(seen, "launch_blocking").severity, Severity::warning);
}

TEST(Checks, TheHost) {
  const FakeMachine fake;
  Surroundings seen = around(fake);
  seen.host.core_quota = 2;
  seen.host.avx2 = false;
  seen.host.memory_available = int64_t{1} << 30;
  EXPECT_THAT(only(seen, "cpu_quota").evidence[0], HasSubstr("2.0 cores' time is granted, threads run on 8"));
  EXPECT_EQ(only(seen, "old_processor").severity, Severity::note);
  EXPECT_EQ(only(seen, "memory_low").severity, Severity::warning);
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
  source << std::ifstream(LOCKSTEP_SOURCE_DIR "/src/doctor/checks_test.cc").rdbuf();
  for (const CheckInfo& check : all_checks()) {
    EXPECT_THAT(text.str(), HasSubstr("| `" + std::string(check.name) + "` |"));
    EXPECT_THAT(source.str(), HasSubstr("\"" + std::string(check.name) + "\"")) << "a check without a test";
  }
}

}  // namespace
}  // namespace lockstep::doctor
