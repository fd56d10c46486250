// Batch normalisation on GPUs. Statistics are made chunk by chunk of rows and joined in order (Chan's
// formula); chunks depend on the shape alone: so do the bits.
#include "backends/cuda/columns.h"
#include "backends/cuda/launch.h"
#include "ops/nn/batch_norm.h"

namespace lockstep::cuda {
namespace {

// Never contracted, as in the elementwise pass whose sign they tell.
__device__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }
__device__ float rounded_sum(float a, float b) { return __fadd_rn(a, b); }
__device__ double rounded_sum(double a, double b) { return __dadd_rn(a, b); }

// Blocks of passes that leave sums: as many as run at once on a large GPU (132 multiprocessors), so that none
// is left to run alone.
constexpr int64_t kProcessors = 132;
constexpr int kMomentsEach = 4;  // on a multiprocessor

// A chunk's mean and sum of squared distances from it.
template <int unit, class T>
__global__ void __launch_bounds__(kThreads, kMomentsEach)
    moments(const T* x, Real<T>* sums, int64_t rows, int64_t n, int64_t chunk_rows) {
  using C = Real<T>;
  __shared__ C shared[2][kThreads * unit];
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * unit;
  const int64_t first = blockIdx.y * chunk_rows, last = min(rows, first + chunk_rows);
  // Sums of distances from an element of the column: these do not cancel as sums of the elements would.
  C sum[unit] = {}, squares[unit] = {};
  if (column < n && first < last) {
    const auto start = load_pack<T, unit>(x + first * n + column);
    each_row<4>(first, last, [&]<int rows>(int64_t row) {
      Pack<T, unit> packs[rows];  // narrow until they are used: more of them fit
#pragma unroll
      for (int r = 0; r < rows; ++r) packs[r] = load_pack<T, unit>(x + (row + r * blockDim.y) * n + column);
      C center[unit];
      start.get(center);  // not before: nobody is to wait for it alone
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        C v[unit];
        packs[r].get(v);
#pragma unroll
        for (int k = 0; k < unit; ++k) {
          const C distance = v[k] - center[k];
          sum[k] += distance;
          squares[k] += distance * distance;
        }
      }
    });
  }
  fold_columns<kThreads>(sum, shared[0], Add());
  fold_columns<kThreads>(squares, shared[1], Add());
  each_column<unit>(blockIdx.x, first < last ? n : 0, [&](int own, int64_t i) {
    const C total = folded_column<kThreads, unit>(shared[0], own, Add());
    const C mean = total / static_cast<C>(last - first);
    sums[blockIdx.y * 2 * n + i] = static_cast<C>(x[first * n + i]) + mean;
    sums[(blockIdx.y * 2 + 1) * n + i] =
        max(folded_column<kThreads, unit>(shared[1], own, Add()) - total * mean, C(0));
  });
}

// `gamma` and `scale`: null where nobody needs the factor.
template <class T>
__global__ void join_moments(const Real<T>* sums, int64_t chunks, int64_t chunk_rows, int64_t rows, int64_t n,
                             double epsilon, const T* gamma, Real<T>* means, Real<T>* variances,
                             Real<T>* scale) {
  using C = Real<T>;
  __shared__ double shared[kThreads];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t used = i < n && rows > 0 ? chunks : 0;
  C centers[kChunksPerThread], distances[kChunksPerThread];
  load_chunks(sums + i, 2 * n, used, centers);
  load_chunks(sums + n + i, 2 * n, used, distances);
  const auto rows_of = [&](int k) {
    const int64_t chunk = threadIdx.y + static_cast<int64_t>(k) * blockDim.y;
    return chunk >= used ? 0.0
                         : static_cast<double>(chunk + 1 == chunks ? rows - chunk * chunk_rows : chunk_rows);
  };
  double center = 0, squares = 0;
#pragma unroll
  for (int k = 0; k < kChunksPerThread; ++k) center += static_cast<double>(centers[k]) * rows_of(k);
  // NaN where there are no rows, as the mean of nothing is.
  center = sum_column(center, shared) / static_cast<double>(rows);
#pragma unroll
  for (int k = 0; k < kChunksPerThread; ++k) {
    const double distance = static_cast<double>(centers[k]) - center, more = rows_of(k);
    if (more > 0) squares += static_cast<double>(distances[k]) + distance * distance * more;
  }
  squares = sum_column(squares, shared);
  if (threadIdx.y != 0 || i >= n) return;
  const double variance = squares / static_cast<double>(rows);
  means[i] = static_cast<C>(center);
  variances[i] = static_cast<C>(variance);
  if (scale) scale[i] = static_cast<C>(1 / sqrt(variance + epsilon)) * static_cast<C>(gamma[i]);
}

