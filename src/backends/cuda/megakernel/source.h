// A schedule as CUDA C.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/megakernel/schedule.h"

namespace lockstep::cuda::megakernel {

inline constexpr const char* kEntryPoint = "megakernel";

// The kernel's one argument is a struct of 64-bit words: a pointer for each external buffer, one for each op
// that defers errors, the memory of the kernel's own, its two counters (128 bytes apart, 0 before the first
// launch), how often to run the program, and, where every run takes the next rows of arrays: the order of the
// rows (null: as they lie), the first of them, memory for the rows of two runs (null: the program runs on the
// parameters as they are), and the array of each parameter.
struct Source {
  std::string text;
  int64_t scratch_bytes = 0;
  int64_t shared_bytes = 0;    // dynamic, of a block
  int64_t most_tasks = 0;      // of a level: more blocks have nothing to do, but for fetching rows
  int threads = 0;             // of a block
  std::vector<int> reporters;  // ops, in the order of their pointers

  struct Rows {
    int external = 0;
    int parameter = 0;
    int64_t bytes = 0;  // of one run
  };
  std::vector<Rows> rows;    // parameters, in the order of their arrays; empty: they have no rows in common
  int64_t row_count = 0;     // of a run
  int64_t staged_bytes = 0;  // for the rows of two runs
};

// `parameters`: what the program is given.
Source make_source(const OpGraph& graph, const Schedule& schedule, std::span<const TensorSpec> parameters);

}  // namespace lockstep::cuda::megakernel
