// Counts durations in buckets whose width grows with the value, so that quantiles of any range are
// within 1/64 of the value, from a fixed piece of memory.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "lockstep/observe/run_summary.h"

namespace lockstep::observe {

// Not thread-safe. Does not allocate.
class Histogram {
 public:
  // Equal shares of `total`. Negative values count as 0.
  void add(int64_t total, int64_t shares = 1);
  // More of a value that was added before: the total and the mean grow.
  void extend(int64_t more) { total_ += more; }

  // The distribution of at least `count` values: those that were not added are 0.
  Distribution distribution(int64_t count = 0) const;

  // The smallest recorded value that at least the fraction q of all values does not exceed; 0 where
  // nothing was recorded.
  double quantile(double q) const { return quantile(q, 0); }

 private:
  // Values below 2^(kBits+1) have a bucket each; every further power of two has 2^kBits buckets.
  static constexpr int kBits = 5;
  static constexpr int kMaxExponent = 43;  // 2^43 ns are two hours; above, all share the last bucket
  static constexpr size_t kBuckets = size_t{kMaxExponent - kBits + 1} << kBits;

  double quantile(double q, int64_t zeros) const;
  static size_t bucket(uint64_t value);
  static double middle(size_t bucket);

  int64_t count_ = 0;
  int64_t total_ = 0;
  int64_t min_ = 0;
  int64_t max_ = 0;
  std::array<uint32_t, kBuckets> buckets_{};
};

}  // namespace lockstep::observe
