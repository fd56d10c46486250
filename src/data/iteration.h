// How often a dataset was iterated over: what makes one pass's random choices differ from the next one's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace lockstep::data {

// Copies count together.
class Iterations {
 public:
  int64_t count() const { return count_->load(); }
  // Later ones get higher numbers than this one.
  void seen(int64_t iteration) const {
    int64_t count = count_->load();
    while (count <= iteration && !count_->compare_exchange_weak(count, iteration + 1)) {
    }
  }
  // Later ones count on from this one, however many there were: it is gone on with in place of those.
  void gone_on_with(int64_t iteration) const { count_->store(iteration + 1); }

 private:
  std::shared_ptr<std::atomic<int64_t>> count_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace lockstep::data
