#include "backends/cuda/tf32x3_plan.h"

#include <algorithm>
#include <limits>

#include "backends/cuda/check.h"

namespace lockstep::cuda::tf32x3 {
namespace {

struct Kind {
  Tiles tiles;
  int64_t resident;  // blocks of a multiprocessor at the same time
  double us;  // for kPlanDepth of the inner dimension, where that many are resident, for all of them together
  double begin_us;  // before the first product of a block
};
// Measured on an H200.
constexpr Kind kKinds[] = {
    {Tiles::warp_groups, 1, 1.2, 3.0}, {Tiles::large, 1, 1.95, 3.0}, {Tiles::small, 4, 2.2, 3.0}};

constexpr double kAddLaunchUs = 2.5, kAddBytesPerUs = 2.5e6;
constexpr size_t kMostWorkspace = size_t{64} << 20;

}  // namespace

Gpu this_gpu() {
  int ordinal = 0, major = 0;
  Gpu gpu;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&gpu.processors, cudaDevAttrMultiProcessorCount, ordinal),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal), "cudaDeviceGetAttribute");
  gpu.warp_groups = major == 9;
  return gpu;
}

Plan make_plan(const ProductSize& size, const Gpu& gpu) {
  const int depths = (size.k + kPlanDepth - 1) / kPlanDepth;
  Plan best;
  double least = std::numeric_limits<double>::infinity();
  for (const Kind& kind : kKinds) {
    if (kind.tiles == Tiles::warp_groups && !gpu.warp_groups) continue;
    for (int parts = 1; parts <= std::min(depths, 256); parts += std::max(1, parts / 4)) {
      Plan plan{.kind = kind.tiles, .parts = parts, .share = 0};
      const int own = (depths + parts - 1) / parts;
      plan.share = own * kPlanDepth;
      plan.parts = (depths + own - 1) / own;
      if (plan.workspace_bytes(size) > kMostWorkspace) break;
      const int64_t blocks = plan.tiles(size) * plan.parts * size.batches;
      const int64_t at_once = kind.resident * gpu.processors;
      // In the last round fewer blocks may share a multiprocessor, and are done sooner.
      const int64_t rounds = blocks / at_once,
                    rest = (blocks % at_once + gpu.processors - 1) / gpu.processors;
      const double full = own * kind.us + kind.begin_us;
      double us = static_cast<double>(rounds) * full;
      if (rest > 0)
        us += own * kind.us * std::max(0.5, static_cast<double>(rest) / static_cast<double>(kind.resident)) +
              kind.begin_us;
      if (plan.parts > 1)
        us += kAddLaunchUs + static_cast<double>(plan.workspace_bytes(size)) * 2 / kAddBytesPerUs;
      if (us < least) least = us, best = plan;
    }
  }
  return best;
}

}  // namespace lockstep::cuda::tf32x3