// A thread keeps to its columns, `unit` of them.
template <int unit, class T>
__global__ void normalize(const T* x, const Real<T>* mean, const Real<T>* scale, const T* shift, T* y,
                          int64_t rows, int64_t n, int64_t chunk_rows) {
  using C = Real<T>;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * unit;
  if (column >= n) return;
  C m[unit], s[unit], b[unit];
#pragma unroll
  for (int k = 0; k < unit; ++k)
    m[k] = mean[column + k], s[k] = scale[column + k], b[k] = static_cast<C>(shift[column + k]);
  const int64_t first = blockIdx.y * chunk_rows, last = min(rows, first + chunk_rows);
  for (int64_t row = first + threadIdx.y; row < last; row += blockDim.y) {
    C v[unit];
    load_columns(x + row * n + column, v);
#pragma unroll
    for (int k = 0; k < unit; ++k) v[k] = (v[k] - m[k]) * s[k] + b[k];
    store_columns(y + row * n + column, v);
  }
}

using Dy = BatchNormSumsAttrs::Dy;

// What the sums of a gradient are made of; what a kind of dy does not need is null.
template <class T>
struct SumsOperands {
  const T *x, *dy;
  const Real<T>* mean;
  const Real<T>*factor = nullptr, *shift = nullptr;  // masked
  const T *more = nullptr, *y = nullptr;             // joined
  T* joined = nullptr;
};
template <Dy kind>
constexpr int kSumsEach = kind == Dy::as_is ? 3 : 2;  // blocks on a multiprocessor

// For a chunk of rows: the sums of dy (x - mean) and of dy.
template <Dy kind, int unit, class T>
__global__ void __launch_bounds__(kThreads, kSumsEach<kind>)
    gradient_sums(SumsOperands<T> in, Real<T>* sums, int64_t rows, int64_t n, int64_t chunk_rows) {
  using C = Real<T>;
  using Packed = Pack<T, unit>;
  constexpr int kRows = kind == Dy::as_is ? 4 : kind == Dy::masked ? 6 : 3;  // as registers allow
  __shared__ C shared[2][kThreads * unit];
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * unit;
  const int64_t first = blockIdx.y * chunk_rows, last = min(rows, first + chunk_rows);
  C along[unit] = {}, sum[unit] = {};
  if (column < n) {
    C mean[unit], factor[unit] = {}, shift[unit] = {};
#pragma unroll
    for (int k = 0; k < unit; ++k) {
      mean[k] = in.mean[column + k];
      if constexpr (kind == Dy::masked) factor[k] = in.factor[column + k], shift[k] = in.shift[column + k];
    }
    each_row<kRows>(first, last, [&]<int rows>(int64_t row) {
      Packed xs[rows], dys[rows];
      [[maybe_unused]] Packed mores[rows], ys[rows];  // by kind
      const auto place = [&](int r) { return (row + r * blockDim.y) * n + column; };
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        xs[r] = load_pack<T, unit>(in.x + place(r));
        dys[r] = load_pack<T, unit>(in.dy + place(r));
        if constexpr (kind == Dy::joined) {
          mores[r] = load_pack<T, unit>(in.more + place(r));
          ys[r] = load_pack<T, unit>(in.y + place(r));
        }
      }
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        C v[unit], d[unit];
        xs[r].get(v);
        dys[r].get(d);
        if constexpr (kind == Dy::joined) {
          C more[unit], y[unit];
          mores[r].get(more);
          ys[r].get(y);
#pragma unroll
          for (int k = 0; k < unit; ++k) d[k] = y[k] > 0 ? d[k] + more[k] : C(0);
          dys[r].set(d);
          store_pack(in.joined + place(r), dys[r]);
          dys[r].get(d);  // as others read it
        }
#pragma unroll
        for (int k = 0; k < unit; ++k) {
          if constexpr (kind == Dy::masked)
            d[k] = rounded_sum(rounded_product(v[k], factor[k]), shift[k]) > 0 ? d[k] : C(0);
          along[k] += d[k] * (v[k] - mean[k]);
          sum[k] += d[k];
        }
      }
    });
  }
  fold_columns<kThreads>(along, shared[0], Add());
  fold_columns<kThreads>(sum, shared[1], Add());
  each_column<unit>(blockIdx.x, n, [&](int own, int64_t i) {
    sums[blockIdx.y * 2 * n + i] = folded_column<kThreads, unit>(shared[0], own, Add());
    sums[(blockIdx.y * 2 + 1) * n + i] = folded_column<kThreads, unit>(shared[1], own, Add());
  });
}

