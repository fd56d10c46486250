// Pooling on the CPU: own loops. oneDNN's max pooling loses NaN and minus infinity.
#include <algorithm>

#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/nn/pool.h"
#include "ops/nn/pool_cpu_simd.h"

namespace lockstep {
namespace {

using cpu::PoolAxis;
using cpu::PoolGeometry;
using cpu::PoolLoop;
using cpu::PoolLoops;
using cpu::PoolMemory;

PoolLoops pool_loops(DType dtype, DType positions) {
  static const cpu::PoolTable& table =
      cpu::pick_simd(simd_v2::kPoolTable, simd_v3::kPoolTable, simd_v4::kPoolTable);
  const cpu::PoolFunctions& functions = dtype == DType::float32    ? table.float32
                                        : dtype == DType::float64  ? table.float64
                                        : dtype == DType::bfloat16 ? table.bfloat16
                                                                   : table.float16;
  return positions == DType::uint8 ? functions.bytes : functions.words;
}

PoolAxis pool_axis(const Window& window, int axis) {
  PoolAxis a{.input = window.input[axis],
             .size = window.size[axis],
             .stride = window.strides[axis],
             .before = window.before[axis],
             .output = window.output(axis),
             .over = {},
             .inside = {}};
  for (int64_t row = 0; row < a.input; ++row) {
    const int64_t padded_row = row + a.before;
    const int64_t first = padded_row < a.size ? 0 : (padded_row - a.size) / a.stride + 1;
    const int64_t last = std::min(padded_row / a.stride, a.output - 1);
    a.over.push_back({first, std::max<int64_t>(last - first + 1, 0), padded_row - first * a.stride});
  }
  for (int64_t o = 0; o < a.output; ++o) {
    const int64_t start = o * a.stride - a.before;
    a.inside.push_back(std::min(a.size, a.input - start) - std::max<int64_t>(-start, 0));
  }
  return a;
}

// Where a kernel's positions are: among its inputs, its outputs, or nowhere.
enum class Positions { none, input, output };

class PoolKernel final : public Kernel {
 public:
  PoolKernel(const KernelRequest& request, PoolLoop PoolLoops::*loop, PoolLoop PoolLoops::*loop_apart,
             Positions positions)
      : geometry_{.rows = pool_axis(request.attrs<PoolAttrs>().window, 0),
                  .columns = pool_axis(request.attrs<PoolAttrs>().window, 1),
                  .channels = request.shape(0)[3]},
        positions_(positions),
        threads_(request.threads) {
    const bool apart = loop_apart && !geometry_.windows_overlap();
    const DType position_dtype = positions == Positions::input    ? request.dtype(1)
                                 : positions == Positions::output ? request.outputs[1].spec.dtype
                                                                  : DType::uint8;
    loop_ = pool_loops(request.dtype(0), position_dtype).*(apart ? loop_apart : loop);
    // Loops from dy to dx whose windows lie apart run over the rows of dy, all others over those of the
    // result.
    const Shape& rows_of = apart ? request.shape(0) : request.outputs[0].spec.shape;
    rows_ = rows_of.size() == 0 ? 0 : rows_of[0] * rows_of[1];
    // Of images or their gradients, whichever is larger. Few are over before a second thread would start.
    constexpr int64_t kElementsPerThread = 16384;
    const int64_t elements = std::max(request.shape(0).size(), request.outputs[0].spec.shape.size());
    threads_ = static_cast<int>(std::clamp<int64_t>(elements / kElementsPerThread, 1, threads_));
  }

  void launch(const LaunchArgs& args) const override {
    const PoolMemory memory{.from = args.inputs[0],
                            .to = args.outputs[0],
                            .positions = positions_ == Positions::input    ? args.inputs[1]
                                         : positions_ == Positions::output ? args.outputs[1]
                                                                           : nullptr};
    parallel_for(rows_, 1, threads_,
                 [&](int64_t begin, int64_t end) { loop_(geometry_, memory, begin, end); });
  }

 private:
  PoolGeometry geometry_;
  Positions positions_;
  int threads_;
  PoolLoop loop_;
  int64_t rows_;
};

template <PoolLoop PoolLoops::*loop, PoolLoop PoolLoops::*loop_apart, Positions positions>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<PoolKernel>(request, loop, loop_apart, positions);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu,
     kMaxPool2d,
     {.prepare = prepare<&PoolLoops::max, nullptr, Positions::output>, .thread_invariant = true}},
    {DeviceKind::cpu,
     kMaxPool2dGrad,
     {.prepare = prepare<&PoolLoops::max_grad, &PoolLoops::max_grad_apart, Positions::input>,
      .thread_invariant = true}},
    {DeviceKind::cpu,
     kMaxPool2dGather,
     {.prepare = prepare<&PoolLoops::max_gather, nullptr, Positions::input>, .thread_invariant = true}},
    {DeviceKind::cpu,
     kAvgPool2d,
     {.prepare = prepare<&PoolLoops::avg, nullptr, Positions::none>, .thread_invariant = true}},
    {DeviceKind::cpu,
     kAvgPool2dGrad,
     {.prepare = prepare<&PoolLoops::avg_grad, &PoolLoops::avg_grad_apart, Positions::none>,
      .thread_invariant = true}},
};

}  // namespace
}  // namespace lockstep
