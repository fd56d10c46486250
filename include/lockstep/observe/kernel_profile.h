// Which kernels a step's time goes into, from a trace of a few steps (span.h).
//
//   observe::start_tracing();
//   for (int i = 0; i < 3; ++i) step(x, y);
//   observe::stop_tracing();
//   std::cout << to_text(observe::kernel_profile(observe::take_trace()), {.steps = 3});
//
// While tracing, launches on a GPU are made one by one and timed there. A step that is replayed as a captured
// graph runs some of them side by side: the sum over all kernels is what it would take one after the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/observe/span.h"

namespace lockstep::observe {

// All launches of one name: an op with the shape of its result and the layer that it belongs to.
struct KernelTime {
  std::string name;
  int64_t calls = 0;
  int64_t total_ns = 0;
  double flops = 0;       // of all calls
  double half_flops = 0;  // of them, on 16-bit floats, which GPUs compute on tensor cores
  double bytes = 0;       // read and written, each element once
};

// The time that its operations take at these rates; those on 16-bit floats at the first one where the
// second is 0.
double seconds_at(const KernelTime& kernel, double flops_per_second, double half_flops_per_second);

// The one that takes longest first.
std::vector<KernelTime> kernel_profile(const Trace& trace);

// Steps of the first replica that a trace holds.
int steps_in(const Trace& trace);

struct KernelProfileOptions {
  int steps = 1;                // in the trace: times are given for one
  size_t rows = 40;             // of the table; the rest is one line
  double flops_per_second = 0;  // what the device can do, for the column of floors; 0: not known
  double bytes_per_second = 0;
};
// A table by op, and one by op, shape and layer: time, share, TFLOP/s, GB/s and the floor: the time that the
// operations or the bytes would take at the device's rates.
std::string to_text(const std::vector<KernelTime>& profile, const KernelProfileOptions& options = {});

}  // namespace lockstep::observe
