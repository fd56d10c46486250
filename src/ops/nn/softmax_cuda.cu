// Softmax and cross entropy on GPUs: one warp or one block per row.
#include "backends/cuda/defer_error.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/rows.h"
#include "ops/nn/cross_entropy.h"
#include "ops/nn/label_error_cuda.h"
#include "ops/nn/softmax.h"

namespace lockstep::cuda {
namespace {

__device__ float exponential(float x) { return expf(x); }
__device__ double exponential(double x) { return exp(x); }
__device__ float logarithm(float x) { return logf(x); }
__device__ double logarithm(double x) { return log(x); }

// NaN is not looked for: it comes back in the sum.
struct Larger {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a > b ? a : b;
  }
};

template <class C>
struct RowStats {
  C max, sum;  // of exp(x - max)
};

template <class T, class Team>
__device__ RowStats<Real<T>> row_stats(const Team& team, const T* x, int64_t n) {
  using C = Real<T>;
  const C lowest = -INFINITY;
  C max = lowest, sum = 0;
  each_in_row(team, x, n, [&](int64_t, C v) { max = Larger()(v, max); });
  max = team.fold(max, lowest, Larger());
  each_in_row(team, x, n, [&](int64_t, C v) { sum += exponential(v - max); });
  return {max, team.sum(sum)};
}

template <bool log, bool warps, class T>
__global__ void softmax(const T* x, T* y, int64_t rows, int64_t n) {
  using C = Real<T>;
  const RowTeam<warps> team;
  for (int64_t row = team.first_row(); row < rows; row += team.row_step()) {
    const RowStats<C> stats = row_stats(team, x + row * n, n);
    const C scale = log ? logarithm(stats.sum) : 1 / stats.sum;
    map_row(team, x + row * n, y + row * n, n,
            [&](int64_t, C v) { return log ? (v - stats.max) - scale : exponential(v - stats.max) * scale; });
  }
}

template <bool warps, class T, class L>
__global__ void cross_entropy(const T* x, IndexReader labels, L* loss, Real<T>* statistics, int64_t rows,
                              int64_t n, DeferredError* error) {
  using C = Real<T>;
  const RowTeam<warps> team;
  for (int64_t row = team.first_row(); row < rows; row += team.row_step()) {
    const RowStats<C> stats = row_stats(team, x + row * n, n);
    if (team.rank() != 0) continue;
    const int64_t label = labels[row];
    if (label < 0 || label >= n) {
      defer_error(error, row, label);
      continue;
    }
    loss[row] = static_cast<L>(logarithm(stats.sum) - (static_cast<C>(x[row * n + label]) - stats.max));
    statistics[2 * row] = stats.max;
    statistics[2 * row + 1] = stats.sum;
  }
}

template <bool warps, class T, class L>
__global__ void cross_entropy_grad(const T* x, IndexReader labels, const Real<T>* statistics, const L* dloss,
                                   T* dx, int64_t rows, int64_t n, DeferredError* error) {
  using C = Real<T>;
  const RowTeam<warps> team;
  for (int64_t row = team.first_row(); row < rows; row += team.row_step()) {
    const C max = statistics[2 * row], scale = 1 / statistics[2 * row + 1], d = static_cast<C>(dloss[row]);
    const int64_t label = labels[row];
    if (team.rank() == 0 && (label < 0 || label >= n)) defer_error(error, row, label);
    map_row(team, x + row * n, dx + row * n, n, [&](int64_t i, C v) {
      const C p = exponential(v - max) * scale;
      return (i == label ? p - 1 : p) * d;
    });
  }
}

// Loss and gradient at once; dx may be x.
template <bool warps, class T, class L>
__global__ void cross_entropy_with_grad(const T* x, IndexReader labels, const L* dloss, L* loss, T* dx,
                                        int64_t rows, int64_t n, DeferredError* error) {
  using C = Real<T>;
  const RowTeam<warps> team;
  for (int64_t row = team.first_row(); row < rows; row += team.row_step()) {
    const int64_t label = labels[row];
    const bool exists = label >= 0 && label < n;
    // Read before any thread writes over it.
    const C chosen = exists ? static_cast<C>(x[row * n + label]) : C(0);
    const C d = static_cast<C>(dloss[row]);
    const RowStats<C> stats = row_stats(team, x + row * n, n);
    const C scale = 1 / stats.sum;
    if (team.rank() == 0) {
      if (!exists) defer_error(error, row, label);
      loss[row] = static_cast<L>(logarithm(stats.sum) - (chosen - stats.max));
    }
    map_row(team, x + row * n, dx + row * n, n, [&](int64_t i, C v) {
      const C p = exponential(v - stats.max) * scale;
      return (i == label ? p - 1 : p) * d;
    });
  }
}

__device__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The same for long rows of 16-bit floats, whole units of 16 bytes, which wait in shared memory between the
// two times they are needed. A thread fetches the units that it works on itself, so it fetches those of its
// next row as soon as it is done with one: no barrier, and no second buffer. Powers of two are within 2 units
// in the last place of a float32, which 16 bits do not show.
constexpr int kLongThreads = 512, kLongBlocksEach = 2;
template <class T, class L>
__global__ void __launch_bounds__(kLongThreads, kLongBlocksEach)
    long_cross_entropy_with_grad(const T* x, IndexReader labels, const L* dloss, L* loss, T* dx, int64_t rows,
                                 int n, DeferredError* error) {
  constexpr int kUnit = RowUnit<T>::kSize, kStep = kLongThreads * kUnit;
  constexpr float kLog2E = 1.4426950408889634f;
  extern __shared__ __align__(16) char memory[];
  const RowTeam<false> team;
  T* const own = reinterpret_cast<T*>(memory);
  const int first = static_cast<int>(threadIdx.x) * kUnit, half = n / kStep / 2 * kStep;
  const auto fetch = [&](int64_t row, int i) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(own + i))),
                 "l"(x + row * n + i)
                 : "memory");
  };
  // A row comes in two groups, so that work on the first begins before the second is there.
  const auto end_group = [] { asm volatile("cp.async.commit_group;" ::: "memory"); };
  for (int i = first; i < half; i += kStep) fetch(blockIdx.x, i);
  end_group();
  for (int i = first + half; i < n; i += kStep) fetch(blockIdx.x, i);
  end_group();
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t label = labels[row];
    const float d = static_cast<float>(dloss[row]);
    float max = -INFINITY, center = 0, sum = 0;  // of exp(x - max); the center is that of the powers
    const auto gather = [&](int i) {
      float v[kUnit];
      load_pack<T, kUnit>(own + i).get(v);
      float largest = v[0];
#pragma unroll
      for (int k = 1; k < kUnit; ++k) largest = Larger()(v[k], largest);
      if (largest > max) {
        sum *= power_of_two((max - largest) * kLog2E);
        max = largest;
        center = max * kLog2E;
      }
#pragma unroll
      for (int k = 0; k < kUnit; ++k) sum += power_of_two(v[k] * kLog2E - center);
    };
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    for (int i = first; i < half; i += kStep) gather(i);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    for (int i = first + half; i < n; i += kStep) gather(i);
    const float own_max = max;
    max = team.fold(max, -INFINITY, Larger());
    sum = team.sum(own_max == -INFINITY ? sum : sum * power_of_two((own_max - max) * kLog2E));
    center = max * kLog2E;
    const float scale = d / sum;
    if (threadIdx.x == 0 && (label < 0 || label >= n)) {
      defer_error(error, row, label);
      loss[row] = static_cast<L>(logf(sum) + max);
    }
    const int64_t next = row + gridDim.x;
    const auto finish = [&](int i) {
      auto pack = load_pack<T, kUnit>(own + i);
      float v[kUnit];
      pack.get(v);
      // Selections, not a branch, which takes longer.
      const auto chosen = static_cast<unsigned>(label - i);
      const bool is_chosen = label >= i && chosen < kUnit;
      float logit = 0;
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        if (is_chosen && chosen == k) logit = v[k];
        v[k] = power_of_two(v[k] * kLog2E - center) * scale;
        if (is_chosen && chosen == k) v[k] -= d;
      }
      if (is_chosen) loss[row] = static_cast<L>(logf(sum) - (logit - max));
      pack.set(v);
      store_pack(dx + row * n + i, pack);
      if (next < rows) fetch(next, i);
    };
    for (int i = first; i < half; i += kStep) finish(i);
    end_group();
    for (int i = first + half; i < n; i += kStep) finish(i);
    end_group();
  }
}