// Sums of the chunks' `along` and `sum` of column i, in the threads with threadIdx.y == 0.
template <class C>
__device__ void add_chunks(const C* sums, int64_t chunks, int64_t n, int64_t i, double& along, double& sum) {
  __shared__ double shared[kThreads];
  along = sum = 0;
  C alongs[kChunksPerThread], sums_of[kChunksPerThread];
  load_chunks(sums + i, 2 * n, i < n ? chunks : 0, alongs);
  load_chunks(sums + n + i, 2 * n, i < n ? chunks : 0, sums_of);
#pragma unroll
  for (int k = 0; k < kChunksPerThread; ++k) {
    along += static_cast<double>(alongs[k]);
    sum += static_cast<double>(sums_of[k]);
  }
  along = sum_column(along, shared);
  sum = sum_column(sum, shared);
}

template <class C>
__global__ void join_sums(const C* sums, int64_t chunks, int64_t n, C* sum_of, C* along_of) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  double along, sum;
  add_chunks(sums, chunks, n, i, along, sum);
  if (threadIdx.y != 0 || i >= n) return;
  sum_of[i] = static_cast<C>(sum);
  along_of[i] = static_cast<C>(along);
}

// What dx = scale ((dy - offset) - (x - mean) slope) needs, in columns[0], [1] and [2].
template <class T>
__global__ void join_gradients(const Real<T>* sums, int64_t chunks, int64_t rows, int64_t n, double epsilon,
                               const T* gamma, const Real<T>* variances, T* dgamma, T* dbeta,
                               Real<T>* columns) {
  using C = Real<T>;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  double along, sum;
  add_chunks(sums, chunks, n, i, along, sum);
  if (threadIdx.y != 0 || i >= n) return;
  const double rstd = 1 / sqrt(static_cast<double>(variances[i]) + epsilon);
  dgamma[i] = static_cast<T>(rows > 0 ? static_cast<C>(along * rstd) : C(0));
  dbeta[i] = static_cast<T>(static_cast<C>(sum));
  columns[i] = static_cast<C>(rstd) * static_cast<C>(gamma[i]);
  columns[n + i] = static_cast<C>(sum / static_cast<double>(rows));
  columns[2 * n + i] = static_cast<C>(along * rstd * rstd / static_cast<double>(rows));
}

template <int unit, class T>
__global__ void gradient(const T* x, const T* dy, const Real<T>* means, const Real<T>* columns, T* dx,
                         int64_t rows, int64_t n, int64_t chunk_rows) {
  using C = Real<T>;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * unit;
  if (column >= n) return;
  C mean[unit], scale[unit], offset[unit], slope[unit];
#pragma unroll
  for (int k = 0; k < unit; ++k) {
    mean[k] = means[column + k], scale[k] = columns[column + k];
    offset[k] = columns[n + column + k], slope[k] = columns[2 * n + column + k];
  }
  const int64_t first = blockIdx.y * chunk_rows, last = min(rows, first + chunk_rows);
  for (int64_t row = first + threadIdx.y; row < last; row += blockDim.y) {
    C v[unit], d[unit];
    load_columns(x + row * n + column, v);
    load_columns(dy + row * n + column, d);
#pragma unroll
    for (int k = 0; k < unit; ++k) v[k] = scale[k] * ((d[k] - offset[k]) - (v[k] - mean[k]) * slope[k]);
    store_columns(dx + row * n + column, v);
  }
}

class BatchNormBase : public Kernel {
 public:
  explicit BatchNormBase(const KernelRequest& request)
      : dtype_(request.dtype(0)), n_(request.shape(0)[-1]), rows_(request.shape(0).drop_last(1).size()) {}

