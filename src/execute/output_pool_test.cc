#include "execute/output_pool.h"

#include <gtest/gtest.h>

#include "execute/compile_test.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::one_thread_devices;

TEST(OutputPool, MemoryIsUsedAgainOnceNobodyHoldsIt) {
  Device& device = *one_thread_devices(1)[0];
  const TensorSpec spec{DType::float32, {3}};
  OutputPool pool;
  Tensor first = pool.take(spec, device);
  const void* const data = first.impl()->data();
  const Tensor second = pool.take(spec, device);
  EXPECT_NE(second.impl()->data(), data) << "the first is still held";
  first = {};
  EXPECT_EQ(pool.take(spec, device).impl()->data(), data);
  EXPECT_NE(pool.take({DType::float32, {4}}, device).impl()->data(), data);
}

class Outputs : public ::testing::Test {
 protected:
  Outputs() {
    layout_.devices = one_thread_devices(2);
    layout_.replicas = 4;
    layout_.slices = slice_batch(7, 4);  // 2, 2, 2, 1
  }
  ReplicaLayout layout_;
};

TEST_F(Outputs, RowsLieInOneTensor) {
  const std::vector<PlannedOutput> planned = {{.spec = {DType::float32, {2, 3}}, .per_replica = true}};
  ReplicatedOutputs outputs(planned, layout_);
  TensorList taken(1);
  outputs.take(taken);
  EXPECT_EQ(taken[0].shape(), Shape({7, 3}));
  auto* const data = static_cast<float*>(taken[0].impl()->data());
  EXPECT_EQ(outputs.of_replica(0, 0, 1, 0), data + 2 * 3);
  EXPECT_EQ(outputs.of_replica(1, 1, 3, 0), data + 6 * 3);
}

TEST_F(Outputs, BlocksLieInOneTensor) {
  const std::vector<PlannedOutput> planned = {{.spec = {DType::float32, {5}}, .stacked = true}};
  ReplicatedOutputs outputs(planned, layout_);
  TensorList taken(1);
  outputs.take(taken);
  EXPECT_EQ(taken[0].shape(), Shape({4, 5}));
  EXPECT_EQ(outputs.of_replica(1, 0, 2, 0), static_cast<float*>(taken[0].impl()->data()) + 2 * 5);
}

TEST_F(Outputs, WhatAllComputeAlikeIsWrittenByTheFirst) {
  const std::vector<PlannedOutput> planned = {{.spec = {DType::float32, {5}}}};
  ReplicatedOutputs outputs(planned, layout_);
  TensorList taken(1);
  outputs.take(taken);
  void* const data = taken[0].impl()->data();
  EXPECT_EQ(outputs.of_device(0, 0, 0), data);
  EXPECT_EQ(outputs.of_replica(0, 0, 1, 0), data) << "its replicas may read it";
  void* const unread = outputs.of_device(1, 0, 0);
  EXPECT_NE(unread, data);
  EXPECT_NE(outputs.of_device(0, 1, 0), data) << "the plan of another slice does not write it";
  outputs.take(taken);
  EXPECT_EQ(outputs.of_device(1, 0, 0), unread) << "that memory stays";
}

}  // namespace
}  // namespace lockstep::execute
