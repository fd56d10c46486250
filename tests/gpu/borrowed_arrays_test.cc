// Arrays of somebody else's are copied to a GPU, or sent to it batch by batch, from where they lie.
#include "borrowed_arrays.h"

#include "gpu/gpu.h"

namespace lockstep::testing {
namespace {

using GpuBorrowedArrays = Gpu;

TEST_F(GpuBorrowedArrays, TrainAsCopiesDo) {
  const DeviceScope scope(gpu());
  expect_borrowed_trains_as_copied();
}

TEST_F(GpuBorrowedArrays, AreSentToSeveralBatchByBatch) {
  const distribute::MirroredStrategy strategy({"/gpu:0", "/gpu:1"}, {.report = false});
  const auto scope = strategy.scope();
  expect_borrowed_trains_as_copied();
}

TEST_F(GpuBorrowedArrays, AreReadWhenTheyAreMoved) {
  const HostArrays arrays;
  const Tensor there = from_blob(arrays.x.data(), {DType::float32, {kRows, kColumns}}).to(gpu());
  EXPECT_EQ(there.to_vector<float>(), arrays.x);
}

}  // namespace
}  // namespace lockstep::testing
