// Resampling on the CPU.
#include <algorithm>

#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/image/resample.h"
#include "ops/image/resample_cpu_simd.h"

namespace lockstep {
namespace {

using cpu::kResampleLanes;
using cpu::ResampleFunctions;
using cpu::ResampleGeometry;

ResampleFunctions functions_of(DType dtype) {
  static const cpu::ResampleTable& table =
      cpu::pick_simd(simd_v2::kResampleTable, simd_v3::kResampleTable, simd_v4::kResampleTable);
  switch (dtype) {
    case DType::float64: return table.float64;
    case DType::bfloat16: return table.bfloat16;
    case DType::float16: return table.float16;
    default: return table.float32;
  }
}

ResampleGeometry geometry_of(const KernelRequest& request) {
  const auto& attrs = request.attrs<ResampleAttrs>();
  const Shape& from = request.shape(0);
  ResampleGeometry g{.outer = from.first(attrs.axis).size(), .from_rows = from[attrs.axis]};
  for (int i = attrs.axis + 1; i < from.rank(); ++i) g.inner *= from[i];

  const bool forward = &request.op == &kResample;
  std::vector<std::vector<cpu::ResampleTerm>> terms(
      static_cast<size_t>(forward ? attrs.output : attrs.input));
  const auto add = [&](int64_t x, int64_t y, double weight) {
    if (weight != 0)
      terms[static_cast<size_t>(forward ? y : x)].push_back(
          {forward ? x : y, weight, static_cast<float>(weight)});
  };
  int64_t y = 0;
  for (const ResampleTap& tap : resample_taps(attrs)) {
    add(tap.low, y, 1 - tap.weight);
    add(tap.high, y, tap.weight);
    ++y;
  }
  for (const auto& of_row : terms) {
    g.first_term.push_back(static_cast<int64_t>(g.terms.size()));
    g.terms.insert(g.terms.end(), of_row.begin(), of_row.end());
  }
  g.first_term.push_back(static_cast<int64_t>(g.terms.size()));
  return g;
}

class ResampleKernel final : public Kernel {
 public:
  explicit ResampleKernel(const KernelRequest& request)
      : geometry_(geometry_of(request)), functions_(functions_of(request.dtype(0))) {
    constexpr int64_t kElementsPerThread = 16384;
    const int64_t elements = std::max(request.shape(0).size(), request.outputs[0].spec.shape.size());
    threads_ = static_cast<int>(std::clamp<int64_t>(elements / kElementsPerThread, 1, request.threads));
    if (geometry_.inner < kResampleLanes) {
      const size_t number = request.dtype(0) == DType::float64 ? sizeof(double) : sizeof(float);
      scratch_bytes_ = static_cast<size_t>(geometry_.from_rows * geometry_.inner * kResampleLanes) * number;
    }
  }

  size_t workspace_bytes() const override { return scratch_bytes_ * static_cast<size_t>(threads_); }

  void launch(const LaunchArgs& args) const override {
    const void* from = args.inputs[0];
    void* to = args.outputs[0];
    if (geometry_.inner >= kResampleLanes) {
      parallel_for(geometry_.outer * geometry_.rows(), 1, threads_,
                   [&](int64_t begin, int64_t end) { functions_.rows(geometry_, from, to, begin, end); });
      return;
    }
    const int64_t outer = geometry_.outer, groups = (outer + kResampleLanes - 1) / kResampleLanes;
    parallel(threads_, [&](int thread) {
      const int64_t begin = groups * thread / threads_ * kResampleLanes,
                    end = groups * (thread + 1) / threads_ * kResampleLanes;
      functions_.short_rows(
          geometry_, from, to, begin, std::min(end, outer),
          static_cast<char*>(args.workspace) + static_cast<size_t>(thread) * scratch_bytes_);
    });
  }

 private:
  ResampleGeometry geometry_;
  ResampleFunctions functions_;
  int threads_;
  size_t scratch_bytes_ = 0;  // of a thread
};

std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<ResampleKernel>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kResample, {.prepare = prepare, .thread_invariant = true}},
    {DeviceKind::cpu, kResampleGrad, {.prepare = prepare, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
