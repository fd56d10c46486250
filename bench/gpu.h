// The works that run on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/bench.h"

namespace lockstep::bench {

// One training step of Dense 784-128-10 with Adam on the first GPU, compiled, on the same batch every time: once from
// the card's memory, once from the host's. Empty where there is no GPU.
std::vector<Candidate> gpu_mlp_candidates(int64_t batch);

}  // namespace lockstep::bench
