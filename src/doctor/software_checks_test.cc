#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/checks_test.h"

namespace lockstep::doctor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(SoftwareChecks, MissingLibraries) {
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

TEST(SoftwareChecks, SeveralGpusNeedNccl) {
  FakeMachine fake;
  fake.with_gpus(2).with_libraries().without("libnccl.so.2");
  EXPECT_EQ(only(around(fake), "nccl_missing").severity, Severity::problem);
}

TEST(SoftwareChecks, LibrariesOfAnotherVersion) {
  FakeMachine fake;
  fake.with_gpus(1).with_libraries().script["versions"] = {{"cudnn", 91900}};
  Finding finding = only(around(fake), "library_version");
  EXPECT_EQ(finding.cause, "cuDNN is of version 9.19.0, and Lockstep was built with 9.14.0.");
  EXPECT_EQ(finding.severity, Severity::note);
  fake.script["versions"] = {{"cudnn", 8907}};
  EXPECT_EQ(only(around(fake), "library_version").severity, Severity::problem);
}

TEST(SoftwareChecks, PluginsThatAreMissingOrRefused) {
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

TEST(SoftwareChecks, EnginesBetweenWorkersThatAreMissingOrRefused) {
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

TEST(SoftwareChecks, AGpuIsNeverUnusedInSilence) {
  FakeMachine fake;
  Surroundings seen = around(fake.with_gpus(2).with_libraries());
  seen.devices.pop_back();
  EXPECT_EQ(only(seen, "gpus_unused").cause, "CUDA shows 2 GPUs, and Lockstep uses 1.");
  seen.devices_fault = "TF_FORCE_GPU_ALLOW_GROWTH ...";
  EXPECT_THAT(names(diagnose(seen)), Contains("devices_failed"));
}

}  // namespace
}  // namespace lockstep::doctor
