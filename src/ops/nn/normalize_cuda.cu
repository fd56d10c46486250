// Layer and RMS normalisation on GPUs: one warp or one block per row; sums over the rows in chunks, which are
// then added in order.
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

// A row of at most 256 * `quarters` elements in the registers of a warp, 16 bytes of every 512 a lane; its
// length is a multiple of what 16 bytes hold.
template <class T, int quarters>
struct WarpRow {
  static constexpr int kUnit = RowUnit<T>::kSize, kUnits = quarters * 256 / (kWarp * kUnit);
  using C = Real<T>;

  // f(unit, first element) for each unit of the lane that lies in the row.
  template <class F>
  static __device__ void each(int64_t n, F f) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int i = (u * kWarp + static_cast<int>(threadIdx.x % kWarp)) * kUnit;
      if (i < n) f(u, i);
    }
  }
  __device__ void load(const T* row, int64_t n) {
    each(n, [&](int u, int i) { packs[u] = load_pack<T, kUnit>(row + i); });
  }

  Pack<T, kUnit> packs[kUnits];
};

// gamma or beta in the shared memory of a block, as they are computed with; zeros without.
template <class C, class P>
__device__ void share_weights(const P* weights, C* shared, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    shared[i] = weights ? static_cast<C>(weights[i]) : C(0);
}
template <int unit, class C>
__device__ void load_shared(const C* from, C (&values)[unit]) {
  const auto pack = *reinterpret_cast<const Pack<C, unit>*>(from);
#pragma unroll
  for (int k = 0; k < unit; ++k) values[k] = pack.element[k];
}

// Blocks that run at once on a multiprocessor, of which a large GPU has 132.
template <class T>
constexpr int kNormalizeBlocks = kIs16Bit<T>      ? 4
                                 : sizeof(T) == 4 ? 2
                                                  : 1;
template <class T>
constexpr int kGradientBlocks = kIs16Bit<T> ? 2 : 1;
constexpr int64_t kProcessors = 132;

// Without beta and means: RMS normalisation. Rows are loaded one ahead.
template <int quarters, class T, class P>
__global__ void __launch_bounds__(kThreads, kNormalizeBlocks<T>)
    normalize_units(const T* x, const P* gamma, const P* beta, Real<T> epsilon, T* y, Real<T>* means,
                    Real<T>* rstds, int64_t rows, int64_t n) {
  using C = Real<T>;
  using Row = WarpRow<T, quarters>;
  constexpr int kUnit = Row::kUnit;
  __shared__ __align__(16) C gammas[RowGrid::kLongest], betas[RowGrid::kLongest];
  const RowTeam<true> team;
  Row row, next;
  int64_t at = team.first_row();
  if (at < rows) next.load(x + at * n, n);
  share_weights(gamma, gammas, n);
  share_weights(beta, betas, n);
  __syncthreads();
  for (; at < rows; at += team.row_step()) {
    row = next;
    if (at + team.row_step() < rows) next.load(x + (at + team.row_step()) * n, n);
    C mean = 0, squares = 0, v[kUnit];
    if (means) {
      Row::each(n, [&](int u, int) {
        row.packs[u].get(v);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) mean += v[k];
      });
      mean = team.sum(mean) / static_cast<C>(n);
    }
    Row::each(n, [&](int u, int) {
      row.packs[u].get(v);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) squares += (v[k] - mean) * (v[k] - mean);
    });
    const C rstd = inverse_root(team.sum(squares) / static_cast<C>(n) + epsilon);
    if (team.rank() == 0) {
      if (means) means[at] = mean;
      rstds[at] = rstd;
    }
    Row::each(n, [&](int u, int i) {
      C g[kUnit], b[kUnit];
      load_shared(gammas + i, g);
      load_shared(betas + i, b);
      row.packs[u].get(v);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) v[k] = (v[k] - mean) * rstd * g[k] + b[k];
      row.packs[u].set(v);
      store_pack(y + at * n + i, row.packs[u]);
    });
  }
}

template <bool warps, class T, class P>
__global__ void normalize(const T* x, const P* gamma, const P* beta, Real<T> epsilon, T* y, Real<T>* means,
                          Real<T>* rstds, int64_t rows, int64_t n) {
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
    map_row(team, from, y + row * n, n, [&](int64_t i, C v) {
      const C scaled = (v - mean) * rstd * static_cast<C>(gamma[i]);
      return beta ? scaled + static_cast<C>(beta[i]) : scaled;
    });
  }
}

