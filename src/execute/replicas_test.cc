#include "execute/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/host_memory_device_test.h"
#include "execute/compile_test.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::one_thread_devices;
using lockstep::testing::two_thread_device;
using ::testing::ElementsAre;

std::vector<int64_t> sizes(int64_t batch, int replicas) {
  std::vector<int64_t> result;
  for (const Slice& slice : slice_batch(batch, replicas)) result.push_back(slice.size);
  return result;
}

TEST(SliceBatch, SharesAreEqualButForTheLast) {
  EXPECT_THAT(sizes(32, 3), ElementsAre(11, 11, 10));
  EXPECT_THAT(sizes(4, 3), ElementsAre(2, 2, 0));
  EXPECT_THAT(sizes(61, 8), ElementsAre(8, 8, 8, 8, 8, 8, 8, 5));
  EXPECT_THAT(sizes(7, 8), ElementsAre(1, 1, 1, 1, 1, 1, 1, 0));
  EXPECT_THAT(sizes(1, 8), ElementsAre(1, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(sizes(5, 1), ElementsAre(5));
}

TEST(SliceBatch, SlicesAreConsecutiveAndCoverTheBatch) {
  for (int64_t batch = 1; batch < 70; ++batch)
    for (int replicas = 1; replicas <= 16; ++replicas) {
      int64_t next = 0;
      bool ended = false;
      for (const Slice& slice : slice_batch(batch, replicas)) {
        ASSERT_EQ(slice.begin, next) << batch << " over " << replicas;
        ASSERT_GE(slice.size, 0);
        ASSERT_FALSE(ended && slice.size > 0) << "an empty slice before a full one";
        ended = slice.size == 0;
        next += slice.size;
      }
      ASSERT_EQ(next, batch);
    }
}

TEST(ReplicaLayout, DevicesTakeConsecutiveReplicas) {
  const auto shares = [](int replicas, int devices) {
    ReplicaLayout layout;
    layout.devices = one_thread_devices(devices);
    layout.replicas = replicas;
    std::vector<ReplicaRange> all;
    for (int d = 0; d < devices; ++d) all.push_back(layout.replicas_of(d));
    return all;
  };
  EXPECT_THAT(shares(8, 3), ElementsAre(ReplicaRange{0, 3}, ReplicaRange{3, 6}, ReplicaRange{6, 8}));
  EXPECT_THAT(shares(8, 1), ElementsAre(ReplicaRange{0, 8}));
  EXPECT_THAT(shares(3, 3), ElementsAre(ReplicaRange{0, 1}, ReplicaRange{1, 2}, ReplicaRange{2, 3}));
  EXPECT_THAT(shares(9, 4),
              ElementsAre(ReplicaRange{0, 3}, ReplicaRange{3, 5}, ReplicaRange{5, 7}, ReplicaRange{7, 9}));
}

TEST(ReplicaLayout, ReplicasWithoutExamplesAreTheLast) {
  ReplicaLayout layout;
  layout.devices = one_thread_devices(3);
  layout.replicas = 6;
  layout.slices = slice_batch(7, 6);  // 2, 2, 2, 1, 0, 0
  EXPECT_EQ(layout.replicas_with_examples(0), (ReplicaRange{0, 2}));
  EXPECT_EQ(layout.replicas_with_examples(1), (ReplicaRange{2, 4}));
  EXPECT_EQ(layout.replicas_with_examples(2).size(), 0);
  EXPECT_EQ(layout.batch(), 7);
}

// A share of a GPU.
class Share final : public lockstep::testing::HostMemoryDevice {
 public:
  Share(int index, int gpu) : HostMemoryDevice(DeviceKind::gpu, index, 1), gpu_(gpu) {}
  int physical() const override { return gpu_; }

 private:
  const int gpu_;
};

TEST(ReplicaLayout, KnowsWhetherDevicesShareAGpu) {
  Device first(std::make_unique<Share>(0, 0)), second(std::make_unique<Share>(1, 0)),
      other(std::make_unique<Share>(2, 1));
  ReplicaLayout layout;
  layout.devices = {&first, &other};
  EXPECT_FALSE(layout.shares_gpu());
  layout.devices = {&first, &other, &second};
  EXPECT_TRUE(layout.shares_gpu());
  layout.devices = one_thread_devices(3);
  EXPECT_FALSE(layout.shares_gpu()) << "CPU devices are no GPU's";
}

TEST(ReplicaLayout, IsPlannedForTheThreadsOfItsDevices) {
  ReplicaLayout layout;
  layout.devices = {&two_thread_device(), one_thread_devices(1)[0]};
  layout.replicas = 2;
  layout.split_parameters = {true, false};
  compile::PlanOptions options = plan_options(layout, 0);
  EXPECT_EQ(options.device, layout.devices[0]);
  EXPECT_TRUE(options.split_parameters.empty()) << "it is not replicated";
  EXPECT_EQ(options.device_threads, 2);
  EXPECT_EQ(options.replica_threads, 2);
  layout.slices = slice_batch(8, 2);
  layout.reproducible = true;
  options = plan_options(layout, 0);
  EXPECT_THAT(options.split_parameters, ElementsAre(true, false));
  EXPECT_EQ(options.replica_threads, 1) << "no bit may depend on the number of threads";
  EXPECT_EQ(plan_options(layout, 1).device_threads, 1);
}

TEST(Workers, HoldConsecutiveReplicas) {
  EXPECT_EQ(replicas_of_workers(8, 2, 2), (std::vector<ReplicaRange>{{0, 4}, {4, 8}}));
  EXPECT_EQ(replicas_of_workers(8, 3, 1), (std::vector<ReplicaRange>{{0, 3}, {3, 6}, {6, 8}}));
  EXPECT_EQ(replicas_of_workers(4, 4, 1), (std::vector<ReplicaRange>{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
}

// Whoever holds which replicas, the slices are those of one process.
TEST(Workers, HaveTheRowsOfTheirReplicas) {
  for (const int workers : {1, 2, 3, 4, 8})
    for (const int64_t batch : {1, 7, 8, 50, 64}) {
      const auto ranges = replicas_of_workers(8, workers, 1);
      const std::vector<Slice> slices = slice_rows(rows_of_workers(batch, ranges), ranges);
      const std::vector<Slice> alone = slice_batch(batch, 8);
      ASSERT_EQ(slices.size(), alone.size());
      for (size_t r = 0; r < slices.size(); ++r) {
        EXPECT_EQ(slices[r].begin, alone[r].begin) << batch << " on " << workers;
        EXPECT_EQ(slices[r].size, alone[r].size) << batch << " on " << workers;
      }
    }
}

TEST(Workers, ThatHaveOtherRowsCutTheirOwn) {
  const auto ranges = replicas_of_workers(4, 2, 2);
  const std::vector<Slice> slices = slice_rows({1, 6}, ranges);
  std::vector<int64_t> sizes, begins;
  for (const Slice& slice : slices) sizes.push_back(slice.size), begins.push_back(slice.begin);
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 0, 3, 3}));
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 1, 1, 4}));
}

}  // namespace
}  // namespace lockstep::execute
