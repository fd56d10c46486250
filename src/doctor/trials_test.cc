#include "doctor/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "device/ceilings.h"
#include "lockstep/device/null_device.h"

namespace lockstep::doctor {
namespace {

TEST(Trials, AProductIsProvedAndAWrongOneFound) {
  const std::vector<float> a{1, 2, 3, 4}, b{-1, 0, 2, 1};
  std::vector<float> c{3, 2, 5, 4};
  EXPECT_TRUE(is_product(a, b, c, 2));
  for (float& value : c) {
    const float right = value;
    value = right + 1;
    EXPECT_FALSE(is_product(a, b, c, 2));
    value = right + 0.001f;
    EXPECT_FALSE(is_product(a, b, c, 2));
    value = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(is_product(a, b, c, 2));
    value = right;
  }
}

TEST(Trials, TheCpuComputesRightAndHasARate) {
  const std::vector<Trial> trials =
      try_out(device_by_name("/CPU:0"), {.side = 64, .elements = 1000, .rounds = 2, .budget_s = 0});
  ASSERT_EQ(trials.size(), 2u);
  for (const Trial& trial : trials) {
    EXPECT_EQ(trial.device, "/CPU:0");
    EXPECT_TRUE(trial.correct) << trial.fault;
    EXPECT_EQ(trial.fault, "");
    EXPECT_GT(trial.rate, 0);
    EXPECT_GT(trial.ceiling, 0);
  }
  EXPECT_EQ(trials[0].work, "float32 matmul, 64 x 64 x 64");
}

TEST(Trials, ADeviceThatFailsIsAResultToo) {
  const std::vector<Trial> trials =
      try_out(null_device(), {.side = 64, .elements = 1000, .rounds = 1, .budget_s = 0});
  ASSERT_EQ(trials.size(), 2u);
  EXPECT_FALSE(trials[0].correct);
  EXPECT_NE(trials[0].fault, "");
  EXPECT_EQ(trials[0].rate, 0);
}

TEST(Ceilings, CountWhatIsComputed) {
  const double once = multiply_adds(10);
  EXPECT_GT(once, 0);
  EXPECT_EQ(multiply_adds(30), 3 * once);
}

TEST(Ceilings, AStreamingCopyCopiesAll) {
  for (const int64_t count : {0, 1, 16, 100}) {
    std::vector<float> from(100), to(100, -1.0f);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
    streaming_copy(to.data(), from.data(), count);
    for (int64_t i = 0; i < 100; ++i)
      EXPECT_EQ(to[static_cast<size_t>(i)], i < count ? static_cast<float>(i) : -1.0f) << count << " " << i;
  }
}

}  // namespace
}  // namespace lockstep::doctor
