// Softmax and cross entropy on the CPU: parallel over rows.
#include <algorithm>
#include <cmath>

#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/array/lookup.h"
#include "ops/nn/cross_entropy.h"
#include "ops/nn/softmax.h"
#include "ops/nn/softmax_cpu_simd.h"

namespace lockstep {
namespace {

using cpu::Labels;

const cpu::SoftmaxFunctions& functions(DType dtype) {
  const auto& table = cpu::pick_simd(simd_v2::kSoftmaxTable, simd_v3::kSoftmaxTable, simd_v4::kSoftmaxTable);
  switch (dtype) {
    case DType::float64: return table.float64;
    case DType::bfloat16: return table.bfloat16;
    case DType::float16: return table.float16;
    default: return table.float32;
  }
}

// What all four kernels share: rows of logits, spread over threads.
class RowKernel : public Kernel {
 public:
  explicit RowKernel(const KernelRequest& request)
      : functions_(functions(request.dtype(0))),
        n_(request.shape(0)[-1]),
        rows_(request.shape(0).drop_last(1).size()),
        threads_(request.threads) {}

 protected:
  template <class F>
  void each_rows(F&& f) const {
    constexpr int64_t kElementsPerThread = 8192;
    if (n_ == 0) return;
    const int threads = static_cast<int>(std::clamp<int64_t>(rows_ * n_ / kElementsPerThread, 1, threads_));
    parallel_for(rows_, 1, threads, f);
  }

  const cpu::SoftmaxFunctions& functions_;
  int64_t n_, rows_;

 private:
  int threads_;
};

template <bool log>
class SoftmaxKernel final : public RowKernel {
 public:
  using RowKernel::RowKernel;
  bool in_place(int, int) const override { return true; }
  void launch(const LaunchArgs& args) const override {
    const auto run = log ? functions_.log_softmax : functions_.softmax;
    each_rows([&](int64_t begin, int64_t end) { run(args.inputs[0], args.outputs[0], n_, begin, end); });
  }
};

class LabelKernel : public RowKernel {
 public:
  explicit LabelKernel(const KernelRequest& request)
      : RowKernel(request),
        wide_(request.dtype(1) == DType::int64),
        label_shape_(request.shape(1)),
        where_(request.where) {}

 protected:
  Labels labels(const LaunchArgs& args) const { return {args.inputs[1], wide_}; }

  void check(const Labels& labels) const {
    for (int64_t i = 0; i < rows_; ++i)
      if (labels[i] < 0 || labels[i] >= n_) [[unlikely]]
        refuse(i, labels[i]);
  }

 private:
  [[noreturn]] void refuse(int64_t index, int64_t label) const {
    Dims position = Dims::filled(label_shape_.rank(), 0);
    for (int d = label_shape_.rank() - 1; d >= 0; --d) {
      position[d] = index % label_shape_[d];
      index /= label_shape_[d];
    }
    fail(ErrorCode::invalid_argument, where_, "sparse_softmax_cross_entropy: the label at position ",
         position, " is ", index_text(label), ", but there are ", n_, " classes: labels run from 0 to ",
         n_ - 1);
  }

  bool wide_;
  Shape label_shape_;
  std::source_location where_;
};

class CrossEntropyKernel final : public LabelKernel {
 public:
  using LabelKernel::LabelKernel;
  void launch(const LaunchArgs& args) const override {
    const Labels classes = labels(args);
    check(classes);
    each_rows([&](int64_t begin, int64_t end) {
      functions_.cross_entropy(args.inputs[0], classes, args.outputs[0], args.outputs[1], n_, begin, end);
    });
  }
};

class CrossEntropyGradKernel final : public LabelKernel {
 public:
  using LabelKernel::LabelKernel;
  bool in_place(int input, int) const override { return input == 0; }
  void launch(const LaunchArgs& args) const override {
    const Labels classes = labels(args);
    check(classes);
    each_rows([&](int64_t begin, int64_t end) {
      functions_.cross_entropy_grad(args.inputs[0], classes, args.inputs[2], args.inputs[3], args.outputs[0],
                                    n_, begin, end);
    });
  }
};

template <class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kSoftmax, {.prepare = prepare<SoftmaxKernel<false>>}},
    {DeviceKind::cpu, kLogSoftmax, {.prepare = prepare<SoftmaxKernel<true>>}},
    {DeviceKind::cpu, kSparseCrossEntropy, {.prepare = prepare<CrossEntropyKernel>}},
    {DeviceKind::cpu, kSparseCrossEntropyGrad, {.prepare = prepare<CrossEntropyGradKernel>}}};

}  // namespace
}  // namespace lockstep
