// argmax, cumsum and cumprod on GPUs: along lines of a tensor [outer, n, inner].
#include "backends/cuda/block.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/launch.h"
#include "ops/reduce/cumulative.h"
#include "ops/reduce/reduce.h"

namespace lockstep::cuda {
namespace {

struct Lines {
  int64_t outer = 1, n = 1, inner = 1;
  Lines(const Shape& shape, int64_t axis) : n(shape[static_cast<int>(axis)]) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = static_cast<int>(axis) + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
  int64_t elements() const { return outer * n * inner; }
};

// --- argmax ------------------------------------------------------------------------------------------------

// The first of the largest; NaN is larger than all numbers.
template <class C>
struct Candidate {
  C value;
  int64_t place;  // -1: none

  __device__ bool beats(const Candidate& other) const {
    if (place < 0 || other.place < 0) return other.place < 0;
    const bool nan = value != value, other_nan = other.value != other.value;
    if (nan != other_nan) return nan;
    if (!nan && value != other.value) return value > other.value;
    return place < other.place;
  }
};

// A block has `blockDim.x` lines and blockDim.y threads for each.
template <class T>
__global__ void argmax(const T* x, int64_t* out, int64_t n, int64_t inner, int64_t across) {
  using C = std::conditional_t<kIs16Bit<T>, float, T>;
  __shared__ Candidate<C> shared[kThreads];
  const int64_t outer = blockIdx.x / across, column = blockIdx.x % across * blockDim.x + threadIdx.x;
  const unsigned at = threadIdx.y * blockDim.x + threadIdx.x;
  Candidate<C> best{C(0), -1};
  if (column < inner)
    for (int64_t i = threadIdx.y; i < n; i += blockDim.y) {
      const Candidate<C> next{static_cast<C>(x[(outer * n + i) * inner + column]), i};
      if (next.beats(best)) best = next;
    }
  shared[at] = best;
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half && shared[at + half * blockDim.x].beats(shared[at]))
      shared[at] = shared[at + half * blockDim.x];
  }
  if (threadIdx.y == 0 && column < inner) out[outer * inner + column] = shared[at].place;
}

class ArgmaxKernel final : public Kernel {
 public:
  explicit ArgmaxKernel(const KernelRequest& request)
      : dtype_(request.dtype(0)), lines_(request.shape(0), request.attrs<ArgmaxAttrs>().axis) {
    while (lanes_ > 1 && lanes_ / 2 >= lines_.inner) lanes_ /= 2;
    // Threads that have nothing to compare only cost.
    while (team_ > 1 && team_ / 2 >= lines_.n) team_ /= 2;
    team_ = std::max(1, std::min(team_, kThreads / lanes_));
  }

  void launch(const LaunchArgs& args) const override {
    if (lines_.outer * lines_.inner == 0) return;
    const int64_t across = ceil_div(lines_.inner, lanes_);
    dispatch_elements(dtype_, [&]<class T>() {
      argmax<<<static_cast<unsigned>(lines_.outer * across),
               dim3(static_cast<unsigned>(lanes_), static_cast<unsigned>(team_)), 0, stream_of(args)>>>(
          static_cast<const T*>(args.inputs[0]), static_cast<int64_t*>(args.outputs[0]), lines_.n,
          lines_.inner, across);
    });
    launched();
  }

 private:
  DType dtype_;
  Lines lines_;
  int lanes_ = 32, team_ = kThreads;
};

// --- sums so far -------------------------------------------------------------------------------------------

// float32 is carried in double, 16-bit floats in float32; integers wrap around.
template <class T>
using Carry =
    std::conditional_t<std::is_integral_v<T>, uint64_t, std::conditional_t<sizeof(T) == 2, float, double>>;

struct Rule {
  bool product, exclusive, reverse;
  template <class C>
  __device__ C neutral() const {
    return product ? C(1) : C(0);
  }
  template <class C>
  __device__ C apply(C a, C b) const {
    return product ? a * b : a + b;
  }
};

