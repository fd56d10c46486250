#include "comm/roster.h"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

Roster three_members() {
  return {7, {{11, "a:1", "process 71 on host a"}, {22, "b:2", "process 4 on host b"}, {33, "c:3", ""}}};
}

TEST(Roster, IsReadAsItWasWritten) {
  const std::string text = three_members().text();
  MessageReader reader(text);
  const Roster roster = Roster::from(reader);
  EXPECT_TRUE(reader.ended());
  EXPECT_EQ(roster.generation, 7);
  ASSERT_EQ(roster.members.size(), 3U);
  EXPECT_EQ(roster.members[1].id, 22U);
  EXPECT_EQ(roster.members[1].endpoint, "b:2");
  EXPECT_EQ(roster.members[1].who, "process 4 on host b");
  EXPECT_EQ(roster.text(), text);
}

TEST(Roster, KnowsTheRankOfAMember) {
  EXPECT_EQ(three_members().rank_of(11), 0);
  EXPECT_EQ(three_members().rank_of(33), 2);
  EXPECT_EQ(three_members().rank_of(44), -1);
}

TEST(Roster, OfAMessageThatEndsEarlyHasTheMembersThatAreThere) {
  const std::string whole = three_members().text();
  const std::string first = Roster{7, {three_members().members[0]}}.text();
  const std::string cut = whole.substr(0, first.size());
  MessageReader reader(cut);
  const Roster roster = Roster::from(reader);
  ASSERT_EQ(roster.members.size(), 1U) << "not three, as its beginning says";
  EXPECT_EQ(roster.members[0].endpoint, "a:1");
}

}  // namespace
}  // namespace lockstep::comm
