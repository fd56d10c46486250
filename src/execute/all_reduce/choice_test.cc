// On machines that are not here: devices are only described.
#include "execute/all_reduce/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::execute {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<AllReduceDevice> gpus(std::initializer_list<int> physical, bool readable = true) {
  std::vector<AllReduceDevice> devices;
  for (const int gpu : physical)
    devices.push_back(
        {.name = "/GPU:" + std::to_string(devices.size()), .physical = gpu, .reads_all = readable});
  return devices;
}

AllReduceChoice choose(const std::vector<AllReduceDevice>& devices, bool reproducible = false,
                       CrossDeviceOps asked = CrossDeviceOps::automatic, const std::string& missing = {}) {
  return choose_all_reduce(devices, reproducible, asked, [&] { return missing; });
}

std::string refusal(const std::vector<AllReduceDevice>& devices, bool reproducible = false,
                    const std::string& missing = {}) {
  try {
    choose(devices, reproducible, CrossDeviceOps::nccl, missing);
  } catch (const Error& error) {
    return error.message();
  }
  return "none";
}

TEST(AllReduceChoice, GpusOfTheirOwnAreJoinedByNccl) {
  const AllReduceChoice choice = choose(gpus({0, 1, 2, 3}));
  EXPECT_EQ(choice.method, AllReduceMethod::nccl);
  EXPECT_EQ(choice.reason, "NCCL: every device is a GPU of its own");
  EXPECT_EQ(choose(gpus({2, 0}), false, CrossDeviceOps::nccl).method, AllReduceMethod::nccl);
}

TEST(AllReduceChoice, LogicalDevicesOfOneGpuUseKernels) {
  for (const auto& devices : {gpus({0, 0}), gpus({0, 0, 0, 0}), gpus({0, 1, 0, 1})}) {
    const AllReduceChoice choice = choose(devices);
    EXPECT_EQ(choice.method, AllReduceMethod::tree_kernels);
    EXPECT_THAT(choice.reason, AllOf(HasSubstr("are parts of one GPU"), HasSubstr("from the memory of all")));
  }
  EXPECT_THAT(choose(gpus({0, 1, 0})).reason, HasSubstr("/GPU:0 and /GPU:2"));
}

TEST(AllReduceChoice, ReproducibleSumsAreNeverNccls) {
  const AllReduceChoice choice = choose(gpus({0, 1}), true);
  EXPECT_EQ(choice.method, AllReduceMethod::tree_kernels);
  EXPECT_THAT(choice.reason, HasSubstr("depends on the number of GPUs"));
  EXPECT_THAT(refusal(gpus({0, 1}), true), HasSubstr("exclude each other"));
}

TEST(AllReduceChoice, GpusThatCannotReadEachOtherGetCopies) {
  EXPECT_EQ(choose(gpus({0, 1}, false), true).method, AllReduceMethod::copied_tree_kernels);
  EXPECT_EQ(choose(gpus({0, 1}, false)).method, AllReduceMethod::nccl);
}

TEST(AllReduceChoice, WithoutNcclItSaysWhatIsMissing) {
  const AllReduceChoice choice =
      choose(gpus({0, 1}), false, CrossDeviceOps::automatic, "NCCL is missing: no file");
  EXPECT_EQ(choice.method, AllReduceMethod::tree_kernels);
  EXPECT_THAT(choice.reason, HasSubstr("NCCL is missing: no file"));
  EXPECT_THAT(refusal(gpus({0, 1}), false, "NCCL is missing: no file"),
              HasSubstr("NCCL is missing: no file"));
}

TEST(AllReduceChoice, NcclIsNotLoadedWhereItDoesNotMatter) {
  const auto never = []() -> std::string {
    ADD_FAILURE() << "asked for NCCL";
    return {};
  };
  choose_all_reduce(gpus({0}), false, CrossDeviceOps::automatic, never);
  choose_all_reduce(gpus({0, 0}), false, CrossDeviceOps::automatic, never);
  choose_all_reduce(gpus({0, 1}), true, CrossDeviceOps::automatic, never);
}

TEST(AllReduceChoice, NcclWantsGpus) {
  EXPECT_THAT(refusal(gpus({1, 1})), HasSubstr("logical devices of one GPU"));
  std::vector<AllReduceDevice> cpus(2, {.name = "/CPU:0", .queues_launches = false});
  EXPECT_THAT(refusal(cpus), HasSubstr("/CPU:0 is none"));
  EXPECT_EQ(choose(cpus).method, AllReduceMethod::host_threads);
}

}  // namespace
}  // namespace lockstep::execute
