// Layer and RMS normalisation on the CPU: parallel over blocks of rows; float64 in plain code.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/cpu/simd.h"
#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/nn/normalize.h"
#include "ops/nn/normalize_cpu_simd.h"

namespace lockstep {
namespace {

// Without beta and means: RMS normalisation.
void forward64(const double* x, const double* gamma, const double* beta, double epsilon, double* y,
               double* means, double* rstds, int64_t n, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const double* v = x + row * n;
    double sum = 0, squares = 0;
    if (means)
      for (int64_t i = 0; i < n; ++i) sum += v[i];
    const double mean = sum / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) squares += (v[i] - mean) * (v[i] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(n) + epsilon);
    if (means) means[row] = mean;
    rstds[row] = rstd;
    for (int64_t i = 0; i < n; ++i) y[row * n + i] = (v[i] - mean) * rstd * gamma[i] + (beta ? beta[i] : 0.0);
  }
}

void backward64(const double* x, const double* gamma, const double* mean, const double* rstd,
                const double* dy, double* dx, double* sums, int64_t n, int64_t begin, int64_t end) {
  std::fill_n(sums, mean ? 2 * n : n, 0.0);
  for (int64_t row = begin; row < end; ++row) {
    double sum_a = 0, sum_ha = 0;
    const double center = mean ? mean[row] : 0.0;
    const auto h = [&](int64_t i) { return (x[row * n + i] - center) * rstd[row]; };
    for (int64_t i = 0; i < n; ++i) {
      const double d = dy[row * n + i];
      sum_a += d * gamma[i];
      sum_ha += d * gamma[i] * h(i);
      sums[i] += d * h(i);
      if (mean) sums[n + i] += d;
    }
    const double mean_a = mean ? sum_a / static_cast<double>(n) : 0.0,
                 mean_ha = sum_ha / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      const double a = dy[row * n + i] * gamma[i];
      dx[row * n + i] = rstd[row] * (a - mean_a - h(i) * mean_ha);
    }
  }
}

bool is_centered(const OpDef& op) { return &op == &kLayerNorm || &op == &kLayerNormGrad; }

const cpu::LayerNormFunctions& functions(DType dtype, bool centered) {
  const auto& table =
      cpu::pick_simd(simd_v2::kLayerNormTable, simd_v3::kLayerNormTable, simd_v4::kLayerNormTable);
  const cpu::NormFunctions& norms = dtype == DType::bfloat16  ? table.bfloat16
                                    : dtype == DType::float16 ? table.float16
                                                              : table.float32;
  return centered ? norms.layer : norms.rms;
}

class LayerNormBase : public Kernel {
 public:
  explicit LayerNormBase(const KernelRequest& request)
      : centered_(is_centered(request.op)),
        functions_(functions(request.dtype(0), centered_)),
        dtype_(request.dtype(0)),
        epsilon_(request.attrs<LayerNormAttrs>().epsilon),
        n_(request.shape(0)[-1]),
        rows_(request.shape(0).drop_last(1).size()) {
    constexpr int64_t kElementsPerThread = 8192;
    threads_ = static_cast<int>(std::clamp<int64_t>(rows_ * n_ / kElementsPerThread, 1, request.threads));
  }

 protected:
  bool centered_;
  const cpu::LayerNormFunctions& functions_;
  DType dtype_;
  double epsilon_;
  int64_t n_, rows_;
  int threads_ = 1;
};

class LayerNormKernel final : public LayerNormBase {
 public:
  using LayerNormBase::LayerNormBase;
  bool in_place(int input, int output) const override { return input == 0 && output == 0; }
  void launch(const LaunchArgs& args) const override {
    void* const* in = args.inputs;
    void* const* out = args.outputs;
    void *beta = centered_ ? in[2] : nullptr, *means = centered_ ? out[1] : nullptr,
         *rstds = out[centered_ ? 2 : 1];
    parallel_for(rows_, 1, threads_, [&](int64_t begin, int64_t end) {
      if (dtype_ == DType::float64)
        forward64(static_cast<const double*>(in[0]), static_cast<const double*>(in[1]),
                  static_cast<const double*>(beta), epsilon_, static_cast<double*>(out[0]),
                  static_cast<double*>(means), static_cast<double*>(rstds), n_, begin, end);
      else
        functions_.forward(in[0], in[1], beta, static_cast<float>(epsilon_), out[0],
                           static_cast<float*>(means), static_cast<float*>(rstds), n_, begin, end);
    });
  }
};

// Sums over the rows are made block by block, then the blocks are added in order: blocks depend on the number
// of rows alone, so the bits do not depend on threads.
class LayerNormGradKernel final : public LayerNormBase {
 public:
  explicit LayerNormGradKernel(const KernelRequest& request) : LayerNormBase(request) {
    constexpr int64_t kMinRows = 32, kMaxBlocks = 256;
    block_rows_ = std::max(kMinRows, (rows_ + kMaxBlocks - 1) / kMaxBlocks);
    blocks_ = (rows_ + block_rows_ - 1) / block_rows_;
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(std::max<int64_t>(blocks_, 1) * sums_width()) *
           (dtype_ == DType::float64 ? sizeof(double) : sizeof(float));
  }
  bool in_place(int input, int output) const override {
    return output == 0 && (input == 0 || input == (centered_ ? 4 : 3));
  }

  void launch(const LaunchArgs& args) const override {
    if (dtype_ == DType::float64) return run<double>(args);
    run<float>(args);
  }

 private:
  int64_t sums_width() const { return centered_ ? 2 * n_ : n_; }

  template <class C>
  void run(const LaunchArgs& args) const {
    void* const* in = args.inputs;
    auto* sums = static_cast<C*>(args.workspace);
    const int64_t width = sums_width();
    if (blocks_ == 0) std::fill_n(sums, width, C(0));
    parallel_for(blocks_, 1, threads_, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * block_rows_, last = std::min(rows_, first + block_rows_);
        const auto* mean = centered_ ? static_cast<const C*>(in[2]) : nullptr;
        const auto* rstd = static_cast<const C*>(in[centered_ ? 3 : 2]);
        const void* dy = in[centered_ ? 4 : 3];
        if constexpr (std::is_same_v<C, double>)
          backward64(static_cast<const double*>(in[0]), static_cast<const double*>(in[1]), mean, rstd,
                     static_cast<const double*>(dy), static_cast<double*>(args.outputs[0]),
                     sums + block * width, n_, first, last);
        else
          functions_.backward(in[0], in[1], mean, rstd, dy, args.outputs[0], sums + block * width, n_, first,
                              last);
      }
    });
    for (int64_t block = 1; block < blocks_; ++block)
      for (int64_t i = 0; i < width; ++i) sums[i] += sums[block * width + i];
    for (int output = 1; output <= (centered_ ? 2 : 1); ++output)
      dispatch(dtype_, [&]<class T>() {
        const C* from = sums + (output - 1) * n_;
        for (int64_t i = 0; i < n_; ++i) static_cast<T*>(args.outputs[output])[i] = static_cast<T>(from[i]);
      });
  }

  int64_t block_rows_ = 1, blocks_ = 0;
};

template <class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kLayerNorm, {.prepare = prepare<LayerNormKernel>}},
    {DeviceKind::cpu, kLayerNormGrad, {.prepare = prepare<LayerNormGradKernel>}},
    {DeviceKind::cpu, kRmsNorm, {.prepare = prepare<LayerNormKernel>}},
    {DeviceKind::cpu, kRmsNormGrad, {.prepare = prepare<LayerNormGradKernel>}}};

}  // namespace
}  // namespace lockstep
