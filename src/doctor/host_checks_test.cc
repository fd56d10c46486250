#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/checks_test.h"

namespace lockstep::doctor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(HostChecks, TheEnvironment) {
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

TEST(HostChecks, LaunchBlockingMattersToGpus) {
  FakeMachine fake;
  Surroundings seen = around(fake.with_gpus(1).with_libraries());
  seen.environment["CUDA_LAUNCH_BLOCKING"] = "1";
  EXPECT_EQ(only(seen, "launch_blocking").severity, Severity::warning);
}

TEST(HostChecks, TheHost) {
  const FakeMachine fake;
  Surroundings seen = around(fake);
  seen.host.core_quota = 2;
  seen.host.avx2 = false;
  seen.host.memory_available = int64_t{1} << 30;
  EXPECT_THAT(only(seen, "cpu_quota").evidence[0], HasSubstr("2.0 cores' time is granted, threads run on 8"));
  EXPECT_EQ(only(seen, "old_processor").severity, Severity::note);
  EXPECT_EQ(only(seen, "memory_low").severity, Severity::warning);
}

}  // namespace
}  // namespace lockstep::doctor
