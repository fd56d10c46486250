// The simulator against what can be computed by hand.
#include "lockstep/plan/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

constexpr double kMiB = 1 << 20;

// One second for every byte, and no latency: sums of n bytes take 2 (n - 1) / n * bytes seconds.
Network second_per_byte(int per_node = 1024) {
  const Link link{.name = "slow", .bytes_per_s = 1, .latency_s = 0};
  return {.inside = link, .between = link, .per_node = per_node};
}

// Launches of a second each, in front of updates of a second each.
Step seconds(int launches, int updates, std::vector<Sum> sums) {
  Step step{.launches = {}, .sums = std::move(sums)};
  for (int i = 0; i < launches; ++i) step.launches.push_back({1, 0});
  for (int i = 0; i < updates; ++i) step.launches.push_back({1, 1});
  return step;
}

// Every sum is a bucket of its own.
Surroundings two_devices() { return {.devices = 2, .network = second_per_byte(), .bucket_bytes = 1}; }

TEST(AllReduceTime, IsThatOfARingWhereBytesMatter) {
  const Link link{.name = "l", .bytes_per_s = 1e9, .latency_s = 1e-6};
  for (const int n : {2, 4, 8})
    EXPECT_DOUBLE_EQ(all_reduce_s(1e9, n, link), 2.0 * (n - 1) * (1e-6 + 1.0 / n));
  EXPECT_EQ(all_reduce_s(1e9, 1, link), 0);
}

TEST(AllReduceTime, IsThatOfATreeWhereLatencyMatters) {
  const Link link{.name = "l", .bytes_per_s = 1e9, .latency_s = 1e-6};
  EXPECT_DOUBLE_EQ(all_reduce_s(4, 1024, link), 2 * 10 * 1e-6 + 2 * 4 / 1e9);
}

TEST(AllReduceTime, IsMadeInsideNodesAndThenBetweenThem) {
  const Network network{.inside = {.name = "i", .bytes_per_s = 100, .latency_s = 0},
                        .between = {.name = "b", .bytes_per_s = 10, .latency_s = 0},
                        .per_node = 4};
  const SumTime time = all_reduce_s(1000, 8, network);
  EXPECT_DOUBLE_EQ(time.inside_s, 2 * 3 * (1000.0 / 4 / 100)) << "reduce-scatter and all-gather";
  EXPECT_DOUBLE_EQ(time.between_s, 2 * (250.0 / 2 / 10))
      << "every device sends a quarter over a network adapter of its own";
  EXPECT_EQ(all_reduce_s(1000, 4, network).between_s, 0);
  Network one_adapter = network;
  one_adapter.rails = 1;
  EXPECT_DOUBLE_EQ(all_reduce_s(1000, 8, one_adapter).between_s, 2 * (1000.0 / 2 / 10));
}

TEST(ExpectedMaximum, IsThatOfNormalValues) {
  // From tables of order statistics.
  EXPECT_EQ(expected_maximum(1), 0);
  EXPECT_NEAR(expected_maximum(2), 1 / std::sqrt(M_PI), 0.002);
  EXPECT_NEAR(expected_maximum(4), 1.0294, 0.003);
  EXPECT_NEAR(expected_maximum(8), 1.4236, 0.003);
  EXPECT_NEAR(expected_maximum(100), 2.5076, 0.004);
}

TEST(Buckets, AreHalvesOfWhatIsLeft) {
  std::vector<Sum> sums;
  for (int i = 0; i < 32; ++i) sums.push_back({kMiB, 1, i + 1});
  const std::vector<Bucket> buckets = buckets_of(sums);
  std::vector<double> sizes;
  for (const Bucket& bucket : buckets) sizes.push_back(bucket.bytes / kMiB);
  EXPECT_EQ(sizes, (std::vector<double>{16, 8, 4, 2, 1, 1}));
  EXPECT_EQ(buckets[0].ready, 16) << "a bucket is filled by its last sum";
  EXPECT_EQ(buckets_of(sums, 0).size(), 1u);
  EXPECT_EQ(buckets_of(sums, static_cast<int64_t>(4 * kMiB)).size(), 8u);
}

TEST(Simulation, OfOneDeviceIsTheSumOfItsLaunches) {
  Step step = seconds(3, 1, {{100, 1, 3}});
  step.host_s = 0.5;
  const Simulated alone = simulate(step, {.network = second_per_byte(), .jitter = 0.1});
  EXPECT_DOUBLE_EQ(alone.step_s, 4.5);
  EXPECT_TRUE(alone.buckets.empty());
}

TEST(Simulation, WithOneBucketAtTheEndOverlapsNothing) {
  const Simulated result = simulate(seconds(4, 2, {{3, 1, 4}}), two_devices());
  EXPECT_DOUBLE_EQ(result.step_s, 4 + 3 + 2);
  EXPECT_DOUBLE_EQ(result.exposed_s, 3);
}