class RowKernel : public Kernel {
 public:
  explicit RowKernel(const KernelRequest& request)
      : dtype_(request.dtype(0)),
        n_(request.shape(0)[-1]),
        rows_(request.shape(0).drop_last(1).size()),
        grid_(rows_, n_) {}

 protected:
  // f.operator()<T, whether a warp has a row>()
  template <class F>
  void each_type(F f) const {
    if (rows_ * n_ == 0) return;
    dispatch_floats(dtype_, [&]<class T>() {
      grid_.warps ? f.template operator()<T, true>() : f.template operator()<T, false>();
    });
    launched();
  }

  DType dtype_;
  int64_t n_, rows_;
  RowGrid grid_;
};

template <bool log>
class SoftmaxKernel final : public RowKernel {
 public:
  using RowKernel::RowKernel;
  bool in_place(int, int) const override { return true; }
  void launch(const LaunchArgs& args) const override {
    each_type([&]<class T, bool warps>() {
      softmax<log, warps><<<grid_.blocks, grid_.threads, 0, stream_of(args)>>>(
          static_cast<const T*>(args.inputs[0]), static_cast<T*>(args.outputs[0]), rows_, n_);
    });
  }
};

// `loss`: the type of the losses, which is that of the logits or float32.
class LabelKernel : public RowKernel {
 public:
  LabelKernel(const KernelRequest& request, DType loss)
      : RowKernel(request),
        wide_loss_(loss != dtype_),
        wide_(request.dtype(1) == DType::int64),
        errors_(label_error(request.shape(1), n_, request.where)) {}

