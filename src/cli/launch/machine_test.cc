#include "cli/launch/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/saved_environment_test.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Machine machine(int cpus, std::vector<std::string> gpus = {}) {
  Machine made;
  made.cpus.resize(static_cast<size_t>(cpus));
  std::iota(made.cpus.begin(), made.cpus.end(), 0);
  made.gpus = std::move(gpus);
  return made;
}

TEST(Machine, IsSharedEqually) {
  EXPECT_EQ(share_of(machine(8, {"0", "1"}), 1, 2), (Share{{4, 5, 6, 7}, {"1"}}));
  EXPECT_EQ(share_of(machine(5, {"a", "b", "c"}), 1, 2), (Share{{2, 3}, {"b"}}))
      << "what is over is nobody's";
  EXPECT_EQ(share_of(machine(1), 0, 1), (Share{{0}, {}}));
}

TEST(Machine, SeveralHaveOneWhereThereAreNotEnough) {
  std::vector<int> cpus;
  for (int i = 0; i < 4; ++i) {
    const Share share = share_of(machine(2, {"7"}), i, 4);
    ASSERT_THAT(share.cpus, SizeIs(1));
    cpus.push_back(share.cpus[0]);
    EXPECT_THAT(share.gpus, ElementsAre("7"));
  }
  EXPECT_THAT(cpus, ElementsAre(0, 0, 1, 1));
}

TEST(Machine, SharesAreDescribed) {
  EXPECT_EQ(describe_shares(machine(32, {"0", "1", "2", "3"}), 4), "each has 8 of 32 CPUs and 1 of 4 GPUs");
  EXPECT_EQ(describe_shares(machine(2), 4), "each has 1 of 2 CPUs, 2 workers per CPU");
  EXPECT_EQ(describe_shares(machine(2), 3), "each has 1 of 2 CPUs, 1 to 2 workers per CPU");
  EXPECT_EQ(describe_shares(machine(7, {"0", "1", "2"}), 2),
            "each has 3 of 7 CPUs (1 left over) and 1 of 3 GPUs (1 left over)");
}

class ThisMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("machine_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const testing::SavedEnvironment environment_{
      {"CUDA_VISIBLE_DEVICES", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"}};
  std::filesystem::path folder_;
};

TEST_F(ThisMachine, HasTheCpusOfTheProcess) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  const Machine seen = this_machine(folder_.string());
  EXPECT_THAT(seen.cpus, SizeIs(static_cast<size_t>(CPU_COUNT(&set))));
  for (const int cpu : seen.cpus) EXPECT_TRUE(CPU_ISSET(cpu, &set));
}

TEST_F(ThisMachine, HasTheGpusThatAreVisible) {
  EXPECT_THAT(this_machine(folder_.string()).gpus, IsEmpty());
  // In a container that was given the fourth GPU, CUDA counts it as the first.
  for (const char* name : {"nvidia3", "nvidia5", "nvidiactl", "nvidia-uvm", "nvidia", "null"})
    std::ofstream(folder_ / name);
  EXPECT_THAT(this_machine(folder_.string()).gpus, ElementsAre("0", "1"));
  setenv("CUDA_VISIBLE_DEVICES", "GPU-1f,GPU-2e", 1);
  EXPECT_THAT(this_machine(folder_.string()).gpus, ElementsAre("GPU-1f", "GPU-2e"));
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_THAT(this_machine(folder_.string()).gpus, IsEmpty()) << "all are hidden";
  EXPECT_FALSE(this_machine(folder_.string()).own_gpus);
  setenv("SLURM_GPUS_PER_TASK", "1", 1);
  EXPECT_TRUE(this_machine(folder_.string()).own_gpus);
}

TEST_F(ThisMachine, TravelsAsText) {
  Machine seen = machine(3, {"0", "MIG-1"});
  seen.own_gpus = true;
  EXPECT_EQ(machine_from(Json::parse(to_json(seen).dump())), seen);
  const Share share{{1, 2}, {"x"}};
  EXPECT_EQ(share_from(Json::parse(to_json(share).dump())), share);
}

}  // namespace
}  // namespace lockstep::launch
