#include "lockstep/plan/probe.h"

#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

// Wide enough for any machine: what is wrong by a unit is outside.
TEST(Probe, FindsRatesThatMachinesHave) {
  for (const Link& link : {measure_memory(), measure_loopback()}) {
    EXPECT_GT(link.bytes_per_s, 1e7) << link.name;
    EXPECT_LT(link.bytes_per_s, 1e13) << link.name;
    EXPECT_GT(link.latency_s, 0) << link.name;
    EXPECT_LT(link.latency_s, 1) << link.name;
  }
}

}  // namespace
}  // namespace lockstep::plan
