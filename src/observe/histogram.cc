#include "observe/histogram.h"

#include <algorithm>
#include <cmath>

namespace lockstep::observe {

size_t Histogram::bucket(uint64_t value) {
  value = std::min(value, (uint64_t{1} << kMaxExponent) - 1);
  // The kBits bits after the leading one choose the bucket within its power of two.
  const int shift = std::max(0, static_cast<int>(std::bit_width(value)) - 1 - kBits);
  return (static_cast<size_t>(shift) << kBits) + static_cast<size_t>(value >> shift);
}

double Histogram::middle(size_t bucket) {
  if (bucket < (size_t{2} << kBits)) return static_cast<double>(bucket);
  const size_t shift = (bucket >> kBits) - 1;
  const uint64_t low = (bucket - (shift << kBits)) << shift;
  return static_cast<double>(low) + (static_cast<double>(uint64_t{1} << shift) - 1) / 2;
}

void Histogram::add(int64_t total, int64_t shares) {
  total = std::max<int64_t>(total, 0);
  const int64_t value = total / shares;
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = std::max(max_, value);
  total_ += total;
  count_ += shares;
  buckets_[bucket(static_cast<uint64_t>(value))] += static_cast<uint32_t>(shares);
}

double Histogram::quantile(double q, int64_t zeros) const {
  const int64_t count = count_ + zeros;
  if (count == 0) return 0;
  const auto rank =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(q * static_cast<double>(count))), 1, count);
  int64_t seen = zeros;
  if (seen >= rank) return 0;
  size_t b = 0;
  while ((seen += buckets_[b]) < rank) ++b;
  return std::clamp(middle(b), static_cast<double>(min_), static_cast<double>(max_));
}

Distribution Histogram::distribution(int64_t count) const {
  const int64_t zeros = std::max<int64_t>(0, count - count_), all = count_ + zeros;
  const double mean = all == 0 ? 0.0 : static_cast<double>(total_) / static_cast<double>(all);
  return {all, total_, max_, mean, quantile(0.5, zeros), quantile(0.95, zeros), quantile(0.1, zeros)};
}

}  // namespace lockstep::observe
