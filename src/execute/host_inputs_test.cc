#include "execute/host_inputs.h"

#include <gtest/gtest.h>

#include "execute/asynchronous_device_test.h"
#include "execute/compile_test.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::AsynchronousDevice;
using lockstep::testing::counting;
using lockstep::testing::one_thread_devices;

class SendingDevice final : public AsynchronousDevice, public AsyncHostCopies {
 public:
  using AsynchronousDevice::AsynchronousDevice;

  bool reads_later = true;
  std::vector<uint32_t> sent;  // the events behind what was sent

  AsyncHostCopies* async_host_copies() override { return this; }
  bool copy_async(void* target, std::span<const Piece> pieces, const Event& after, Event& done) override {
    after.wait(compute_stream());
    for (const Piece& piece : pieces)
      std::memcpy(static_cast<char*>(target) + piece.offset, piece.source, piece.bytes);
    done.record(compute_stream());
    sent.push_back(recorded);
    return reads_later;
  }
};

class HostInputsTest : public ::testing::Test {
 protected:
  // A run that reads the tensor; gives what it found.
  static std::vector<float> run(HostInputs& inputs, const Tensor& tensor) {
    const TensorImpl& from = *tensor.impl();
    void* place = nullptr;
    inputs.begin();
    inputs.add(from.storage, from.data(), from.spec.bytes(), place);
    inputs.send();
    inputs.finish();
    const auto* const read = static_cast<const float*>(place);
    return {read, read + tensor.shape().size()};
  }
  static Tensor made(float first) { return counting({3}, first).to(*one_thread_devices(1)[0]); }

  Device device_{std::make_unique<SendingDevice>(96)};
  SendingDevice& backend_ = static_cast<SendingDevice&>(backend_of(device_));
};

TEST_F(HostInputsTest, WhatIsReadLaterIsHeldUntilTheRunAfterTheNext) {
  HostInputs inputs(device_);
  const Tensor first = made(0), second = made(10), third = made(20);
  EXPECT_EQ(run(inputs, first), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(run(inputs, second), (std::vector<float>{10, 11, 12}));
  EXPECT_FALSE(sole_owner(first));
  EXPECT_TRUE(backend_.waited.empty());
  EXPECT_EQ(run(inputs, third), (std::vector<float>{20, 21, 22}));
  EXPECT_EQ(backend_.waited, std::vector<uint32_t>{backend_.sent[0]});
  EXPECT_TRUE(sole_owner(first));
  EXPECT_FALSE(sole_owner(second));
}

TEST_F(HostInputsTest, WhatIsReadLaterIsWaitedForAtTheEnd) {
  const Tensor first = made(0), second = made(10);
  {
    HostInputs inputs(device_);
    run(inputs, first);
    run(inputs, second);
  }
  EXPECT_EQ(backend_.waited.size(), 2u);
  EXPECT_TRUE(sole_owner(first));
  EXPECT_TRUE(sole_owner(second));
}

TEST_F(HostInputsTest, WhatWasReadAtOnceIsNotHeld) {
  backend_.reads_later = false;
  HostInputs inputs(device_);
  const Tensor first = made(0);
  for (int i = 0; i < 3; ++i) {
    run(inputs, first);
    EXPECT_TRUE(sole_owner(first));
  }
  EXPECT_TRUE(backend_.waited.empty());
}

}  // namespace
}  // namespace lockstep::execute
