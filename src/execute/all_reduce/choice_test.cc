// On machines that are not here: devices are only described.
#include "execute/all_reduce/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::compile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<SumDevice> cards(std::initializer_list<int> physical, bool readable = true) {
  std::vector<SumDevice> devices;
  for (const int card : physical)
    devices.push_back(
        {.name = "/GPU:" + std::to_string(devices.size()), .physical = card, .reads_all = readable});
  return devices;
}

SumChoice choose(const std::vector<SumDevice>& devices, bool reproducible = false,
                 CrossDeviceOps asked = CrossDeviceOps::automatic, const std::string& missing = {}) {
  return choose_sum(devices, reproducible, asked, [&] { return missing; });
}

std::string refusal(const std::vector<SumDevice>& devices, bool reproducible = false,
                    const std::string& missing = {}) {
  try {
    choose(devices, reproducible, CrossDeviceOps::nccl, missing);
  } catch (const Error& error) {
    return error.message();
  }
  return "none";
}

TEST(SumChoice, CardsOfTheirOwnAreJoinedByNccl) {
  const SumChoice choice = choose(cards({0, 1, 2, 3}));
  EXPECT_EQ(choice.method, SumMethod::nccl);
  EXPECT_EQ(choice.reason, "NCCL: every GPU is a card of its own");
  EXPECT_EQ(choose(cards({2, 0}), false, CrossDeviceOps::nccl).method, SumMethod::nccl);
}

TEST(SumChoice, LogicalGpusOfOneCardAddUpThemselves) {
  for (const auto& devices : {cards({0, 0}), cards({0, 0, 0, 0}), cards({0, 1, 0, 1})}) {
    const SumChoice choice = choose(devices);
    EXPECT_EQ(choice.method, SumMethod::kernels);
    EXPECT_THAT(choice.reason, AllOf(HasSubstr("are parts of one card"), HasSubstr("reads what all hold")));
  }
  EXPECT_THAT(choose(cards({0, 1, 0})).reason, HasSubstr("/GPU:0 and /GPU:2"));
}

TEST(SumChoice, ReproducibleSumsAreNeverNccls) {
  const SumChoice choice = choose(cards({0, 1}), true);
  EXPECT_EQ(choice.method, SumMethod::kernels);
  EXPECT_THAT(choice.reason, HasSubstr("depends on the number of cards"));
  EXPECT_THAT(refusal(cards({0, 1}), true), HasSubstr("exclude each other"));
}

TEST(SumChoice, CardsThatCannotReadEachOtherGetCopies) {
  EXPECT_EQ(choose(cards({0, 1}, false), true).method, SumMethod::copied_kernels);
  EXPECT_EQ(choose(cards({0, 1}, false)).method, SumMethod::nccl);
}

TEST(SumChoice, WithoutNcclItSaysWhatIsMissing) {
  const SumChoice choice =
      choose(cards({0, 1}), false, CrossDeviceOps::automatic, "NCCL is missing: no file");
  EXPECT_EQ(choice.method, SumMethod::kernels);
  EXPECT_THAT(choice.reason, HasSubstr("NCCL is missing: no file"));
  EXPECT_THAT(refusal(cards({0, 1}), false, "NCCL is missing: no file"),
              HasSubstr("NCCL is missing: no file"));
}

TEST(SumChoice, NcclIsNotLoadedWhereItDoesNotMatter) {
  const auto never = []() -> std::string {
    ADD_FAILURE() << "asked for NCCL";
    return {};
  };
  choose_sum(cards({0}), false, CrossDeviceOps::automatic, never);
  choose_sum(cards({0, 0}), false, CrossDeviceOps::automatic, never);
  choose_sum(cards({0, 1}), true, CrossDeviceOps::automatic, never);
}

TEST(SumChoice, NcclWantsCards) {
  EXPECT_THAT(refusal(cards({1, 1})), HasSubstr("logical devices of one card"));
  std::vector<SumDevice> cpus(2, {.name = "/CPU:0", .kind = DeviceKind::cpu});
  EXPECT_THAT(refusal(cpus), HasSubstr("/CPU:0 is none"));
  EXPECT_EQ(choose(cpus).method, SumMethod::threads);
}

}  // namespace
}  // namespace lockstep::compile
