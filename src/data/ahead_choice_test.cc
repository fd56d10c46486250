#include "data/ahead_choice.h"

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

struct Costs {
  int64_t ahead, when_asked;
};

// So many batches, of which each takes what its kind costs; how many of them were gathered ahead.
class Batches {
 public:
  int ask(AheadChoice& choice, int count, Costs costs) {
    int ahead = 0;
    for (int i = 0; i < count; ++i) {
      ahead_ = choice.ahead(now_ns_);
      ahead += ahead_ ? 1 : 0;
      // Now and then something else happens: an epoch's end, another program.
      const int64_t more = ++seen_ % 7 == 0 ? 5'000'000 : 0;
      now_ns_ += (ahead_ ? costs.ahead : costs.when_asked) + more;
    }
    return ahead;
  }

 private:
  int64_t now_ns_ = 1'000'000'000'000;
  int seen_ = 0;
  bool ahead_ = false;
};

constexpr int kTrial = AheadChoice::kStages * AheadChoice::kStageBatches;
constexpr int kKept = AheadChoice::kKeptBatches;

TEST(AheadChoice, TriesBothAndKeepsTheFasterOne) {
  for (const bool ahead_is_faster : {true, false}) {
    const Costs costs = ahead_is_faster ? Costs{80'000, 90'000} : Costs{90'000, 80'000};
    AheadChoice choice;
    Batches batches;
    const int tried = batches.ask(choice, kTrial, costs);
    EXPECT_GT(tried, kTrial / 3);
    EXPECT_LT(tried, 2 * kTrial / 3);
    EXPECT_EQ(batches.ask(choice, kKept / 2, costs), ahead_is_faster ? kKept / 2 : 0);
  }
}

TEST(AheadChoice, ACoreIsLeftIdleWhereThatCostsNothing) {
  AheadChoice choice;
  Batches batches;
  batches.ask(choice, kTrial, {80'000, 80'100});
  EXPECT_EQ(batches.ask(choice, kKept / 2, {80'000, 80'100}), 0);
}

TEST(AheadChoice, IsTriedAgainWhenTheMachineHasChanged) {
  AheadChoice choice;
  Batches batches;
  batches.ask(choice, kTrial, {80'000, 90'000});
  EXPECT_EQ(batches.ask(choice, kKept / 2, {80'000, 90'000}), kKept / 2);
  batches.ask(choice, kKept / 2 + kTrial, {99'000, 90'000});
  EXPECT_EQ(batches.ask(choice, kKept / 2, {99'000, 90'000}), 0);
  // As often as it is kept and tried, trials are two of a hundred.
  const int ahead = batches.ask(choice, 10 * (kKept + kTrial), {99'000, 90'000});
  EXPECT_LT(ahead, 10 * kTrial);
  EXPECT_GT(ahead, 10 * kTrial / 3);
}

}  // namespace
}  // namespace lockstep::data
