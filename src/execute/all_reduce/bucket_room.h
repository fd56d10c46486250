// How many bytes a bucket of sums on GPUs may take: for the executor, and for forecasts of what it will do
// (src/plan).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace lockstep::execute {

// At most: a bucket's bytes should take longer than what is done around them. At least: else every bucket is
// half of what is left, so that the last one, which nothing overlaps, is a small one.
inline constexpr int64_t kMostBucketBytes = 16 << 20, kLeastBucketBytes = 1 << 20;

// The bytes that go into a bucket that is begun when `left` bytes of the phase's sums are in none yet.
// `asked`: ReplicaOptions::bucket_bytes.
inline int64_t bucket_room(int64_t asked, int64_t left) {
  if (asked == 0) return std::numeric_limits<int64_t>::max();
  return asked > 0 ? asked : std::clamp(left / 2, kLeastBucketBytes, kMostBucketBytes);
}

}  // namespace lockstep::execute
