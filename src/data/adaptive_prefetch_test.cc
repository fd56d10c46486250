#include "data/adaptive_prefetch.h"

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

struct Costs {
  int64_t prefetched, when_asked;
};

// So many batches, of which each takes what its kind costs; how many of them were prefetched.
class Batches {
 public:
  int ask(AdaptivePrefetch& prefetch, int count, Costs costs) {
    int prefetched = 0;
    for (int i = 0; i < count; ++i) {
      prefetches_ = prefetch.prefetches_next(now_ns_);
      prefetched += prefetches_ ? 1 : 0;
      // Now and then something else happens: an epoch's end, another program.
      const int64_t more = ++seen_ % 7 == 0 ? 5'000'000 : 0;
      now_ns_ += (prefetches_ ? costs.prefetched : costs.when_asked) + more;
    }
    return prefetched;
  }

 private:
  int64_t now_ns_ = 1'000'000'000'000;
  int seen_ = 0;
  bool prefetches_ = false;
};

constexpr int kTrial = AdaptivePrefetch::kStages * AdaptivePrefetch::kStageBatches;
constexpr int kKept = AdaptivePrefetch::kKeptBatches;

TEST(AdaptivePrefetch, TriesBothAndKeepsTheFasterOne) {
  for (const bool prefetch_is_faster : {true, false}) {
    const Costs costs = prefetch_is_faster ? Costs{80'000, 90'000} : Costs{90'000, 80'000};
    AdaptivePrefetch prefetch;
    Batches batches;
    const int tried = batches.ask(prefetch, kTrial, costs);
    EXPECT_GT(tried, kTrial / 3);
    EXPECT_LT(tried, 2 * kTrial / 3);
    EXPECT_EQ(batches.ask(prefetch, kKept / 2, costs), prefetch_is_faster ? kKept / 2 : 0);
  }
}

TEST(AdaptivePrefetch, LeavesACoreIdleWhereThatCostsNothing) {
  AdaptivePrefetch prefetch;
  Batches batches;
  batches.ask(prefetch, kTrial, {80'000, 80'100});
  EXPECT_EQ(batches.ask(prefetch, kKept / 2, {80'000, 80'100}), 0);
}

TEST(AdaptivePrefetch, IsTriedAgainWhenTheMachineHasChanged) {
  AdaptivePrefetch prefetch;
  Batches batches;
  batches.ask(prefetch, kTrial, {80'000, 90'000});
  EXPECT_EQ(batches.ask(prefetch, kKept / 2, {80'000, 90'000}), kKept / 2);
  batches.ask(prefetch, kKept / 2 + kTrial, {99'000, 90'000});
  EXPECT_EQ(batches.ask(prefetch, kKept / 2, {99'000, 90'000}), 0);
  // As often as it is kept and tried, trials are two of a hundred.
  const int prefetched = batches.ask(prefetch, 10 * (kKept + kTrial), {99'000, 90'000});
  EXPECT_LT(prefetched, 10 * kTrial);
  EXPECT_GT(prefetched, 10 * kTrial / 3);
}

}  // namespace
}  // namespace lockstep::data
