// Reductions on the CPU: a short chain of stages, each parallel over independent results (reduce_cpu_simd.h).
#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduce_cpu_simd.h"

namespace lockstep {
namespace {

using cpu::kReduceChunk;

// Fewer elements than this for each thread are faster on one.
constexpr int64_t kElementsPerThread = 16384;

const cpu::ReduceTable& table() {
  return cpu::pick_simd(simd_v2::kReduceTable, simd_v3::kReduceTable, simd_v4::kReduceTable);
}

DType compute_type(DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
    case DType::float16: return DType::float32;
    case DType::uint8: return DType::int32;
    default: return dtype;
  }
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// [outer, n, inner] -> [outer, chunks, inner]
struct Stage {
  int64_t outer, n, inner;
  int64_t chunks() const { return ceil_div(n, kReduceChunk); }
  int64_t results() const { return outer * chunks() * inner; }
};

// Reduced dimensions that stand side by side form one group; groups are reduced innermost first. Sizes play
// no part in the grouping, so a slice of the kept dimensions is summed in the same order as the whole.
std::vector<Stage> plan(const Shape& shape, const Dims& axes) {
  std::vector<Stage> stages;
  const auto reduced = [&](int i) { return std::count(axes.begin(), axes.end(), i) > 0; };
  int64_t inner = 1;
  int i = shape.rank() - 1;
  while (i >= 0) {
    if (!reduced(i)) {
      inner *= shape[i--];
      continue;
    }
    int64_t n = 1;
    while (i >= 0 && reduced(i)) n *= shape[i--];
    int64_t outer = 1;
    for (int k = 0; k <= i; ++k) outer *= shape[k];
    do {
      stages.push_back({outer, n, inner});
      n = stages.back().chunks();
    } while (n > 1);
  }
  if (stages.empty()) stages.push_back({1, 1, shape.size()});
  return stages;
}

class ReduceKernel final : public Kernel {
 public:
  ReduceKernel(const KernelRequest& request, cpu::ReduceKind kind)
      : stages_(plan(request.shape(0), request.attrs<ReduceAttrs>().axes)),
        kind_(kind),
        dtype_(request.dtype(0)),
        threads_(request.threads),
        outputs_(request.outputs[0].spec.shape.size()),
        empty_(request.shape(0).size() == 0) {
    const auto& reduce = table().reduce[kind];
    for (size_t i = 0; i < stages_.size(); ++i) {
      const DType in = i == 0 ? dtype_ : compute_type(dtype_);
      functions_.push_back(reduce[static_cast<size_t>(in)]);
      // A stage's results are workspace unless they are the output itself.
      const bool last = i + 1 == stages_.size() && compute_type(dtype_) == dtype_;
      const size_t bytes =
          last ? 0 : static_cast<size_t>(stages_[i].results()) * size_of(compute_type(dtype_));
      halves_[i % 2] = std::max(halves_[i % 2], (bytes + 63) / 64 * 64);
    }
  }

  size_t workspace_bytes() const override { return empty_ ? 0 : halves_[0] + halves_[1]; }

  void launch(const LaunchArgs& args) const override {
    if (empty_) return fill_neutral(args.outputs[0]);
    const bool converts = compute_type(dtype_) != dtype_;
    const void* from = args.inputs[0];
    for (size_t i = 0; i < stages_.size(); ++i) {
      void* to = static_cast<char*>(args.workspace) + (i % 2 ? halves_[0] : 0);
      if (i + 1 == stages_.size() && !converts) to = args.outputs[0];
      run(stages_[i], functions_[i], from, to);
      from = to;
    }
    if (converts) convert(from, args.outputs[0]);
  }

