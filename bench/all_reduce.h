// Sums over replicas of one process: 64 MiB on each device, with nothing else to do.
#pragma once

#include <vector>

#include "bench/bench.h"

namespace lockstep::bench {

inline constexpr int64_t kReducedBytes = int64_t{64} << 20;

// The bound: every device's values read once and every device's sum written once, a plain copy of as many
// bytes by all cores.
std::vector<Candidate> all_reduce_candidates(int replicas);

}  // namespace lockstep::bench
