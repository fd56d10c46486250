// Batch normalisation on the CPU. Statistics are made block by block of rows, each of which stays in the
// first-level cache between its mean and its variance, so that x is read from memory once; blocks are then
// joined in order (Chan's formula). Blocks depend on the shape alone: so do the bits.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/nn/batch_norm.h"
#include "ops/nn/batch_norm_cpu_simd.h"

namespace lockstep {
namespace {

const cpu::BatchNormFunctions& functions(DType dtype) {
  const auto& table =
      cpu::pick_simd(simd_v2::kBatchNormTable, simd_v3::kBatchNormTable, simd_v4::kBatchNormTable);
  return dtype == DType::float64    ? table.float64
         : dtype == DType::bfloat16 ? table.bfloat16
         : dtype == DType::float16  ? table.float16
                                    : table.float32;
}

class BatchNormBase : public Kernel {
 public:
  explicit BatchNormBase(const KernelRequest& request)
      : functions_(functions(request.dtype(0))),
        dtype_(request.dtype(0)),
        element_(size_of(dtype_)),
        wide_(dtype_ == DType::float64 ? sizeof(double) : sizeof(float)),
        n_(request.shape(0)[-1]),
        rows_(request.shape(0).drop_last(1).size()) {
    constexpr int64_t kBlockElements = 4096, kMinRows = 16, kElementsPerThread = 16384;
    block_rows_ = std::max(kMinRows, kBlockElements / n_);
    blocks_ = (rows_ + block_rows_ - 1) / block_rows_;
    threads_ = static_cast<int>(std::clamp<int64_t>(rows_ * n_ / kElementsPerThread, 1, request.threads));
  }

  // The blocks' sums, and four numbers a column.
  size_t workspace_bytes() const override { return static_cast<size_t>((2 * blocks_ + 4) * n_) * wide_; }

 protected:
  int64_t rows_of(int64_t block) const { return std::min(block_rows_, rows_ - block * block_rows_); }
  // Where a block begins in a tensor like x.
  const void* at(const void* x, int64_t block) const {
    return static_cast<const char*>(x) + static_cast<size_t>(block * block_rows_ * n_) * element_;
  }
  void* at(void* x, int64_t block) const {
    return static_cast<char*>(x) + static_cast<size_t>(block * block_rows_ * n_) * element_;
  }
  template <class F>
  void each_block(F f) const {
    parallel_for(blocks_, 1, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) f(block);
    });
  }
  // A weight, element by element, in the type that is computed in.
  template <class C>
  C weight(const void* values, int64_t i) const {
    if constexpr (std::is_same_v<C, double>)
      return static_cast<const double*>(values)[i];
    else
      switch (dtype_) {
        case DType::bfloat16: return static_cast<float>(static_cast<const BFloat16*>(values)[i]);
        case DType::float16: return static_cast<float>(static_cast<const Float16*>(values)[i]);
        default: return static_cast<const float*>(values)[i];
      }
  }

  // Calls f(column, mean, variance). NaN where there are no rows, as the mean of nothing is. `sums`: two rows
  // per block.
  template <class C, class F>
  void moments(const void* x, C* sums, F f) const {
    each_block(
        [&](int64_t block) { functions_.moments(at(x, block), rows_of(block), n_, sums + block * 2 * n_); });
    for (int64_t i = 0; i < n_; ++i) {
      double count = 0, center = 0, squares = 0;
      for (int64_t block = 0; block < blocks_; ++block) {
        const auto more = static_cast<double>(rows_of(block));
        const double distance = static_cast<double>(sums[block * 2 * n_ + i]) - center;
        center += distance * more / (count + more);
        squares += static_cast<double>(sums[(block * 2 + 1) * n_ + i]) +
                   distance * distance * count * more / (count + more);
        count += more;
      }
      const double spread = squares / count;
      f(i, count > 0 ? center : spread, spread);
    }
  }
  // Calls f(column, sum of dy h, sum of dy) with h = (x - mean) rstd.
  template <class C, class F>
  void gradient_sums(const void* x, const void* dy, const void* mean, const C* rstd, C* sums, F f) const {
    each_block([&](int64_t block) {
      functions_.gradient_sums(at(x, block), at(dy, block), mean, rstd, rows_of(block), n_,
                               sums + block * 2 * n_);
    });
    for (int64_t i = 0; i < n_; ++i) {
      double along = 0, sum = 0;
      for (int64_t block = 0; block < blocks_; ++block) {
        along += static_cast<double>(sums[block * 2 * n_ + i]);
        sum += static_cast<double>(sums[(block * 2 + 1) * n_ + i]);
      }
      f(i, along, sum);
    }
  }

  const cpu::BatchNormFunctions& functions_;
  DType dtype_;
  size_t element_, wide_;
  int64_t n_, rows_, block_rows_, blocks_;
  int threads_;
};

class BatchNormKernel final : public BatchNormBase {
 public:
  explicit BatchNormKernel(const KernelRequest& request)
      : BatchNormBase(request), epsilon_(request.attrs<BatchNormAttrs>().epsilon) {}
  bool in_place(int input, int output) const override { return input == 0 && output == 0; }
  void launch(const LaunchArgs& args) const override {
    dtype_ == DType::float64 ? run<double>(args) : run<float>(args);
  }