 private:
  void run(const Stage& s, const cpu::ReduceFunctions& f, const void* from, void* to) const {
    const int64_t elements = s.outer * s.n * s.inner;
    const int threads = static_cast<int>(std::clamp<int64_t>(elements / kElementsPerThread, 1, threads_));
    if (s.inner == 1) {
      // Boundaries between threads where four rows go together.
      parallel_for(s.outer * s.chunks(), 4, threads,
                   [&](int64_t begin, int64_t end) { f.rows(from, to, s.n, begin, end); });
    } else {
      const auto block = cpu::kReduceColumnBytes / static_cast<int64_t>(size_of(compute_type(dtype_)));
      parallel_for(s.outer * s.chunks() * ceil_div(s.inner, block), 1, threads,
                   [&](int64_t begin, int64_t end) { f.columns(from, to, s.n, s.inner, begin, end); });
    }
  }

  void convert(const void* from, void* to) const {
    switch (dtype_) {
      case DType::bfloat16: return convert_each<float, BFloat16>(from, to);
      case DType::float16: return convert_each<float, Float16>(from, to);
      default: return convert_each<int32_t, uint8_t>(from, to);
    }
  }
  template <class From, class To>
  void convert_each(const void* from, void* to) const {
    for (int64_t i = 0; i < outputs_; ++i)
      static_cast<To*>(to)[i] = static_cast<To>(static_cast<const From*>(from)[i]);
  }

  // Sums and products of nothing; extrema of nothing are refused by the shape rule.
  void fill_neutral(void* out) const {
    dispatch(dtype_, [&]<class T>() {
      const T value = static_cast<T>(kind_ == cpu::kProd ? 1.0f : 0.0f);
      std::fill_n(static_cast<T*>(out), outputs_, value);
    });
  }

  std::vector<Stage> stages_;
  std::vector<cpu::ReduceFunctions> functions_;
  cpu::ReduceKind kind_;
  DType dtype_;
  int threads_;
  int64_t outputs_;
  bool empty_;
  size_t halves_[2] = {0, 0};  // stages write the two halves of the workspace in turn
};

class ArgmaxKernel final : public Kernel {
 public:
  explicit ArgmaxKernel(const KernelRequest& request)
      : functions_(table().argmax[static_cast<size_t>(request.dtype(0))]), threads_(request.threads) {
    const Shape& shape = request.shape(0);
    const auto axis = static_cast<int>(request.attrs<ArgmaxAttrs>().axis);
    n_ = shape[axis];
    for (int i = 0; i < axis; ++i) outer_ *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) inner_ *= shape[i];
    require(n_ <= INT32_MAX, ErrorCode::unsupported, request.where, "argmax: dimension ", axis, " of ", shape,
            " has more than 2^31 - 1 elements");
  }

  void launch(const LaunchArgs& args) const override {
    auto* out = static_cast<int64_t*>(args.outputs[0]);
    const int threads =
        static_cast<int>(std::clamp<int64_t>(outer_ * n_ * inner_ / kElementsPerThread, 1, threads_));
    if (inner_ == 1)
      parallel_for(outer_, 1, threads,
                   [&](int64_t begin, int64_t end) { functions_.rows(args.inputs[0], out, n_, begin, end); });
    else
      parallel_for(outer_ * ceil_div(inner_, 16), 1, threads, [&](int64_t begin, int64_t end) {
        functions_.columns(args.inputs[0], out, n_, inner_, begin, end);
      });
  }

 private:
  cpu::ArgmaxFunctions functions_;
  int threads_;
  int64_t outer_ = 1, n_ = 1, inner_ = 1;
};

template <cpu::ReduceKind kind>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<ReduceKernel>(request, kind);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kReduceSum, {.prepare = prepare<cpu::kSum>}},
    {DeviceKind::cpu, kReduceProd, {.prepare = prepare<cpu::kProd>}},
    {DeviceKind::cpu, kReduceMax, {.prepare = prepare<cpu::kMax>}},
    {DeviceKind::cpu, kReduceMin, {.prepare = prepare<cpu::kMin>}},
    {DeviceKind::cpu, kArgmax, {.prepare = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
       return std::make_unique<ArgmaxKernel>(request);
     }}}};

}  // namespace
}  // namespace lockstep
