#include "comm/door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "comm/free_address_test.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

// Doors of one process stand for those of several.
class Doors : public ::testing::Test {
 protected:
  DoorOptions options() const {
    return {.host = "127.0.0.1",
            .meeting = meeting_,
            .secret = "a secret",
            .version = "1",
            .most_workers = 4,
            .min_workers = 1,
            .timeout_s = 0.5,
            .wait_s = 1.5};
  }

  void make(int count, const DoorOptions& options) {
    Roster roster{1, {}};
    for (int i = 0; i < count; ++i) {
      doors_.push_back(std::make_unique<Door>(options, [this](const std::string&) { ++interruptions_; }));
      roster.members.push_back(doors_.back()->self());
    }
    for (const auto& door : doors_) door->enter(roster);
  }

  struct Outcome {
    std::optional<Formation> formed;
    bool expelled = false;
    std::string too_few;
  };
  std::future<Outcome> form(int door, bool done = false) {
    return std::async(std::launch::async, [this, door, done] {
      Outcome outcome;
      try {
        outcome.formed = doors_[static_cast<size_t>(door)]->form(done, true);
      } catch (const Expelled&) {
        outcome.expelled = true;
      } catch (const TooFew& few) {
        outcome.too_few = few.reason;
      }
      return outcome;
    });
  }

  const std::string meeting_ = free_address();
  std::vector<std::unique_ptr<Door>> doors_;
  std::atomic<int> interruptions_{0};
};

TEST_F(Doors, ThoseWhoAreLeftFormTheNextGenerationAlsoWithoutTheFirst) {
  make(3, options());
  doors_[0].reset();
  auto one = form(1), two = form(2);
  const Outcome first = one.get(), second = two.get();
  ASSERT_TRUE(first.formed && second.formed);
  EXPECT_EQ(first.formed->roster.generation, 2);
  EXPECT_EQ(first.formed->rank, 0);
  EXPECT_EQ(second.formed->rank, 1);
  EXPECT_EQ(second.formed->roster.members.size(), 2U);
  EXPECT_EQ(first.formed->address, second.formed->address);
  EXPECT_EQ(first.formed->secret, second.formed->secret);
  EXPECT_FALSE(first.formed->hopeless());
}

