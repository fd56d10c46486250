#include "comm/rendezvous.h"

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

// Several in one process stand for those of several processes.
class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousOptions options() const {
    return {.host = "127.0.0.1",
            .meeting = meeting_,
            .secret = "a secret",
            .version = "1",
            .most_workers = 4,
            .min_workers = 1,
            .timeout_s = 0.5,
            .wait_s = 1.5};
  }

  void make(int count, const RendezvousOptions& options) {
    Roster roster{1, {}};
    for (int i = 0; i < count; ++i) {
      rendezvous_.push_back(
          std::make_unique<Rendezvous>(options, [this](const std::string&) { ++interruptions_; }));
      roster.members.push_back(rendezvous_.back()->self());
    }
    for (const auto& each : rendezvous_) each->enter(roster);
  }

  struct Outcome {
    std::optional<Formation> formed;
    bool expelled = false;
    std::string too_few;
  };
  std::future<Outcome> form(int member, bool done = false) {
    return std::async(std::launch::async, [this, member, done] {
      Outcome outcome;
      try {
        outcome.formed = rendezvous_[static_cast<size_t>(member)]->form(done, true);
      } catch (const Expelled&) {
        outcome.expelled = true;
      } catch (const TooFew& few) {
        outcome.too_few = few.reason;
      }
      return outcome;
    });
  }

  const std::string meeting_ = free_address();
  std::vector<std::unique_ptr<Rendezvous>> rendezvous_;
  std::atomic<int> interruptions_{0};
};

TEST_F(RendezvousTest, ThoseWhoAreLeftFormTheNextGenerationAlsoWithoutTheFirst) {
  make(3, options());
  rendezvous_[0].reset();
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

TEST_F(RendezvousTest, WhoWorksOnIsInterrupted) {
  make(2, options());
  auto one = form(1);
  while (interruptions_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  auto zero = form(0);
  EXPECT_EQ(zero.get().formed->rank, 0);
  EXPECT_EQ(one.get().formed->rank, 1);
}

TEST_F(RendezvousTest, WhoIsSilentIsExpelledAndMayJoinAnew) {
  make(3, options());
  auto zero = form(0), one = form(1);
  const Outcome first = zero.get(), second = one.get();
  ASSERT_TRUE(first.formed && second.formed);
  EXPECT_EQ(first.formed->roster.members.size(), 2U);
  rendezvous_[0]->enter(first.formed->roster);
  rendezvous_[1]->enter(second.formed->roster);
  EXPECT_TRUE(form(2).get().expelled);
  auto joins = std::async(std::launch::async, [&] {
    return rendezvous_[2]->join(MessageWriter().put_text(rendezvous_[1]->self().endpoint).take());
  });
  while (rendezvous_[0]->newcomers() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  zero = form(0), one = form(1);
  EXPECT_EQ(zero.get().formed->roster.members.size(), 3U);
  EXPECT_EQ(one.get().formed->rank, 1);
  EXPECT_EQ(joins.get().rank, 2);
}

TEST_F(RendezvousTest, TheFirstLearnsThatTheOthersHaveGoneOnWithoutIt) {
  make(3, options());
  auto one = form(1), two = form(2);
  const Outcome first = one.get(), second = two.get();
  ASSERT_TRUE(first.formed && second.formed);
  EXPECT_EQ(first.formed->roster.members.size(), 2U);
  rendezvous_[1]->enter(first.formed->roster);
  rendezvous_[2]->enter(second.formed->roster);
  EXPECT_TRUE(form(0).get().expelled);
}

// The first may be alive behind a network that is cut.
TEST_F(RendezvousTest, HalfOfThemWithoutTheFirstDoNotGoOn) {
  make(2, options());
  EXPECT_THAT(form(1).get().too_few, HasSubstr("more than half of those that are not known to be dead"));
}

TEST_F(RendezvousTest, HalfOfThemWithTheFirstGoOn) {
  make(2, options());
  EXPECT_EQ(form(0).get().formed->roster.members.size(), 1U);
}

TEST_F(RendezvousTest, BelowTheMinimumAllLearnThatTheyStop) {
  RendezvousOptions three = options();
  three.min_workers = 3;
  make(3, three);
  rendezvous_[1].reset();
  auto zero = form(0), two = form(2);
  EXPECT_THAT(zero.get().too_few, HasSubstr("2 of 4 workers are left"));
  EXPECT_THAT(two.get().too_few, HasSubstr("2 of 4 workers are left"));
}

TEST_F(RendezvousTest, WhoNeedsNoFurtherStepNeedsNoMinimum) {
  RendezvousOptions two = options();
  two.min_workers = 2;
  make(2, two);
  rendezvous_[0].reset();
  EXPECT_EQ(form(1, true).get().formed->roster.members.size(), 1U);
}

TEST_F(RendezvousTest, ANewcomerFindsTheRunAtTheMeetingAddress) {
  make(2, options());
  Rendezvous newcomer(options(), [](const std::string&) {});
  auto joins = std::async(std::launch::async, [&] { return newcomer.join({}); });
  while (rendezvous_[0]->newcomers() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  rendezvous_[0]->end();
  EXPECT_THROW(joins.get(), Error);
}

// The leader is on another machine, and cannot listen there.
TEST_F(RendezvousTest, ANewcomerFindsTheRunThroughAnyMemberAtTheMeetingAddress) {
  RendezvousOptions elsewhere = options();
  elsewhere.meeting = "192.0.2.1:29400";
  Roster roster{1, {}};
  for (const RendezvousOptions& each : {elsewhere, options()}) {
    rendezvous_.push_back(std::make_unique<Rendezvous>(each, [](const std::string&) {}));
    roster.members.push_back(rendezvous_.back()->self());
  }
  for (const auto& each : rendezvous_) each->enter(roster);
  Rendezvous newcomer(options(), [](const std::string&) {});
  auto joins = std::async(std::launch::async, [&] { return newcomer.join({}); });
  while (rendezvous_[0]->newcomers() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  rendezvous_[0]->end();
  EXPECT_THROW(joins.get(), Error);
}

// One that comes too late, and one that has waited while the others went on.
TEST_F(RendezvousTest, ANewcomerLearnsThatTheRunIsPastItsPlace) {
  make(1, options());
  const auto past_of = [&](int64_t place) {
    return std::async(std::launch::async, [this, place]() -> std::string {
      Rendezvous newcomer(options(), [](const std::string&) {});
      newcomer.come_to(place, "");
      try {
        newcomer.join(MessageWriter().put_text(rendezvous_[0]->self().endpoint).take());
      } catch (const Passed& passed) {
        return passed.past;
      }
      return "it was let in";
    });
  };
  rendezvous_[0]->come_to(3, "what was before 3");
  EXPECT_EQ(past_of(2).get(), "what was before 3");
  auto waits = past_of(3);
  while (rendezvous_[0]->newcomers() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  rendezvous_[0]->come_to(4, "what was before 4");
  EXPECT_EQ(waits.get(), "what was before 4");
  EXPECT_EQ(rendezvous_[0]->newcomers(), 0);
}

TEST_F(RendezvousTest, AnotherVersionIsRefused) {
  make(1, options());
  RendezvousOptions other = options();
  other.version = "2";
  Rendezvous newcomer(other, [](const std::string&) {});
  try {
    newcomer.join(MessageWriter().put_text(rendezvous_[0]->self().endpoint).take());
    FAIL() << "it was let in";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
    EXPECT_THAT(error.message(), HasSubstr("it is of Lockstep 1, this worker of 2"));
  }
}

}  // namespace
}  // namespace lockstep::comm