// dx = rstd (a - mean(a) - h mean(h a)) with a = dy gamma and h the normalised x; and for the rows of this
// block the sums of dy h and, where there are means, of dy. Rows are loaded one ahead where there are
// registers for it.
template <int quarters, class T, class P>
__global__ void __launch_bounds__(kThreads, kGradientBlocks<T>)
    gradient_units(const T* x, const P* gamma, const Real<T>* means, const Real<T>* rstds, const T* dy,
                   const T* addend, T* dx, Real<T>* sums, int64_t rows, int64_t n) {
  using C = Real<T>;
  using Row = WarpRow<T, quarters>;
  constexpr int kUnit = Row::kUnit, kWarps = kThreads / kWarp;
  __shared__ __align__(16) C shared[kWarps / 2][RowGrid::kLongest];
  C* const gammas = shared[0];  // until the sums are made
  const RowTeam<true> team;
  C along[Row::kUnits][kUnit] = {}, sum[Row::kUnits][kUnit] = {};
  constexpr bool kAhead = quarters < 4 && sizeof(T) < 8;
  Row x_row, dy_row, next_x, next_dy;
  int64_t at = team.first_row();
  const auto load_next = [&](int64_t row) {
    if (row < rows) next_x.load(x + row * n, n), next_dy.load(dy + row * n, n);
  };
  if (kAhead) load_next(at);
  share_weights(gamma, gammas, n);
  __syncthreads();
  for (; at < rows; at += team.row_step()) {
    if (!kAhead) load_next(at);
    x_row = next_x, dy_row = next_dy;
    if (kAhead) load_next(at + team.row_step());
    Row added;
    if (addend) added.load(addend + at * n, n);
    const C mean = means ? means[at] : C(0), rstd = rstds[at];
    C sum_a = 0, sum_ha = 0, v[kUnit], d[kUnit], g[kUnit];
    Row::each(n, [&](int u, int i) {
      x_row.packs[u].get(v);
      dy_row.packs[u].get(d);
      load_shared(gammas + i, g);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        const C h = (v[k] - mean) * rstd, a = d[k] * g[k];
        along[u][k] += d[k] * h;
        sum[u][k] += d[k];
        sum_a += a;
        sum_ha += a * h;
      }
    });
    const C mean_ha = team.sum(sum_ha) / static_cast<C>(n);
    const C mean_a = means ? team.sum(sum_a) / static_cast<C>(n) : C(0);
    Row::each(n, [&](int u, int i) {
      x_row.packs[u].get(v);
      dy_row.packs[u].get(d);
      load_shared(gammas + i, g);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) v[k] = rstd * (d[k] * g[k] - mean_a - (v[k] - mean) * rstd * mean_ha);
      if (addend) {
        added.packs[u].get(d);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) v[k] += d[k];
      }
      x_row.packs[u].set(v);
      store_pack(dx + at * n + i, x_row.packs[u]);
    });
  }
  // The warps' sums: half of the warps hand theirs to the other half until one is left.
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const auto leave = [&](C(&part)[Row::kUnits][kUnit], C* to) {
    for (int half = kWarps / 2; half > 0; half /= 2) {
      __syncthreads();
      if (warp >= half && warp < 2 * half)
        Row::each(n, [&](int u, int i) {
#pragma unroll
          for (int k = 0; k < kUnit; ++k) shared[warp - half][i + k] = part[u][k];
        });
      __syncthreads();
      if (warp < half)
        Row::each(n, [&](int u, int i) {
#pragma unroll
          for (int k = 0; k < kUnit; ++k) part[u][k] += shared[warp][i + k];
        });
    }
    if (warp == 0)
      Row::each(n, [&](int u, int i) {
#pragma unroll
        for (int k = 0; k < kUnit; ++k) to[i + k] = part[u][k];
      });
  };
  leave(along, sums + blockIdx.x * (means ? 2 : 1) * n);
  if (means) leave(sum, sums + (blockIdx.x * 2 + 1) * n);
}

