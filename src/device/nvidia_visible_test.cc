#include "device/nvidia_visible.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::nvidia {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::string> kUuids{"GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3"};

VisibleList list(const char* value) { return visible_by_rule(value, kUuids); }

TEST(NvidiaVisible, NotSetShowsAll) {
  const VisibleList all = visible_by_rule(std::nullopt, kUuids);
  EXPECT_THAT(all.gpus, ElementsAre(0, 1, 2));
  EXPECT_EQ(all.fault, "");
}

TEST(NvidiaVisible, NumbersChooseAndOrder) {
  EXPECT_THAT(list("2,0").gpus, ElementsAre(2, 0));
  EXPECT_EQ(list("2,0").fault, "");
  EXPECT_THAT(list(" 1 , +2").gpus, ElementsAre(1, 2));
  EXPECT_THAT(list("1gpu,2x").gpus, ElementsAre(1, 2)) << "numbers are read as far as they go";
}

TEST(NvidiaVisible, TheFirstWrongNumberEndsTheList) {
  EXPECT_THAT(list("1,7,0").gpus, ElementsAre(1));
  EXPECT_EQ(list("1,7,0").fault, "entry 2, \"7\": there are 3 GPUs, 0 to 2");
  EXPECT_THAT(list("0,-1,1").gpus, ElementsAre(0));
  EXPECT_THAT(list("-1").gpus, IsEmpty());
  EXPECT_EQ(list("-1").fault, "entry 1, \"-1\": is negative, which ends the list");
  EXPECT_THAT(list("99999999999999").gpus, IsEmpty());
  EXPECT_THAT(list("0,,1").gpus, ElementsAre(0));
  EXPECT_THAT(list("gpu0").fault, HasSubstr("is not a number of a GPU"));
  EXPECT_THAT(list("none").gpus, IsEmpty());
  EXPECT_THAT(visible_by_rule("0", {}).fault, HasSubstr("there are no GPUs"));
}

TEST(NvidiaVisible, EmptyHidesAll) {
  EXPECT_THAT(list("").gpus, IsEmpty());
  EXPECT_EQ(list(" ").fault, "it is empty, which hides every GPU");
}

TEST(NvidiaVisible, OneNamedTwiceHidesAll) {
  EXPECT_THAT(list("0,1,0").gpus, IsEmpty());
  EXPECT_THAT(list("0,1,0").fault, HasSubstr("entry 3, \"0\": names a GPU for the second time"));
  EXPECT_THAT(list("GPU-c,GPU-cccc").gpus, IsEmpty());
}

TEST(NvidiaVisible, UuidsMayBeCutShortAsLongAsTheyNameOne) {
  EXPECT_THAT(list("GPU-cccc-3,GPU-aaaa").gpus, ElementsAre(2, 0));
  EXPECT_THAT(list("GPU-c,GPU-aa").gpus, ElementsAre(2));
  EXPECT_THAT(list("GPU-c,GPU-aa").fault, HasSubstr("fits both GPU-aaaa-1 and GPU-aabb-2"));
  EXPECT_THAT(list("GPU-dd").fault, HasSubstr("is the UUID of no GPU here"));
  EXPECT_THAT(list("GPU-c,0").fault, HasSubstr("does not begin with GPU- as the first entry does"));
  EXPECT_THAT(list("0,GPU-c").gpus, ElementsAre(0));
  EXPECT_THAT(list("MIG-1").gpus, IsEmpty());
}

}  // namespace
}  // namespace lockstep::nvidia