  // The chunks' sums, and three numbers a column.
  size_t workspace_bytes() const override {
    return static_cast<size_t>((2 * kMostChunks + 3) * n_) *
           (dtype_ == DType::float64 ? sizeof(double) : sizeof(float));
  }

 protected:
  // The chunks' moments and sums; `join` makes something of them: join(grid).
  template <int unit, class T, class Join>
  void launch_moments(const T* x, Real<T>* sums, cudaStream_t stream, Join join) const {
    const ColumnGrid grid(rows_, n_, unit, kMostChunks, kProcessors * kMomentsEach);
    moments<unit><<<grid.blocks, grid.threads, 0, stream>>>(x, sums, rows_, n_, grid.chunk_rows);
    join(grid);
  }
  template <Dy kind, int unit, class T, class Join>
  void launch_sums(const SumsOperands<T>& operands, Real<T>* sums, cudaStream_t stream, Join join) const {
    const ColumnGrid grid(rows_, n_, unit, kMostChunks, kProcessors * kSumsEach<kind>);
    gradient_sums<kind, unit>
        <<<grid.blocks, grid.threads, 0, stream>>>(operands, sums, rows_, n_, grid.chunk_rows);
    join(grid);
  }

  DType dtype_;
  int64_t n_, rows_;
};

class BatchNormKernel final : public BatchNormBase {
 public:
  explicit BatchNormKernel(const KernelRequest& request)
      : BatchNormBase(request), epsilon_(request.attrs<BatchNormAttrs>().epsilon) {}
  bool in_place(int input, int output) const override { return input == 0 && output == 0; }
  void launch(const LaunchArgs& args) const override {
    dispatch_floats(dtype_, [&]<class T>() {
      using C = Real<T>;
      const cudaStream_t stream = stream_of(args);
      const auto *x = static_cast<const T*>(args.inputs[0]), *gamma = static_cast<const T*>(args.inputs[1]),
                 *beta = static_cast<const T*>(args.inputs[2]);
      auto* y = static_cast<T*>(args.outputs[0]);
      auto *mean = static_cast<C*>(args.outputs[1]), *variance = static_cast<C*>(args.outputs[2]),
           *sums = static_cast<C*>(args.workspace), *scale = sums + 2 * kMostChunks * n_;
      dispatch_unit<T>(n_, {x, y}, [&]<int unit>() {
        const ColumnGrid grid(rows_, n_, unit);
        launch_moments<unit>(x, sums, stream, [&](const ColumnGrid& chunks) {
          join_moments<<<join_blocks(n_), join_threads(), 0, stream>>>(
              sums, chunks.chunks, chunks.chunk_rows, rows_, n_, epsilon_, gamma, mean, variance, scale);
        });
        if (rows_ > 0)
          normalize<unit>
              <<<grid.blocks, grid.threads, 0, stream>>>(x, mean, scale, beta, y, rows_, n_, grid.chunk_rows);
      });
    });
    launched();
  }

 private:
  double epsilon_;
};

class BatchNormGradKernel final : public BatchNormBase {
 public:
  explicit BatchNormGradKernel(const KernelRequest& request)
      : BatchNormBase(request), epsilon_(request.attrs<BatchNormAttrs>().epsilon) {}
  bool in_place(int input, int output) const override { return output == 0 && (input == 0 || input == 4); }
  void launch(const LaunchArgs& args) const override {
    dispatch_floats(dtype_, [&]<class T>() {
      using C = Real<T>;
      const cudaStream_t stream = stream_of(args);
      const auto *x = static_cast<const T*>(args.inputs[0]), *gamma = static_cast<const T*>(args.inputs[1]),
                 *dy = static_cast<const T*>(args.inputs[4]);
      const auto *mean = static_cast<const C*>(args.inputs[2]),
                 *variance = static_cast<const C*>(args.inputs[3]);
      auto* dx = static_cast<T*>(args.outputs[0]);
      auto *sums = static_cast<C*>(args.workspace), *columns = sums + 2 * kMostChunks * n_;
      dispatch_unit<T>(n_, {x, dy, dx}, [&]<int unit>() {
        const ColumnGrid grid(rows_, n_, unit);
        launch_sums<Dy::as_is, unit>(
            SumsOperands<T>{x, dy, mean}, sums, stream, [&](const ColumnGrid& chunks) {
              join_gradients<<<join_blocks(n_), join_threads(), 0, stream>>>(
                  sums, chunks.chunks, rows_, n_, epsilon_, gamma, variance, static_cast<T*>(args.outputs[1]),
                  static_cast<T*>(args.outputs[2]), columns);
            });
        if (rows_ > 0)
          gradient<unit><<<grid.blocks, grid.threads, 0, stream>>>(x, dy, mean, columns, dx, rows_, n_,
                                                                   grid.chunk_rows);
      });
    });
    launched();
  }

