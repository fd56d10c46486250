#include "data/adaptive_prefetch.h"

#include <algorithm>

namespace lockstep::data {
namespace {

// A core that is left idle is worth something: prefetch has to save more than 1%.
constexpr double kWorthwhile = 0.99;

}  // namespace

bool AdaptivePrefetch::prefetches_next(int64_t now_ns) {
  if (stage_ == kStages) {
    if (++batches_ <= kKeptBatches) return kept_;
    stage_ = batches_ = 0;
    best_ = {};
  }
  // The interval that ends now belongs to the answer before. A stage's first answer ends the interval of the
  // stage before, and the interval behind it is a mixture: a batch of one kind, and the work on the next one
  // of the other kind.
  if (batches_ > 1) taken_[static_cast<size_t>(batches_ - 2)] = now_ns - last_ns_;
  last_ns_ = now_ns;
  if (batches_++ == kStageBatches) end_stage();
  return stage_ == kStages ? kept_ : stage_prefetches();
}

void AdaptivePrefetch::end_stage() {
  // The median: what a callback or another program takes now and then is in few of them.
  const auto middle = taken_.begin() + taken_.size() / 2;
  std::nth_element(taken_.begin(), middle, taken_.end());
  int64_t& best = best_[stage_prefetches() ? 1 : 0];
  best = best == 0 ? *middle : std::min(best, *middle);
  if (++stage_ == kStages)
    kept_ = static_cast<double>(best_[1]) < kWorthwhile * static_cast<double>(best_[0]);
  batches_ = stage_ == kStages ? 0 : 1;
}

}  // namespace lockstep::data
