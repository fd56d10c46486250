// Layer and RMS normalisation on GPUs: a warp or a block a row; sums over the rows in chunks, which are then added in
// order.
#include "backends/cuda/columns.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/rows.h"
#include "ops/nn/normalize.h"

namespace lockstep::cuda {
namespace {

__device__ float inverse_root(float x) { return 1 / sqrtf(x); }
__device__ double inverse_root(double x) { return 1 / sqrt(x); }

// Products that are never fused with what is added to them: the same wherever they are made.
__device__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ double product(double a, double b) { return __dmul_rn(a, b); }

// Without beta and means: RMS normalisation.
template <bool warps, class T>
__global__ void normalize(const T* x, const T* gamma, const T* beta, Real<T> epsilon, T* y, Real<T>* means,
                          Real<T>* rstds, int64_t rows, int64_t n, bool units) {
  using C = Real<T>;
  const RowTeam<warps> team;
  for (int64_t row = team.first_row(); row < rows; row += team.row_step()) {
    const T* from = x + row * n;
    C mean = 0, squares = 0;
    if (means) {
      each_in_row(team, from, n, [&](int64_t, C v) { mean += v; });
      mean = team.sum(mean) / static_cast<C>(n);
    }
    each_in_row(team, from, n, [&](int64_t, C v) { squares += (v - mean) * (v - mean); });
    const C rstd = inverse_root(team.sum(squares) / static_cast<C>(n) + epsilon);
    if (team.rank() == 0) {
      if (means) means[row] = mean;
      rstds[row] = rstd;
    }
    if (units) {
      constexpr int kSize = RowUnit<T>::kSize;
      each_unit<3, T>(team, {from, gamma, beta ? beta : gamma}, n, [&](int64_t i, C(&v)[3][kSize]) {
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          v[0][k] = (v[0][k] - mean) * rstd * v[1][k];
          if (beta) v[0][k] += v[2][k];
        }
        Pack<T, kSize> result;
        result.set(v[0]);
        store_pack(y + row * n + i, result);
      });
      continue;
    }
    map_row(team, from, y + row * n, n, [&](int64_t i, C v) {
      const C scaled = (v - mean) * rstd * static_cast<C>(gamma[i]);
      return beta ? scaled + static_cast<C>(beta[i]) : scaled;
    });
  }
}

// dx = rstd (a - mean(a) - h mean(h a)) with a = dy gamma and h the normalised x.
template <bool warps, class T>
__global__ void gradient(const T* x, const T* gamma, const Real<T>* means, const Real<T>* rstds, const T* dy,
                         T* dx, int64_t rows, int64_t n, bool units) {
  using C = Real<T>;
  const RowTeam<warps> team;
  for (int64_t row = team.first_row(); row < rows; row += team.row_step()) {
    const T *from = x + row * n, *d = dy + row * n;
    const C mean = means ? means[row] : C(0), rstd = rstds[row];
    constexpr int kSize = RowUnit<T>::kSize;
    C sum_a = 0, sum_ha = 0;
    const auto add = [&](C v, C d, C g) {
      const C a = product(d, g);
      sum_a += a;
      sum_ha += a * (v - mean) * rstd;
    };
    if (units)
      each_unit<3, T>(team, {from, d, gamma}, n, [&](int64_t, C(&v)[3][kSize]) {
#pragma unroll
        for (int k = 0; k < kSize; ++k) add(v[0][k], v[1][k], v[2][k]);
      });
    else
      each_in_row(team, from, n,
                  [&](int64_t i, C v) { add(v, static_cast<C>(d[i]), static_cast<C>(gamma[i])); });
    const C mean_ha = team.sum(sum_ha) / static_cast<C>(n);
    const C mean_a = means ? team.sum(sum_a) / static_cast<C>(n) : C(0);
    const auto gradient_of = [&](C v, C d, C g) {
      return rstd * (product(d, g) - mean_a - (v - mean) * rstd * mean_ha);
    };
    if (units)
      each_unit<3, T>(team, {from, d, gamma}, n, [&](int64_t i, C(&v)[3][kSize]) {
#pragma unroll
        for (int k = 0; k < kSize; ++k) v[0][k] = gradient_of(v[0][k], v[1][k], v[2][k]);
        Pack<T, kSize> result;
        result.set(v[0]);
        store_pack(dx + row * n + i, result);
      });
    else
      map_row(team, from, dx + row * n, n,
              [&](int64_t i, C v) { return gradient_of(v, static_cast<C>(d[i]), static_cast<C>(gamma[i])); });
  }
}

// For a chunk of rows: the sums of dy h, and where there are means those of dy.
template <int unit, class T>
__global__ void weight_sums(const T* x, const Real<T>* means, const Real<T>* rstds, const T* dy,
                            Real<T>* sums, int64_t rows, int64_t n, int64_t chunk_rows) {
  using C = Real<T>;
  __shared__ C shared[kThreads];
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * unit;
  const int64_t first = blockIdx.y * chunk_rows, last = min(rows, first + chunk_rows);
  C along[unit] = {}, sum[unit] = {};
  if (column < n)
    for (int64_t row = first + threadIdx.y; row < last; row += blockDim.y) {
      C v[unit], d[unit];
      load_columns(x + row * n + column, v);
      load_columns(dy + row * n + column, d);
      const C mean = means ? means[row] : C(0), rstd = rstds[row];
#pragma unroll
      for (int k = 0; k < unit; ++k) {
        along[k] += d[k] * (v[k] - mean) * rstd;
        sum[k] += d[k];
      }
    }
  fold_columns(along, shared);
  if (means) fold_columns(sum, shared);
  if (threadIdx.y != 0 || column >= n) return;
  C* to = sums + blockIdx.y * (means ? 2 : 1) * n + column;
#pragma unroll
  for (int k = 0; k < unit; ++k) {
    to[k] = along[k];
    if (means) to[n + k] = sum[k];
  }
}

template <class T>
__global__ void add_chunks(const Real<T>* sums, int64_t chunks, int64_t n, T* dgamma, T* dbeta) {
  __shared__ Real<T> shared[kThreads];
  const int64_t width = dbeta ? 2 * n : n;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  Real<T> sum = 0;
  if (i < width)
    for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += blockDim.y) sum += sums[chunk * width + i];
  sum = fold_columns(sum, shared);
  if (threadIdx.y == 0 && i < width) (i < n ? dgamma[i] : dbeta[i - n]) = static_cast<T>(sum);
}