 private:
  double epsilon_;
};

class BatchMomentsKernel final : public BatchNormBase {
 public:
  using BatchNormBase::BatchNormBase;
  void launch(const LaunchArgs& args) const override {
    dispatch_floats(dtype_, [&]<class T>() {
      using C = Real<T>;
      const cudaStream_t stream = stream_of(args);
      if (rows_ == 0) {
        for (void* const result : {args.outputs[0], args.outputs[1]})
          check(cudaMemsetAsync(result, 0, static_cast<size_t>(n_) * sizeof(C), stream), "cudaMemsetAsync");
        return;
      }
      const auto* x = static_cast<const T*>(args.inputs[0]);
      auto* sums = static_cast<C*>(args.workspace);
      dispatch_unit<T>(n_, {x}, [&]<int unit>() {
        launch_moments<unit>(x, sums, stream, [&](const ColumnGrid& chunks) {
          join_moments<T><<<join_blocks(n_), join_threads(), 0, stream>>>(
              sums, chunks.chunks, chunks.chunk_rows, rows_, n_, 0, nullptr, static_cast<C*>(args.outputs[0]),
              static_cast<C*>(args.outputs[1]), nullptr);
        });
      });
    });
    launched();
  }
};

class BatchNormSumsKernel final : public BatchNormBase {
 public:
  explicit BatchNormSumsKernel(const KernelRequest& request)
      : BatchNormBase(request), kind_(request.attrs<BatchNormSumsAttrs>().dy) {}
  bool in_place(int input, int output) const override { return output == 2 && input >= 2; }
  void launch(const LaunchArgs& args) const override {
    dispatch_floats(dtype_, [&]<class T>() {
      const auto run = [&]<Dy kind>(const SumsOperands<T>& operands) {
        dispatch_unit<T>(
            n_, {operands.x, operands.dy, operands.more, operands.y, operands.joined}, [&]<int unit>() {
              using C = Real<T>;
              const cudaStream_t stream = stream_of(args);
              auto* sums = static_cast<C*>(args.workspace);
              launch_sums<kind, unit>(operands, sums, stream, [&](const ColumnGrid& chunks) {
                join_sums<<<join_blocks(n_), join_threads(), 0, stream>>>(sums, chunks.chunks, n_,
                                                                          static_cast<C*>(args.outputs[0]),
                                                                          static_cast<C*>(args.outputs[1]));
              });
            });
      };
      const auto rows = [&](int input) { return static_cast<const T*>(args.inputs[input]); };
      const auto columns = [&](int input) { return static_cast<const Real<T>*>(args.inputs[input]); };
      SumsOperands<T> operands{.x = rows(0), .dy = rows(2), .mean = columns(1)};
      switch (kind_) {
        case Dy::as_is: return run.template operator()<Dy::as_is>(operands);
        case Dy::masked:
          operands.factor = columns(3), operands.shift = columns(4);
          return run.template operator()<Dy::masked>(operands);
        case Dy::joined:
          operands.more = rows(3), operands.y = rows(4), operands.joined = static_cast<T*>(args.outputs[2]);
          return run.template operator()<Dy::joined>(operands);
      }
    });
    launched();
  }

 private:
  Dy kind_;
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kBatchNorm, {.prepare = prepare<BatchNormKernel>}},
    {DeviceKind::gpu, kBatchNormGrad, {.prepare = prepare<BatchNormGradKernel>}},
    {DeviceKind::gpu, kBatchMoments, {.prepare = prepare<BatchMomentsKernel>, .narrow_inputs = 0b1}},
    {DeviceKind::gpu, kBatchNormSums, {.prepare = prepare<BatchNormSumsKernel>, .narrow_inputs = 0b101}}};

}  // namespace
}  // namespace lockstep::cuda
