#include "lockstep/observe/kernel_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Trace three_launches() {
  start_tracing();
  record_span("matmul float32(2, 2)  model/dense", "kernel", 0, 3000, {.flops = 3'000'000, .bytes = 600});
  record_span("fused(add) float32(2, 2)", "kernel", 3000, 4000, {.flops = 4, .bytes = 2'000'000});
  record_span("matmul float32(2, 2)  model/dense", "kernel", 4000, 5000, {.flops = 3'000'000, .bytes = 600});
  record_span("step", "step", 0, 5000);
  stop_tracing();
  return take_trace();
}

TEST(KernelProfile, AddsUpLaunchesOfOneName) {
  const Trace trace = three_launches();
  EXPECT_EQ(steps_in(trace), 1);
  const auto profile = kernel_profile(trace);
  ASSERT_EQ(profile.size(), 2u);
  EXPECT_EQ(profile[0].name, "matmul float32(2, 2)  model/dense");
  EXPECT_EQ(profile[0].calls, 2);
  EXPECT_EQ(profile[0].total_ns, 4000);
  EXPECT_EQ(profile[0].flops, 6e6);
  EXPECT_EQ(profile[1].bytes, 2e6);
}

TEST(KernelProfile, OperationsOnNumbersOf16BitsHaveARateOfTheirOwn) {
  start_tracing();
  record_span("matmul bfloat16(2, 2)", "kernel", 0, 1000, {.flops = 800});
  record_span("matmul float32(2, 2)", "kernel", 1000, 2000, {.flops = 100});
  stop_tracing();
  const auto profile = kernel_profile(take_trace());
  ASSERT_EQ(profile.size(), 2u);
  EXPECT_EQ(profile[0].half_flops, 800);
  EXPECT_EQ(profile[1].half_flops, 0);
  EXPECT_EQ(seconds_at(profile[0], 100, 400), 2);
  EXPECT_EQ(seconds_at(profile[1], 100, 400), 1);
  EXPECT_EQ(seconds_at(profile[0], 100, 0), 8);
}

TEST(KernelProfile, TableSaysSharesRatesAndFloors) {
  const auto profile = kernel_profile(three_launches());
  const std::string text =
      to_text(profile, {.steps = 2, .rows = 1, .flops_per_second = 2e12, .bytes_per_second = 4e12});
  EXPECT_THAT(text, HasSubstr("  80.0%"));
  EXPECT_THAT(text, HasSubstr("(1 others)"));
  EXPECT_THAT(text, HasSubstr("model/dense"));
  EXPECT_THAT(text, HasSubstr("    1.33"));  // 4 us where 3 are needed
  EXPECT_THAT(to_text(profile), Not(HasSubstr("x floor")));
}

}  // namespace
}  // namespace lockstep::observe
