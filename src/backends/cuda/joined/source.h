// A schedule as CUDA C.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/joined/schedule.h"

namespace lockstep::cuda::joined {

inline constexpr const char* kJoinedKernel = "joined";

// The kernel's one argument is a struct of 64-bit words: a pointer for each external buffer, one for each op that reports
// findings, the memory of the kernel's own, its two counters, 128 bytes apart and 0 before the first launch, and how often
// to run the program.
struct Source {
  std::string text;
  int64_t scratch_bytes = 0;
  int64_t shared_bytes = 0;    // dynamic, of a block
  int64_t most_tasks = 0;      // of a level: more blocks have nothing to do
  std::vector<int> reporters;  // ops, in the order of their pointers
};

Source make_source(const Program& program, const Schedule& schedule);

}  // namespace lockstep::cuda::joined