template <bool warps, class T, class P>
__global__ void gradient(const T* x, const P* gamma, const Real<T>* means, const Real<T>* rstds, const T* dy,
                         const T* addend, T* dx, int64_t rows, int64_t n) {
  using C = Real<T>;
  const RowTeam<warps> team;
  for (int64_t row = team.first_row(); row < rows; row += team.row_step()) {
    const T *from = x + row * n, *d = dy + row * n;
    const C mean = means ? means[row] : C(0), rstd = rstds[row];
    C sum_a = 0, sum_ha = 0;
    each_in_row(team, from, n, [&](int64_t i, C v) {
      const C a = product(static_cast<C>(d[i]), static_cast<C>(gamma[i]));
      sum_a += a;
      sum_ha += a * (v - mean) * rstd;
    });
    const C mean_ha = team.sum(sum_ha) / static_cast<C>(n);
    const C mean_a = means ? team.sum(sum_a) / static_cast<C>(n) : C(0);
    map_row(team, from, dx + row * n, n, [&](int64_t i, C v) {
      return rstd *
             (product(static_cast<C>(d[i]), static_cast<C>(gamma[i])) - mean_a - (v - mean) * rstd * mean_ha);
    });
  }
}

// For a chunk of rows: the sums of dy h, and where there are means those of dy.
template <int unit, class T>
__global__ void weight_sums(const T* x, const Real<T>* means, const Real<T>* rstds, const T* dy,
                            Real<T>* sums, int64_t rows, int64_t n, int64_t chunk_rows) {
  using C = Real<T>;
  __shared__ C shared[2][kThreads * unit];
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
  fold_columns<kThreads>(along, shared[0], Add());
  if (means) fold_columns<kThreads>(sum, shared[1], Add());
  each_column<unit>(blockIdx.x, n, [&](int own, int64_t i) {
    C* const to = sums + blockIdx.y * (means ? 2 : 1) * n + i;
    to[0] = folded_column<kThreads, unit>(shared[0], own, Add());
    if (means) to[n] = folded_column<kThreads, unit>(shared[1], own, Add());
  });
}

template <class C, class P>
__global__ void add_chunks(const C* sums, int64_t chunks, int64_t n, P* dgamma, P* dbeta) {
  __shared__ C shared[kThreads];
  const int64_t width = dbeta ? 2 * n : n;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  C sum = 0;
  C values[kChunksPerThread];
  load_chunks(sums + i, width, i < width ? chunks : 0, values);
#pragma unroll
  for (int k = 0; k < kChunksPerThread; ++k) sum += values[k];
  sum = sum_column(sum, shared);
  if (threadIdx.y == 0 && i < width) (i < n ? dgamma[i] : dbeta[i - n]) = static_cast<P>(sum);
}

// f.operator()<quarters>() for rows of n elements.
template <class F>
void dispatch_quarters(int64_t n, F f) {
  n <= 256 ? f.template operator()<1>() : n <= 768 ? f.template operator()<3>() : f.template operator()<4>();
}

class NormBase : public Kernel {
 public:
  explicit NormBase(const KernelRequest& request)
      : centered_(&request.op == &kLayerNorm || &request.op == &kLayerNormGrad),
        dtype_(request.dtype(0)),
        wide_weights_(request.dtype(1) != request.dtype(0)),
        addend_(request.attrs<LayerNormAttrs>().addend),
        epsilon_(request.attrs<LayerNormAttrs>().epsilon),
        n_(request.shape(0)[-1]),
        rows_(request.shape(0).drop_last(1).size()),
        grid_(rows_, n_) {}

 protected:
  // f.operator()<T, P>() with the types of x and of the weights.
  template <class F>
  void each_type(F f) const {
    dispatch_floats(dtype_, [&]<class T>() {
      if constexpr (kIs16Bit<T>)
        if (wide_weights_) return f.template operator()<T, float>();
      f.template operator()<T, T>();
    });
    launched();
  }