TEST_F(Doors, WhoWorksOnIsInterrupted) {
  make(2, options());
  auto one = form(1);
  while (interruptions_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  auto zero = form(0);
  EXPECT_EQ(zero.get().formed->rank, 0);
  EXPECT_EQ(one.get().formed->rank, 1);
}

TEST_F(Doors, WhoIsSilentIsExpelledAndMayJoinAnew) {
  make(3, options());
  auto zero = form(0), one = form(1);
  const Outcome first = zero.get(), second = one.get();
  ASSERT_TRUE(first.formed && second.formed);
  EXPECT_EQ(first.formed->roster.members.size(), 2U);
  doors_[0]->enter(first.formed->roster);
  doors_[1]->enter(second.formed->roster);
  EXPECT_TRUE(form(2).get().expelled);
  auto joins = std::async(std::launch::async, [&] {
    return doors_[2]->join(MessageWriter().put_text(doors_[1]->self().door).take());
  });
  while (doors_[0]->newcomers() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  zero = form(0), one = form(1);
  EXPECT_EQ(zero.get().formed->roster.members.size(), 3U);
  EXPECT_EQ(one.get().formed->rank, 1);
  EXPECT_EQ(joins.get().rank, 2);
}

TEST_F(Doors, TheFirstLearnsThatTheOthersHaveGoneOnWithoutIt) {
  make(3, options());
  auto one = form(1), two = form(2);
  const Outcome first = one.get(), second = two.get();
  ASSERT_TRUE(first.formed && second.formed);
  EXPECT_EQ(first.formed->roster.members.size(), 2U);
  doors_[1]->enter(first.formed->roster);
  doors_[2]->enter(second.formed->roster);
  EXPECT_TRUE(form(0).get().expelled);
}

// The first may be alive behind a network that is cut.
TEST_F(Doors, HalfOfThemWithoutTheFirstDoNotGoOn) {
  make(2, options());
  EXPECT_THAT(form(1).get().too_few, HasSubstr("more than half of those that are not known to be dead"));
}

TEST_F(Doors, HalfOfThemWithTheFirstGoOn) {
  make(2, options());
  EXPECT_EQ(form(0).get().formed->roster.members.size(), 1U);
}

TEST_F(Doors, BelowTheMinimumAllLearnThatTheyStop) {
  DoorOptions three = options();
  three.min_workers = 3;
  make(3, three);
  doors_[1].reset();
  auto zero = form(0), two = form(2);
  EXPECT_THAT(zero.get().too_few, HasSubstr("2 of 4 workers are left"));
  EXPECT_THAT(two.get().too_few, HasSubstr("2 of 4 workers are left"));
}

TEST_F(Doors, WhoNeedsNoFurtherStepNeedsNoMinimum) {
  DoorOptions two = options();
  two.min_workers = 2;
  make(2, two);
  doors_[0].reset();
  EXPECT_EQ(form(1, true).get().formed->roster.members.size(), 1U);
}

TEST_F(Doors, ANewcomerFindsTheRunAtTheMeetingAddress) {
  make(2, options());
  Door newcomer(options(), [](const std::string&) {});
  auto joins = std::async(std::launch::async, [&] { return newcomer.join({}); });
  while (doors_[0]->newcomers() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  doors_[0]->end();
  EXPECT_THROW(joins.get(), Error);
}

// The leader is on another machine, and cannot listen there.
TEST_F(Doors, ANewcomerFindsTheRunThroughAnyMemberAtTheMeetingAddress) {
  DoorOptions elsewhere = options();
  elsewhere.meeting = "192.0.2.1:29400";
  Roster roster{1, {}};
  for (const DoorOptions& each : {elsewhere, options()}) {
    doors_.push_back(std::make_unique<Door>(each, [](const std::string&) {}));
    roster.members.push_back(doors_.back()->self());
  }
  for (const auto& door : doors_) door->enter(roster);
  Door newcomer(options(), [](const std::string&) {});
  auto joins = std::async(std::launch::async, [&] { return newcomer.join({}); });
  while (doors_[0]->newcomers() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  doors_[0]->end();
  EXPECT_THROW(joins.get(), Error);
}

// One that knocks too late, and one that has waited while the others went on.
TEST_F(Doors, ANewcomerLearnsThatTheRunIsPastItsPlace) {
  make(1, options());
  const auto past_of = [&](int64_t place) {
    return std::async(std::launch::async, [this, place]() -> std::string {
      Door newcomer(options(), [](const std::string&) {});
      newcomer.come_to(place, "");
      try {
        newcomer.join(MessageWriter().put_text(doors_[0]->self().door).take());
      } catch (const Passed& passed) {
        return passed.past;
      }
      return "it was let in";
    });
  };
  doors_[0]->come_to(3, "what was before 3");
  EXPECT_EQ(past_of(2).get(), "what was before 3");
  auto waits = past_of(3);
  while (doors_[0]->newcomers() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  doors_[0]->come_to(4, "what was before 4");
  EXPECT_EQ(waits.get(), "what was before 4");
  EXPECT_EQ(doors_[0]->newcomers(), 0);
}

TEST_F(Doors, AnotherVersionIsRefused) {
  make(1, options());
  DoorOptions other = options();
  other.version = "2";
  Door newcomer(other, [](const std::string&) {});
  try {
    newcomer.join(MessageWriter().put_text(doors_[0]->self().door).take());
    FAIL() << "it was let in";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
    EXPECT_THAT(error.message(), HasSubstr("it is of Lockstep 1, this worker of 2"));
  }
}

}  // namespace
}  // namespace lockstep::comm
