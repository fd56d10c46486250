// What GPUs did between two moments, as NVIDIA's CUPTI saw it: the figures to hold Lockstep's own against.
#pragma once

#include <cstdint>

namespace lockstep::bench {

// What CUPTI looks at. Kernels of a graph, one by one, cost so much that small ones take several times as
// long as without it; graphs as a whole, from the start of the first kernel to the end of the last, hardly
// anything.
enum class Detail : uint8_t { graphs, kernels };

// Nanoseconds in which something of the kind was under way, whatever ran at the same time counted once.
struct GpuActivity {
  int64_t kernels_ns = 0;        // and graphs, where these are looked at; but for collectives
  int64_t gaps_ns = 0;           // between the kernels of one launch, where these are looked at
  int64_t communication_ns = 0;  // kernels of NCCL, while no other kernel ran
  int64_t copies_ns = 0;         // between host and device, while no kernel ran
  int64_t records = 0;           // graphs, kernels and copies
};

// Loads libcupti; one at a time. Throws Error(not_found) with the loader's words where it is not there, and
// Error(unsupported) with CUPTI's where it refuses.
class GpuActivityRecorder {
 public:
  GpuActivityRecorder();
  GpuActivityRecorder(const GpuActivityRecorder&) = delete;
  GpuActivityRecorder& operator=(const GpuActivityRecorder&) = delete;

  void start(Detail detail);
  // Since start(), or since this was called last. The devices must have done all that they were given.
  GpuActivity take();
  void stop();

 private:
  Detail detail_ = Detail::graphs;
};

}  // namespace lockstep::bench