class NormBase : public Kernel {
 public:
  explicit NormBase(const KernelRequest& request)
      : centered_(&request.op == &kLayerNorm || &request.op == &kLayerNormGrad),
        dtype_(request.dtype(0)),
        epsilon_(request.attrs<LayerNormAttrs>().epsilon),
        n_(request.shape(0)[-1]),
        rows_(request.shape(0).drop_last(1).size()),
        grid_(rows_, n_) {}

 protected:
  bool centered_;
  DType dtype_;
  double epsilon_;
  int64_t n_, rows_;
  RowGrid grid_;
};

class NormKernel final : public NormBase {
 public:
  using NormBase::NormBase;
  bool in_place(int input, int output) const override { return input == 0 && output == 0; }
  void launch(const LaunchArgs& args) const override {
    if (rows_ == 0) return;
    dispatch_floats(dtype_, [&]<class T>() {
      using C = Real<T>;
      const auto* x = static_cast<const T*>(args.inputs[0]);
      const auto *gamma = static_cast<const T*>(args.inputs[1]),
                 *beta = centered_ ? static_cast<const T*>(args.inputs[2]) : nullptr;
      auto* y = static_cast<T*>(args.outputs[0]);
      C *means = centered_ ? static_cast<C*>(args.outputs[1]) : nullptr,
        *rstds = static_cast<C*>(args.outputs[centered_ ? 2 : 1]);
      const auto run = grid_.warps ? normalize<true, T> : normalize<false, T>;
      run<<<grid_.blocks, grid_.threads, 0, stream_of(args)>>>(x, gamma, beta, static_cast<C>(epsilon_), y,
                                                               means, rstds, rows_, n_,
                                                               in_units<T>(n_, {x, gamma, beta, y}));
    });
    launched();
  }
};

class NormGradKernel final : public NormBase {
 public:
  using NormBase::NormBase;

  size_t workspace_bytes() const override {
    return static_cast<size_t>(kMostChunks * (centered_ ? 2 : 1) * n_) *
           (dtype_ == DType::float64 ? sizeof(double) : sizeof(float));
  }
  bool in_place(int input, int output) const override {
    return output == 0 && (input == 0 || input == (centered_ ? 4 : 3));
  }

  void launch(const LaunchArgs& args) const override {
    dispatch_floats(dtype_, [&]<class T>() {
      using C = Real<T>;
      const cudaStream_t stream = stream_of(args);
      const auto *x = static_cast<const T*>(args.inputs[0]), *gamma = static_cast<const T*>(args.inputs[1]);
      const C* means = centered_ ? static_cast<const C*>(args.inputs[2]) : nullptr;
      const auto* rstds = static_cast<const C*>(args.inputs[centered_ ? 3 : 2]);
      const auto* dy = static_cast<const T*>(args.inputs[centered_ ? 4 : 3]);
      auto* sums = static_cast<C*>(args.workspace);
      auto* dx = static_cast<T*>(args.outputs[0]);
      // The sums come first: dx may be written over what they read.
      dispatch_unit<T>(n_, {x, dy}, [&]<int unit>() {
        const ColumnGrid grid(rows_, n_, unit, kMostChunks);
        weight_sums<unit>
            <<<grid.blocks, grid.threads, 0, stream>>>(x, means, rstds, dy, sums, rows_, n_, grid.chunk_rows);
        add_chunks<<<join_blocks(n_ * (centered_ ? 2 : 1)), join_threads(), 0, stream>>>(
            sums, grid.chunks, n_, static_cast<T*>(args.outputs[1]),
            centered_ ? static_cast<T*>(args.outputs[2]) : nullptr);
      });
      if (rows_ == 0) return;
      const auto run = grid_.warps ? gradient<true, T> : gradient<false, T>;
      run<<<grid_.blocks, grid_.threads, 0, stream>>>(x, gamma, means, rstds, dy, dx, rows_, n_,
                                                      in_units<T>(n_, {x, gamma, dy, dx}));
    });
    launched();
  }

 private:
  static constexpr int64_t kMostChunks = 256;
};

const RegisterKernel registered[] = {{DeviceKind::gpu, kLayerNorm, {.prepare = prepare<NormKernel>}},
                                     {DeviceKind::gpu, kLayerNormGrad, {.prepare = prepare<NormGradKernel>}},
                                     {DeviceKind::gpu, kRmsNorm, {.prepare = prepare<NormKernel>}},
                                     {DeviceKind::gpu, kRmsNormGrad, {.prepare = prepare<NormGradKernel>}}};

}  // namespace
}  // namespace lockstep::cuda