// A thread a line.
template <class T>
__global__ void columns(const T* x, T* y, Lines lines, Rule rule) {
  using C = Carry<T>;
  const int64_t line = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (line >= lines.outer * lines.inner) return;
  const int64_t start = line / lines.inner * lines.n * lines.inner + line % lines.inner;
  C carry = rule.neutral<C>();
  for (int64_t i = 0; i < lines.n; ++i) {
    const int64_t at = start + (rule.reverse ? lines.n - 1 - i : i) * lines.inner;
    const C before = carry;
    carry = rule.apply(before, static_cast<C>(x[at]));
    y[at] = static_cast<T>(rule.exclusive ? before : carry);
  }
}

// A block a line, which is dense: each thread a few elements in turn.
template <class T>
__global__ void rows(const T* x, T* y, int64_t n, Rule rule) {
  using C = Carry<T>;
  constexpr int kEach = 4;
  __shared__ C totals[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const T* from = x + blockIdx.x * n;
  T* to = y + blockIdx.x * n;
  C carry = rule.neutral<C>();
  for (int64_t first = 0; first < n; first += blockDim.x * kEach) {
    const int64_t begin = first + threadIdx.x * kEach;
    const auto place = [&](int k) { return rule.reverse ? n - 1 - (begin + k) : begin + k; };
    C element[kEach], total = rule.neutral<C>();
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      element[k] = begin + k < n ? static_cast<C>(from[place(k)]) : rule.neutral<C>();
      total = rule.apply(total, element[k]);
    }
    C upto = total;  // of the warp's threads up to this one
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const C other = __shfl_up_sync(0xffffffffu, upto, distance);
      if (lane >= distance) upto = rule.apply(other, upto);
    }
    C before = __shfl_up_sync(0xffffffffu, upto, 1);
    if (lane == 0) before = rule.neutral<C>();
    __syncthreads();
    if (lane == kWarp - 1) totals[warp] = upto;
    __syncthreads();
    C all = carry;
    for (int w = 0; w < warps; ++w) {
      if (w == warp) before = rule.apply(all, before);
      all = rule.apply(all, totals[w]);
    }
    carry = all;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const C after = rule.apply(before, element[k]);
      if (begin + k < n) to[place(k)] = static_cast<T>(rule.exclusive ? before : after);
      before = after;
    }
  }
}

template <bool product>
class CumulativeKernel final : public Kernel {
 public:
  explicit CumulativeKernel(const KernelRequest& request)
      : dtype_(request.dtype(0)),
        lines_(request.shape(0), request.attrs<CumulativeAttrs>().axis),
        rule_{product, request.attrs<CumulativeAttrs>().exclusive, request.attrs<CumulativeAttrs>().reverse} {
  }

  bool in_place(int, int) const override { return true; }

  void launch(const LaunchArgs& args) const override {
    if (lines_.elements() == 0) return;
    dispatch_elements(dtype_, [&]<class T>() {
      if constexpr (!std::is_same_v<T, bool>) {
        const auto* x = static_cast<const T*>(args.inputs[0]);
        auto* y = static_cast<T*>(args.outputs[0]);
        if (lines_.inner == 1)
          rows<<<static_cast<unsigned>(lines_.outer), kThreads, 0, stream_of(args)>>>(x, y, lines_.n, rule_);
        else
          columns<<<blocks_for(lines_.outer * lines_.inner, 64), 64, 0, stream_of(args)>>>(x, y, lines_,
                                                                                           rule_);
      }
    });
    launched();
  }

 private:
  DType dtype_;
  Lines lines_;
  Rule rule_;
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kArgmax, {.prepare = prepare<ArgmaxKernel>}},
    {DeviceKind::gpu, kCumsum, {.prepare = prepare<CumulativeKernel<false>>}},
    {DeviceKind::gpu, kCumprod, {.prepare = prepare<CumulativeKernel<true>>}}};

}  // namespace
}  // namespace lockstep::cuda