 private:
  template <class C>
  void run(const LaunchArgs& args) const {
    auto* sums = static_cast<C*>(args.workspace);
    C *scale = sums + 2 * blocks_ * n_, *shift = scale + n_;
    auto *mean = static_cast<C*>(args.outputs[1]), *variance = static_cast<C*>(args.outputs[2]);
    moments(args.inputs[0], sums, [&](int64_t i, double center, double spread) {
      mean[i] = static_cast<C>(center);
      variance[i] = static_cast<C>(spread);
      scale[i] = static_cast<C>(1 / std::sqrt(spread + epsilon_)) * weight<C>(args.inputs[1], i);
      shift[i] = weight<C>(args.inputs[2], i);
    });
    each_block([&](int64_t block) {
      functions_.normalize(at(args.inputs[0], block), mean, scale, shift, at(args.outputs[0], block),
                           rows_of(block), n_);
    });
  }

  double epsilon_;
};

class BatchNormGradKernel final : public BatchNormBase {
 public:
  explicit BatchNormGradKernel(const KernelRequest& request)
      : BatchNormBase(request), epsilon_(request.attrs<BatchNormAttrs>().epsilon) {}
  bool in_place(int input, int output) const override { return output == 0 && (input == 0 || input == 4); }
  void launch(const LaunchArgs& args) const override {
    dtype_ == DType::float64 ? run<double>(args) : run<float>(args);
  }

 private:
  template <class C>
  void run(const LaunchArgs& args) const {
    auto* sums = static_cast<C*>(args.workspace);
    C *rstd = sums + 2 * blocks_ * n_, *scale = rstd + n_, *offset = scale + n_, *slope = offset + n_;
    const auto *mean = static_cast<const C*>(args.inputs[2]),
               *variance = static_cast<const C*>(args.inputs[3]);
    for (int64_t i = 0; i < n_; ++i)
      rstd[i] = static_cast<C>(1 / std::sqrt(static_cast<double>(variance[i]) + epsilon_));
    gradient_sums(args.inputs[0], args.inputs[4], mean, rstd, sums, [&](int64_t i, double along, double sum) {
      scale[i] = rstd[i] * weight<C>(args.inputs[1], i);
      slope[i] = static_cast<C>(along / static_cast<double>(rows_));
      offset[i] = static_cast<C>(sum / static_cast<double>(rows_));
      dispatch(dtype_, [&]<class T>() {
        static_cast<T*>(args.outputs[1])[i] = static_cast<T>(static_cast<C>(along));
        static_cast<T*>(args.outputs[2])[i] = static_cast<T>(static_cast<C>(sum));
      });
    });
    each_block([&](int64_t block) {
      functions_.gradient(at(args.inputs[0], block), at(args.inputs[4], block), mean, rstd, scale, offset,
                          slope, at(args.outputs[0], block), rows_of(block), n_);
    });
  }

  double epsilon_;
};

class BatchMomentsKernel final : public BatchNormBase {
 public:
  using BatchNormBase::BatchNormBase;
  void launch(const LaunchArgs& args) const override {
    dtype_ == DType::float64 ? run<double>(args) : run<float>(args);
  }

 private:
  template <class C>
  void run(const LaunchArgs& args) const {
    auto* sums = static_cast<C*>(args.workspace);
    moments(args.inputs[0], sums, [&](int64_t i, double center, double spread) {
      static_cast<C*>(args.outputs[0])[i] = static_cast<C>(rows_ > 0 ? center : 0);
      static_cast<C*>(args.outputs[1])[i] = static_cast<C>(rows_ > 0 ? spread : 0);
    });
  }
};

class BatchNormSumsKernel final : public BatchNormBase {
 public:
  using BatchNormBase::BatchNormBase;
  void launch(const LaunchArgs& args) const override {
    dtype_ == DType::float64 ? run<double>(args) : run<float>(args);
  }

 private:
  template <class C>
  void run(const LaunchArgs& args) const {
    auto* sums = static_cast<C*>(args.workspace);
    C* ones = sums + 2 * blocks_ * n_;
    std::fill_n(ones, n_, C(1));
    gradient_sums(args.inputs[0], args.inputs[2], args.inputs[1], ones, sums,
                  [&](int64_t i, double along, double sum) {
                    static_cast<C*>(args.outputs[0])[i] = static_cast<C>(sum);
                    static_cast<C*>(args.outputs[1])[i] = static_cast<C>(along);
                  });
  }
};

template <class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kBatchNorm, {.prepare = prepare<BatchNormKernel>, .thread_invariant = true}},
    {DeviceKind::cpu, kBatchNormGrad, {.prepare = prepare<BatchNormGradKernel>, .thread_invariant = true}},
    {DeviceKind::cpu, kBatchMoments, {.prepare = prepare<BatchMomentsKernel>, .thread_invariant = true}},
    {DeviceKind::cpu, kBatchNormSums, {.prepare = prepare<BatchNormSumsKernel>, .thread_invariant = true}}};

}  // namespace
}  // namespace lockstep
