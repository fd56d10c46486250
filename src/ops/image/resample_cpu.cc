// Resampling on the CPU: every row of the result is a weighted sum of a few rows of the operand, always in
// the same order.
#include <algorithm>
#include <type_traits>

#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/image/resample.h"

namespace lockstep {
namespace {

struct Term {
  int64_t row;
  double weight;
};

// For each row of the result, the terms of its sum.
std::vector<std::vector<Term>> terms_of(const KernelRequest& request) {
  const auto& attrs = request.attrs<ResampleAttrs>();
  const bool forward = &request.op == &kResample;
  std::vector<std::vector<Term>> terms(static_cast<size_t>(forward ? attrs.output : attrs.input));
  const auto add = [&](int64_t x, int64_t y, double weight) {
    if (weight != 0) terms[static_cast<size_t>(forward ? y : x)].push_back({forward ? x : y, weight});
  };
  int64_t y = 0;
  for (const ResampleTap& tap : resample_taps(attrs)) {
    add(tap.low, y, 1 - tap.weight);
    add(tap.high, y, tap.weight);
    ++y;
  }
  return terms;
}

class ResampleKernel final : public Kernel {
 public:
  explicit ResampleKernel(const KernelRequest& request)
      : terms_(terms_of(request)), dtype_(request.dtype(0)), threads_(request.threads) {
    const Shape& from = request.shape(0);
    const int axis = request.attrs<ResampleAttrs>().axis;
    from_rows_ = from[axis];
    outer_ = from.first(axis).size();
    inner_ = 1;
    for (int i = axis + 1; i < from.rank(); ++i) inner_ *= from[i];
    constexpr int64_t kElementsPerThread = 16384;
    const int64_t elements = std::max(from.size(), request.outputs[0].spec.shape.size());
    threads_ = static_cast<int>(std::clamp<int64_t>(elements / kElementsPerThread, 1, threads_));
  }

  void launch(const LaunchArgs& args) const override {
    switch (dtype_) {
      case DType::float64: return run<double>(args);
      case DType::bfloat16: return run<BFloat16>(args);
      case DType::float16: return run<Float16>(args);
      default: return run<float>(args);
    }
  }

 private:
  template <class T>
  void run(const LaunchArgs& args) const {
    using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const auto rows = static_cast<int64_t>(terms_.size());
    parallel_for(outer_ * rows, 1, threads_, [&](int64_t begin, int64_t end) {
      constexpr int64_t kChunk = 256;
      for (int64_t i = begin; i < end; ++i) {
        const T* from = static_cast<const T*>(args.inputs[0]) + i / rows * from_rows_ * inner_;
        T* to = static_cast<T*>(args.outputs[0]) + i * inner_;
        for (int64_t first = 0; first < inner_; first += kChunk) {
          const int64_t count = std::min(kChunk, inner_ - first);
          Real sum[kChunk] = {};
          for (const Term& term : terms_[static_cast<size_t>(i % rows)]) {
            const T* row = from + term.row * inner_ + first;
            const Real weight = static_cast<Real>(term.weight);
            for (int64_t j = 0; j < count; ++j) sum[j] += weight * static_cast<Real>(row[j]);
          }
          for (int64_t j = 0; j < count; ++j) to[first + j] = static_cast<T>(sum[j]);
        }
      }
    });
  }

  std::vector<std::vector<Term>> terms_;
  DType dtype_;
  int threads_;
  int64_t outer_, from_rows_, inner_;
};

std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<ResampleKernel>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kResample, {.prepare = prepare, .thread_invariant = true}},
    {DeviceKind::cpu, kResampleGrad, {.prepare = prepare, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
