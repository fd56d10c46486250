// The all-reduce of CPU devices by itself: values, marks, and the devices' threads.
#include "execute/all_reduce/host_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "device/device_backend.h"
#include "execute/compile_test.h"
#include "execute/device_threads.h"
#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::one_thread_devices;
using ::testing::HasSubstr;

constexpr int64_t kSizes[] = {1, 300, 5000};

ReplicaLayout layout_of(int devices, int replicas, int64_t batch, CrossDeviceOps ops, int64_t bucket_bytes) {
  ReplicaLayout layout;
  layout.devices = one_thread_devices(devices);
  layout.replicas = replicas;
  layout.cross_device_ops = ops;
  layout.bucket_bytes = bucket_bytes;
  layout.slices = slice_batch(batch, replicas);
  return layout;
}

// A step that sums values of three sizes, and nothing else. Replica r holds the same numbers wherever it
// runs.
class SummingStep {
 public:
  explicit SummingStep(const ReplicaLayout& layout) : layout_(layout) {
    std::vector<ReplicaSum> sums;
    for (const int64_t size : kSizes) {
      ReplicaSum& sum = sums.emplace_back();
      sum.phase = 1;
      sum.size = size;
      sum.inputs.resize(static_cast<size_t>(layout.replicas));
      for (int d = 0; d < static_cast<int>(layout.devices.size()); ++d) {
        Device& device = *layout.devices[static_cast<size_t>(d)];
        const auto [first, last] = layout.replicas_with_examples(d);
        for (int r = first; r < last; ++r)
          sum.inputs[static_cast<size_t>(r)] = hold(numbers(r, size), device);
        results_.push_back(Tensor::full(DType::float32, {size}, -1, device));
        sum.results.push_back({results_.back().impl()->data()});
        sum.ready.push_back(sums.size());
      }
    }
    all_reduce_ = make_all_reduce(ReplicaGroup(layout_), std::move(sums), observer_);
    threads_.emplace(
        layout_.devices, [this](int d) { run(d); }, [this] { all_reduce_->abort(); }, observer_);
  }

  void run() {
    all_reduce_->begin_step();
    threads_->run();
    all_reduce_->end_step();
  }
  // By sum, by device.
  const TensorList& results() const { return results_; }
  int failing = -1;  // this device throws

 private:
  static Tensor numbers(int replica, int64_t size) {
    std::mt19937 random(static_cast<uint32_t>(replica));
    std::vector<float> values(static_cast<size_t>(size));
    for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random);
    return Tensor::from(values, {size});
  }
  const void* hold(const Tensor& tensor, Device& device) {
    inputs_.push_back(tensor.to(device));
    return inputs_.back().impl()->data();
  }
  void run(int d) {
    require(d != failing, ErrorCode::internal, std::source_location::current(), "it fails");
    Stream& stream = backend_of(*layout_.devices[static_cast<size_t>(d)]).compute_stream();
    EXPECT_TRUE(all_reduce_->waits(d, 1).empty());
    size_t launches = 0;
    for (const PhaseSync::Mark& mark : all_reduce_->marks(d, 1)) {
      EXPECT_GE(mark.launches, launches) << "marks come in the order of their launches";
      launches = mark.launches;
      mark.mark->reach(stream);
    }
    const bool finished = all_reduce_->finish(d, 1);
    EXPECT_EQ(finished, failing < 0);
  }

  const ReplicaLayout layout_;
  const StepObserver observer_;
  TensorList inputs_, results_;
  std::unique_ptr<AllReduce> all_reduce_;
  std::optional<DeviceThreads> threads_;
};

std::vector<std::vector<float>> sums_of(const ReplicaLayout& layout, int steps = 2) {
  SummingStep step(layout);
  for (int i = 0; i < steps; ++i) step.run();
  std::vector<std::vector<float>> first;
  for (size_t i = 0; i < step.results().size(); ++i) {
    const std::vector<float> values = step.results()[i].to_vector<float>();
    if (i % layout.devices.size() == 0)
      first.push_back(values);
    else
      EXPECT_EQ(values, first.back()) << "all devices have the same sum";
  }
  return first;
}

class HostThreads : public ::testing::TestWithParam<CrossDeviceOps> {};

TEST_P(HostThreads, NoBitDependsOnDevicesOrBuckets) {
  for (const int64_t batch : {8, 5, 1}) {
    const auto expected = sums_of(layout_of(1, 8, batch, CrossDeviceOps::automatic, 0));
    for (const int devices : {1, 2, 3, 8})
      for (const int64_t bytes : {0, 64, 4096}) {
        SCOPED_TRACE(::testing::Message() << batch << " examples, " << devices << " devices, " << bytes);
        EXPECT_EQ(sums_of(layout_of(devices, 8, batch, GetParam(), bytes)), expected);
      }
  }
}

// The first steps try sizes of buckets: each gives the same sums.
TEST_P(HostThreads, TriesBucketsWithoutChangingABit) {
  const auto expected = sums_of(layout_of(1, 3, 3, CrossDeviceOps::automatic, 0));
  EXPECT_EQ(sums_of(layout_of(3, 3, 3, GetParam(), -1), 40), expected);
}

TEST_P(HostThreads, LetsTheOthersGoWhereADeviceFails) {
  SummingStep step(layout_of(3, 3, 3, GetParam(), 64));
  for (const int failing : {0, 2}) {
    step.failing = failing;
    EXPECT_THAT(error_of([&] { step.run(); }).message(), HasSubstr("it fails"));
    step.failing = -1;
    step.run();
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, HostThreads,
                         ::testing::Values(CrossDeviceOps::automatic, CrossDeviceOps::ring,
                                           CrossDeviceOps::hierarchical_copy,
                                           CrossDeviceOps::reduction_to_one_device, CrossDeviceOps::tree));

TEST(MakeAllReduce, ThereIsNothingToWaitForWhereNothingIsSummed) {
  const StepObserver observer;
  const auto nothing =
      make_all_reduce(ReplicaGroup(layout_of(2, 2, 2, CrossDeviceOps::automatic, -1)), {}, observer);
  nothing->begin_step();
  EXPECT_TRUE(nothing->marks(0, 1).empty());
  EXPECT_TRUE(nothing->waits(1, 1).empty());
  EXPECT_TRUE(nothing->finish(0, 1));
}

TEST(MakeAllReduce, NcclIsForGpus) {
  EXPECT_THAT(error_of([] { SummingStep step(layout_of(2, 2, 2, CrossDeviceOps::nccl, -1)); }).message(),
              HasSubstr("CrossDeviceOps::nccl joins GPUs"));
}

TEST(ReplicaGroup, HoldsReplicasWithExamples) {
  const ReplicaGroup group(layout_of(3, 6, 7, CrossDeviceOps::automatic, -1));  // 2, 2, 2, 1, 0, 0
  EXPECT_EQ(group.replicas, 6);
  EXPECT_EQ(group.leaves(), (std::vector<TreeNode>{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
  EXPECT_EQ(group.holder(3), 1);
}

}  // namespace
}  // namespace lockstep::execute
