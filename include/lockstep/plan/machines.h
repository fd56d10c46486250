// Devices and links by name, as their makers describe them: what a forecast knows of machines that are not
// there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tensor/dtype.h"

namespace lockstep::plan {

// A way between two devices, in one direction.
struct Link {
  std::string name = {};
  double bytes_per_s = 0;    // what an all-reduce achieves of it
  double latency_s = 0;      // of a message, with what the software adds
  std::string source = {};   // of the nominal rate
  std::string assumed = {};  // what of it nobody has measured; empty: nothing
};

// "nvlink4", or a link of your own: "name=GBps:latency_us", whose rate is taken as it is. Throws
// Error(invalid_argument) that lists the names.
Link find_link(std::string_view text);
const std::vector<Link>& links();

// A GPU's ceilings.
struct Gpu {
  std::string name = {};
  double float32_flops = 0;   // per second, without TF32
  double bfloat16_flops = 0;  // tensor cores, dense; float16 too
  double bytes_per_s = 0;     // of its memory
  double memory_bytes = 0;
  std::string link = {};  // to the others of its node
  std::string source = {};

  double flops(DType dtype) const;
};
Gpu find_gpu(std::string_view name);
const std::vector<Gpu>& gpus();

// The part of its ceilings that a GPU reaches. The figures are those of ResNet-50 and GPT-2 on an H200
// (docs/benchmarks.md).
struct Achieved {
  double matmul = 0.70;
  double convolution = 0.40;
  double memory = 0.75;
  double launch_s = 0.6e-6;  // between two launches of a captured graph
};

}  // namespace lockstep::plan