  bool centered_;
  DType dtype_;
  bool wide_weights_, addend_;
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
    each_type([&]<class T, class P>() {
      using C = Real<T>;
      const auto* x = static_cast<const T*>(args.inputs[0]);
      const auto *gamma = static_cast<const P*>(args.inputs[1]),
                 *beta = centered_ ? static_cast<const P*>(args.inputs[2]) : nullptr;
      auto* y = static_cast<T*>(args.outputs[0]);
      C *means = centered_ ? static_cast<C*>(args.outputs[1]) : nullptr,
        *rstds = static_cast<C*>(args.outputs[centered_ ? 2 : 1]);
      if (grid_.warps && in_units<T>(n_, {x, y}))
        return dispatch_quarters(n_, [&]<int quarters>() {
          const auto blocks =
              static_cast<unsigned>(std::min<int64_t>(grid_.blocks, kNormalizeBlocks<T> * kProcessors));
          normalize_units<quarters><<<blocks, kThreads, 0, stream_of(args)>>>(
              x, gamma, beta, static_cast<C>(epsilon_), y, means, rstds, rows_, n_);
        });
      const auto run = grid_.warps ? normalize<true, T, P> : normalize<false, T, P>;
      run<<<grid_.blocks, grid_.threads, 0, stream_of(args)>>>(x, gamma, beta, static_cast<C>(epsilon_), y,
                                                               means, rstds, rows_, n_);
    });
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
    return output == 0 && (input == 0 || input >= (centered_ ? 4 : 3));
  }

  void launch(const LaunchArgs& args) const override {
    each_type([&]<class T, class P>() {
      using C = Real<T>;
      const cudaStream_t stream = stream_of(args);
      const auto* x = static_cast<const T*>(args.inputs[0]);
      const auto* gamma = static_cast<const P*>(args.inputs[1]);
      const C* means = centered_ ? static_cast<const C*>(args.inputs[2]) : nullptr;
      const auto* rstds = static_cast<const C*>(args.inputs[centered_ ? 3 : 2]);
      const auto* dy = static_cast<const T*>(args.inputs[centered_ ? 4 : 3]);
      const T* addend = addend_ ? static_cast<const T*>(args.inputs[centered_ ? 5 : 4]) : nullptr;
      auto* sums = static_cast<C*>(args.workspace);
      auto* dx = static_cast<T*>(args.outputs[0]);
      const auto add = [&](int64_t chunks) {
        add_chunks<<<join_blocks(n_ * (centered_ ? 2 : 1)), join_threads(), 0, stream>>>(
            sums, chunks, n_, static_cast<P*>(args.outputs[1]),
            centered_ ? static_cast<P*>(args.outputs[2]) : nullptr);
      };
      if (rows_ > 0 && grid_.warps && in_units<T>(n_, {x, dy, addend, dx})) {
        const auto blocks =
            static_cast<unsigned>(std::min<int64_t>(grid_.blocks, kGradientBlocks<T> * kProcessors));
        dispatch_quarters(n_, [&]<int quarters>() {
          gradient_units<quarters>
              <<<blocks, kThreads, 0, stream>>>(x, gamma, means, rstds, dy, addend, dx, sums, rows_, n_);
        });
        return add(blocks);
      }
      // The sums come first: dx may be written over what they read.
      dispatch_unit<T>(n_, {x, dy}, [&]<int unit>() {
        const ColumnGrid grid(rows_, n_, unit, kMostChunks);
        weight_sums<unit>
            <<<grid.blocks, grid.threads, 0, stream>>>(x, means, rstds, dy, sums, rows_, n_, grid.chunk_rows);
        add(grid.chunks);
      });
      if (rows_ == 0) return;
      const auto run = grid_.warps ? gradient<true, T, P> : gradient<false, T, P>;
      run<<<grid_.blocks, grid_.threads, 0, stream>>>(x, gamma, means, rstds, dy, addend, dx, rows_, n_);
    });
  }
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu,
     kLayerNorm,
     {.prepare = prepare<NormKernel>, .narrow_inputs = 0b1, .narrow_outputs = 0b1}},
    {DeviceKind::gpu,
     kLayerNormGrad,
     {.prepare = prepare<NormGradKernel>, .narrow_inputs = 0b110001, .narrow_outputs = 0b1}},
    {DeviceKind::gpu,
     kRmsNorm,
     {.prepare = prepare<NormKernel>, .narrow_inputs = 0b1, .narrow_outputs = 0b1}},
    {DeviceKind::gpu,
     kRmsNormGrad,
     {.prepare = prepare<NormGradKernel>, .narrow_inputs = 0b11001, .narrow_outputs = 0b1}}};

}  // namespace
}  // namespace lockstep::cuda
