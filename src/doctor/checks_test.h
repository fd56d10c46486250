// For tests of the checks: machines that the doctor looks at, and what it finds there.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/fake_nvidia_test.h"
#include "doctor/checks.h"

namespace lockstep::doctor {

using nvidia::FakeMachine;

// A machine on which nothing is wrong, but for what its NVIDIA part may hold.
inline Surroundings around(nvidia::Machine machine) {
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

inline Surroundings around(const FakeMachine& fake) { return around(fake.discovered()); }

inline std::vector<std::string> names(const std::vector<Finding>& findings) {
  std::vector<std::string> all;
  for (const Finding& finding : findings) all.push_back(finding.check);
  return all;
}

// The one finding of this name; everything that a finding must have is there.
inline Finding only(const Surroundings& seen, std::string_view check) {
  for (const Finding& finding : diagnose(seen))
    if (finding.check == check) {
      EXPECT_FALSE(finding.cause.empty());
      EXPECT_FALSE(finding.evidence.empty());
      EXPECT_TRUE(finding.severity == Severity::note || !finding.fix.empty()) << finding.cause;
      return finding;
    }
  ADD_FAILURE() << "no finding " << check << " but " << ::testing::PrintToString(names(diagnose(seen)));
  return {};
}

}  // namespace lockstep::doctor