 protected:
  IndexReader labels(const LaunchArgs& args) const { return {args.inputs[1], wide_}; }
  // f.operator()<T, type of the losses, whether a warp has a row>()
  template <class F>
  void each_loss(F f) const {
    each_type([&]<class T, bool warps>() {
      if constexpr (kIs16Bit<T>)
        if (wide_loss_) return f.template operator()<T, float, warps>();
      f.template operator()<T, T, warps>();
    });
  }

  bool wide_loss_;
  bool wide_;
  DeferredErrors errors_;
};

class CrossEntropyKernel final : public LabelKernel {
 public:
  explicit CrossEntropyKernel(const KernelRequest& request)
      : LabelKernel(request, request.outputs[0].spec.dtype) {}
  void launch(const LaunchArgs& args) const override {
    each_loss([&]<class T, class L, bool warps>() {
      cross_entropy<warps><<<grid_.blocks, grid_.threads, 0, stream_of(args)>>>(
          static_cast<const T*>(args.inputs[0]), labels(args), static_cast<L*>(args.outputs[0]),
          static_cast<Real<T>*>(args.outputs[1]), rows_, n_, errors_.on(args.stream));
    });
  }
};

class CrossEntropyGradKernel final : public LabelKernel {
 public:
  explicit CrossEntropyGradKernel(const KernelRequest& request) : LabelKernel(request, request.dtype(3)) {}
  bool in_place(int input, int) const override { return input == 0; }
  void launch(const LaunchArgs& args) const override {
    each_loss([&]<class T, class L, bool warps>() {
      cross_entropy_grad<warps><<<grid_.blocks, grid_.threads, 0, stream_of(args)>>>(
          static_cast<const T*>(args.inputs[0]), labels(args), static_cast<const Real<T>*>(args.inputs[2]),
          static_cast<const L*>(args.inputs[3]), static_cast<T*>(args.outputs[0]), rows_, n_,
          errors_.on(args.stream));
    });
  }
};

class CrossEntropyWithGradKernel final : public LabelKernel {
 public:
  explicit CrossEntropyWithGradKernel(const KernelRequest& request)
      : LabelKernel(request, request.dtype(2)) {}
  bool in_place(int input, int output) const override { return input == 0 && output == 1; }
  void launch(const LaunchArgs& args) const override {
    each_loss([&]<class T, class L, bool warps>() {
      const auto* x = static_cast<const T*>(args.inputs[0]);
      auto* dx = static_cast<T*>(args.outputs[1]);
      const auto* dloss = static_cast<const L*>(args.inputs[2]);
      auto* loss = static_cast<L*>(args.outputs[0]);
      if constexpr (kIs16Bit<T> && !warps) {
        const size_t bytes = static_cast<size_t>(n_) * sizeof(T);
        if (n_ > 8192 && bytes <= shared_ && in_units<T>(n_, {x, dx})) {
          const auto run = long_cross_entropy_with_grad<T, L>;
          check(
              cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
              "cudaFuncSetAttribute");
          run<<<static_cast<unsigned>(std::min<int64_t>(rows_, kLongBlocksEach * processors_)), kLongThreads,
                bytes, stream_of(args)>>>(x, labels(args), dloss, loss, dx, rows_, static_cast<int>(n_),
                                          errors_.on(args.stream));
          return;
        }
      }
      cross_entropy_with_grad<warps><<<grid_.blocks, grid_.threads, 0, stream_of(args)>>>(
          x, labels(args), dloss, loss, dx, rows_, n_, errors_.on(args.stream));
    });
  }

 private:
  static int attribute(cudaDeviceAttr name) {
    int device = 0, value = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
    return value;
  }

  size_t shared_ = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)) - 1024;
  int processors_ = attribute(cudaDevAttrMultiProcessorCount);
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu,
     kSparseCrossEntropyWithGrad,
     {.prepare = prepare<CrossEntropyWithGradKernel>, .narrow_inputs = 0b1, .narrow_outputs = 0b10}},
    {DeviceKind::gpu, kSoftmax, {.prepare = prepare<SoftmaxKernel<false>>}},
    {DeviceKind::gpu, kLogSoftmax, {.prepare = prepare<SoftmaxKernel<true>>}},
    {DeviceKind::gpu, kSparseCrossEntropy, {.prepare = prepare<CrossEntropyKernel>, .narrow_inputs = 0b1}},
    {DeviceKind::gpu,
     kSparseCrossEntropyGrad,
     {.prepare = prepare<CrossEntropyGradKernel>, .narrow_inputs = 0b1, .narrow_outputs = 0b1}}};

}  // namespace
}  // namespace lockstep::cuda
