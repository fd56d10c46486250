#include "comm/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

// What ranks of a run of three know.
class MembershipTest : public ::testing::Test {
 protected:
  static Membership of(int rank) {
    return Membership(rank, {"process 1 on host a", "", "process 3 on host b"});
  }
  // What a rank says of itself reaches rank 0, and the others by way of it.
  void tell(Membership& from) {
    if (&from != &hub_) news_ = hub_.take_told(from.told());
    first_.take_told(hub_.told());
    second_.take_told(hub_.told());
  }

  Membership hub_ = of(0), first_ = of(1), second_ = of(2);
  bool news_ = false;
};

TEST_F(MembershipTest, NamesRanks) {
  EXPECT_EQ(hub_.name(0), "rank 0 (process 1 on host a)");
  EXPECT_EQ(hub_.name(1), "rank 1");
}

TEST_F(MembershipTest, KnowsHowFarTheOthersHaveCome) {
  EXPECT_TRUE(first_.set_progress(3, 2, "all_reduce #3"));
  EXPECT_FALSE(first_.set_progress(3, 2, "all_reduce #3")) << "that was known";
  tell(first_);
  EXPECT_TRUE(news_);
  tell(first_);
  EXPECT_FALSE(news_) << "rank 0 has told it";
  EXPECT_EQ(second_.behind(3),
            "rank 0 (process 1 on host a) has begun 0; rank 2 (process 3 on host b) has begun 0");
  second_.set_progress(3, 2, "all_reduce #3");
  hub_.set_progress(3, 3, "broadcast #3");
  tell(second_);
  EXPECT_THAT(second_.behind(3), IsEmpty());
  EXPECT_EQ(second_.missing_from(3, "all_reduce #3"),
            "rank 0 (process 1 on host a) is at broadcast #3 instead of all_reduce #3");
}

TEST_F(MembershipTest, SaysWhatRanksDoInsteadOfComing) {
  first_.set_activity({.what = "Dataset::next", .since_ns = kSecond}, 62 * kSecond);
  tell(first_);
  EXPECT_EQ(second_.missing_from(1, "all_reduce #1"),
            "rank 0 (process 1 on host a) has not come to all_reduce #1; "
            "rank 1 has not come to all_reduce #1; for 61 s it is in Dataset::next");
  second_.set_left(1);
  EXPECT_EQ(second_.absent(1, "the end"),
            "rank 1 has not come to the end: its program has let go of the run");
}

TEST_F(MembershipTest, SaysForHowLongNothingWasHeard) {
  // As rank 0 tells it of rank 1.
  MessageWriter body;
  body.put(int32_t{1}).put(int32_t{1}).put(int64_t{0}).put(int64_t{0}).put(int64_t{0}).put(0.0).put(30.0);
  second_.take_told(body.put_text("").put_text("Dataset::next").take());
  EXPECT_THAT(second_.absent(1, "the end"), HasSubstr("for 30 s nothing was heard of it"));
}

TEST_F(MembershipTest, KnowsWhoIsMissingFromAGathering) {
  EXPECT_EQ(first_.begin_gathering(), 1);
  tell(first_);
  EXPECT_EQ(hub_.missing_from_gathering(1, "weights"),
            "rank 2 (process 3 on host b) has not come to weights (1)");
  EXPECT_EQ(second_.begin_gathering(), 1);
  tell(second_);
  EXPECT_THAT(hub_.missing_from_gathering(1, "weights"), IsEmpty());
}

TEST_F(MembershipTest, TheFirstReasonForTheEndCounts) {
  EXPECT_THAT(hub_.lost(), IsEmpty());
  EXPECT_EQ(hub_.lost_code(), ErrorCode::io);
  hub_.set_lost(2, "it closed the connection");
  EXPECT_TRUE(hub_.gone(2));
  EXPECT_FALSE(hub_.has_left(2));
  EXPECT_TRUE(hub_.end("rank 1 gave up: no more data", ErrorCode::invalid_argument));
  EXPECT_FALSE(hub_.end("rank 0 gave up: it is alone", ErrorCode::internal));
  EXPECT_EQ(hub_.lost(),
            "rank 1 gave up: no more data; rank 2 (process 3 on host b) is gone: it closed the connection");
  EXPECT_EQ(hub_.lost_code(), ErrorCode::invalid_argument);
}

TEST_F(MembershipTest, DoesNotMissWhoHasLeft) {
  hub_.set_left(2);
  EXPECT_TRUE(hub_.gone(2));
  EXPECT_THAT(hub_.lost(), IsEmpty());
  EXPECT_EQ(hub_.left(), "rank 2 (process 3 on host b) has left: its program let go of the run");
}

TEST_F(MembershipTest, IgnoresWordsOnRanksThatDoNotExist) {
  MessageWriter body;
  body.put(int32_t{1}).put(int32_t{7}).put(int64_t{9}).put(int64_t{9}).put(int64_t{9}).put(0.0).put(0.0);
  EXPECT_FALSE(hub_.take_told(body.put_text("").put_text("").take()));
  EXPECT_FALSE(hub_.take_told("")) << "nor is there anything in an empty one";
}

}  // namespace
}  // namespace lockstep::comm
