// What GPUs did between two moments, as NVIDIA's CUPTI saw it: the figures to hold Lockstep's own against.
#pragma once

#include <cstdint>

namespace lockstep::bench {

// Nanoseconds in which something of the kind was under way, whatever ran at the same time counted once.
struct GpuActivity {
  int64_t kernels_ns = 0;        // but for those of collectives
  int64_t communication_ns = 0;  // kernels of NCCL, while no other kernel ran
  int64_t copies_ns = 0;         // between host and device, while no kernel ran
  int64_t records = 0;           // kernels and copies
};

// Loads libcupti; one at a time. Throws Error(not_found) with the loader's words where it is not there, and Error(unsupported)
// with CUPTI's where it refuses.
class GpuActivityRecorder {
 public:
  GpuActivityRecorder();
  GpuActivityRecorder(const GpuActivityRecorder&) = delete;
  GpuActivityRecorder& operator=(const GpuActivityRecorder&) = delete;

  void start();
  // The devices must have done all that they were given.
  GpuActivity stop();
};

}  // namespace lockstep::bench