TEST(Simulation, HidesWhatTheBackwardPassCovers) {
  // The first sum takes two seconds of the three that are left, the last one is exposed.
  const Simulated result = simulate(seconds(4, 1, {{2, 1, 1}, {0.5, 1, 4}}), two_devices());
  EXPECT_DOUBLE_EQ(result.step_s, 4 + 0.5 + 1);
  EXPECT_DOUBLE_EQ(result.exposed_s, 0.5);
  EXPECT_DOUBLE_EQ(result.buckets[0].began_s, 1);
  EXPECT_DOUBLE_EQ(result.buckets[0].ended_s, 3);
}

TEST(Simulation, IsBoundByTheLinkWhereSumsTakeLonger) {
  const Simulated result = simulate(seconds(2, 1, {{10, 1, 1}, {10, 1, 2}}), two_devices());
  EXPECT_DOUBLE_EQ(result.step_s, 1 + 10 + 10 + 1);
  EXPECT_DOUBLE_EQ(result.sums_s, 20);
  EXPECT_DOUBLE_EQ(result.exposed_s, 19);
}

TEST(Simulation, OfSumsByTheDevicesOwnThreadsOverlapsNothing) {
  Surroundings around = two_devices();
  around.sums_beside = false;
  EXPECT_DOUBLE_EQ(simulate(seconds(4, 1, {{2, 1, 1}, {0.5, 1, 4}}), around).step_s, 4 + 2.5 + 1);
}

TEST(Simulation, WaitsForTheSlowest) {
  Surroundings around = two_devices();
  around.jitter = 0.1;
  const double slower = 1 + 0.1 * expected_maximum(2);
  EXPECT_DOUBLE_EQ(simulate(seconds(4, 2, {{3, 1, 4}}), around).step_s, 6 * slower + 3);
}

TEST(Simulation, SharesCores) {
  Surroundings around{
      .devices = 4, .network = second_per_byte(), .sums_beside = false, .cores = 2, .cores_per_device = 1};
  const Simulated four = simulate(seconds(4, 1, {}), around);
  EXPECT_DOUBLE_EQ(four.step_s, 10) << "four devices on two cores";
  EXPECT_DOUBLE_EQ(four.shared_s, 5);
  around.devices = 2;
  EXPECT_DOUBLE_EQ(simulate(seconds(4, 1, {}), around).step_s, 5);
}

TEST(Simulation, GivesCoresToSumsThatRunBeside) {
  // Two devices and two sums on two cores: while a sum is made, everything takes twice as long.
  const Surroundings around{.devices = 2,
                            .network = second_per_byte(),
                            .bucket_bytes = 1,
                            .cores = 2,
                            .cores_per_device = 1,
                            .cores_per_sum = 1};
  EXPECT_DOUBLE_EQ(simulate(seconds(4, 0, {{1, 1, 1}}), around).step_s, 5);
}

TEST(Simulation, EndsWhateverTheScheduleSays) {
  // A sum that is said to be ready after launches that need it.
  EXPECT_DOUBLE_EQ(simulate(seconds(2, 1, {{1, 1, 99}}), two_devices()).step_s, 4);
}

TEST(Links, AreFoundByNameOrWritten) {
  EXPECT_EQ(find_link("ib400").bytes_per_s, 0.8 * 50e9);
  EXPECT_EQ(find_link("nvlink").name, "nvlink4");
  const Link own = find_link("mine=12.5:20");
  EXPECT_EQ(own.name, "mine");
  EXPECT_DOUBLE_EQ(own.bytes_per_s, 12.5e9);
  EXPECT_DOUBLE_EQ(own.latency_s, 20e-6);
  for (const char* wrong : {"ib40", "=1:2", "x=1", "x=0:1", "x=1:-1", "x=1:2:3", "x=a:b", "x=inf:1"})
    EXPECT_THROW(find_link(wrong), Error) << wrong;
  for (const Link& link : links()) EXPECT_FALSE(link.source.empty()) << link.name;
}

TEST(Simulate, ProcessesShareCoresBeforeTheirFirstLaunch) {
  Step step = seconds(1, 0, {});
  step.host_s = 3;
  Surroundings around{.devices = 4, .network = second_per_byte(), .cores = 2, .cores_per_device = 0.5};
  // Four processes on two cores take twice as long; their launches have half a core each.
  EXPECT_DOUBLE_EQ(simulate(step, around).step_s, 6 + 1);
  EXPECT_DOUBLE_EQ(simulate(step, around).shared_s, 3);
  // One that works for all has a core to itself.
  around.devices_per_process = 4;
  EXPECT_DOUBLE_EQ(simulate(step, around).step_s, 3 + 1);
  EXPECT_DOUBLE_EQ(simulate(step, around).shared_s, 0);
}

}  // namespace
}  // namespace lockstep::plan
