#include "execute/staged_input.h"

#include <gtest/gtest.h>

#include "execute/compile_test.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::counting;
using lockstep::testing::one_thread_devices;

TEST(StagedInput, OfTheDeviceItselfStaysWhereItIs) {
  Device& device = *one_thread_devices(1)[0];
  StagedInput staged(device);
  for (int i = 0; i < 4; ++i) {
    const Tensor input = counting({3}).to(device);
    EXPECT_EQ(staged.bring(device, input.impl()->data(), 12), input.impl()->data());
  }
}

TEST(StagedInput, OfAnotherDeviceIsCopiedIntoMemoryThatIsKept) {
  Device &device = *one_thread_devices(2)[0], &other = *one_thread_devices(2)[1];
  StagedInput staged(device);
  const int64_t before = device.counters().bytes_copied_in;
  const Tensor first = counting({4}).to(other), second = counting({2}, 100).to(other);
  auto* const data = static_cast<float*>(staged.bring(other, first.impl()->data(), 16));
  EXPECT_NE(data, first.impl()->data());
  EXPECT_EQ(data[3], 3);
  EXPECT_EQ(staged.bring(other, second.impl()->data(), 8), data);
  EXPECT_EQ(data[1], 101);
  EXPECT_EQ(device.counters().bytes_copied_in - before, 24);
}

}  // namespace
}  // namespace lockstep::execute
