// Pooling on GPUs: one thread per element of the result, or a few of a gradient that share their windows; of
// each some channels.
#include "backends/cuda/columns.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "ops/nn/pool.h"

namespace lockstep::cuda {
namespace {

// Sizes of images fit into 32 bits; the numbers of all elements need not.
struct Axis {
  int input, output, size, stride, before;

  struct Range {
    int begin, end;
  };
  // The rows of the image under window o.
  __device__ Range under(int o) const {
    const int start = o * stride - before;
    return {max(start, 0), min(start + size, input)};
  }
  // The windows over a row of the image.
  __device__ Range over(int row) const {
    const int padded = row + before;
    return {padded < size ? 0 : (padded - size) / stride + 1, min(padded / stride + 1, output)};
  }
};

// A thread has `unit` neighbouring channels; places count units.
struct Geometry {
  Axis rows, columns;
  Divider channels, output_rows, output_columns;

  struct Place {
    int64_t image;
    int row, column, channel;
  };
  __device__ Place out(int64_t i) const { return split(i, output_rows, output_columns); }
  // Where the images and results of a place begin, and its rows and columns from there: an image has fewer
  // than 2^32 pixels.
  __device__ int64_t input_base(const Place& p) const { return base(p, rows.input, columns.input); }
  __device__ int64_t output_base(const Place& p) const { return base(p, rows.output, columns.output); }
  __device__ int64_t input_offset(int row, int column) const { return offset(row, column, columns.input); }
  __device__ int64_t output_offset(int row, int column) const { return offset(row, column, columns.output); }
  // The tap of window (o, q) on the image's element (row, column), as positions count.
  __device__ int tap(int o, int q, int row, int column) const {
    return (row - (o * rows.stride - rows.before)) * columns.size +
           (column - (q * columns.stride - columns.before));
  }
  // Item i of images of height x width of them.
  __device__ Place split(int64_t i, const Divider& height, const Divider& width) const {
    const int64_t pixel = channels.quotient(i), line = width.quotient(pixel), image = height.quotient(line);
    return {image, static_cast<int>(line - image * height.divisor()),
            static_cast<int>(pixel - line * width.divisor()),
            static_cast<int>(i - pixel * channels.divisor())};
  }

 private:
  __device__ int64_t base(const Place& p, int height, int width) const {
    return p.image * height * width * channels.divisor() + p.channel;
  }
  __device__ int64_t offset(int row, int column, int width) const {
    const auto pixel =
        static_cast<uint32_t>(row) * static_cast<uint32_t>(width) + static_cast<uint32_t>(column);
    return static_cast<int64_t>(static_cast<uint64_t>(pixel) * static_cast<uint32_t>(channels.divisor()));
  }
};

// P: uint8_t, or int32_t where a window has more taps.
template <int unit, class P>
struct Positions {
  Pack<P, unit>* data;

  struct Taps {
    int tap[unit];
  };
  static __device__ Taps taps(const Pack<P, unit>& stored) {
    Taps taps;
#pragma unroll
    for (int k = 0; k < unit; ++k) taps.tap[k] = stored.element[k];
    return taps;
  }
  __device__ void store(int64_t i, const Taps& taps) const {
    Pack<P, unit> stored;
#pragma unroll
    for (int k = 0; k < unit; ++k) stored.element[k] = static_cast<P>(taps.tap[k]);
    data[i] = stored;
  }
};

template <class T, int unit>
struct Sums {
  Real<T> sum[unit] = {};
  __device__ Pack<T, unit> rounded() const {
    Pack<T, unit> result;
    result.set(sum);
    return result;
  }
};

// f(row, column, values) for the elements under a window, a few of a row at a time, so that their loads are
// under way together.
template <class T, int unit, class F>
__device__ void each_under(const Geometry& g, const Pack<T, unit>* x, const Geometry::Place& at,
                           Axis::Range rows, Axis::Range columns, F f) {
  constexpr int kTogether = 4;
  x += g.input_base(at);
  for (int r = rows.begin; r < rows.end; ++r)
    for (int c = columns.begin; c < columns.end; c += kTogether) {
      Pack<T, unit> packs[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k)
        if (c + k < columns.end) packs[k] = load_pack<T, unit>(x + g.input_offset(r, c + k));
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (c + k >= columns.end) continue;
        Real<T> values[unit];
        packs[k].get(values);
        f(r, c + k, values);
      }
    }
}

struct MaxPool {
  template <class T, int unit, class P>
  static __device__ Pack<T, unit> make(const Geometry& g, const Pack<T, unit>* x,
                                       Positions<unit, P> positions, int64_t i) {
    using C = Real<T>;
    const auto at = g.out(i);
    const auto rows = g.rows.under(at.row), columns = g.columns.under(at.column);
    C best[unit];
    typename Positions<unit, P>::Taps taps;
    each_under(g, x, at, rows, columns, [&](int r, int c, const C(&next)[unit]) {
      const int tap = g.tap(at.row, at.column, r, c);
      const bool first = r == rows.begin && c == columns.begin;
#pragma unroll
      for (int k = 0; k < unit; ++k) {
        // The first NaN is the largest of all.
        if (first || next[k] > best[k] || (next[k] != next[k] && best[k] == best[k])) {
          best[k] = next[k];
          taps.tap[k] = tap;
        }
      }
    });
    positions.store(i, taps);
    Pack<T, unit> result;
    result.set(best);
    return result;
  }
};

struct MaxPoolGather {
  template <class T, int unit, class P>
  static __device__ Pack<T, unit> make(const Geometry& g, const Pack<T, unit>* x,
                                       Positions<unit, P> positions, int64_t i) {
    const auto at = g.out(i);
    const auto taps = positions.taps(positions.data[i]);
    Real<T> values[unit];
#pragma unroll
    for (int k = 0; k < unit; ++k) {
      const int row = taps.tap[k] / g.columns.size, column = taps.tap[k] - row * g.columns.size;
      const auto* from = reinterpret_cast<const T*>(
          x + g.input_base(at) +
          g.input_offset(at.row * g.rows.stride - g.rows.before + row,
                         at.column * g.columns.stride - g.columns.before + column));
      values[k] = static_cast<Real<T>>(from[k]);
    }
    Pack<T, unit> result;
    result.set(values);
    return result;
  }
};

struct AvgPool {
  template <class T, int unit, class P>
  static __device__ Pack<T, unit> make(const Geometry& g, const Pack<T, unit>* x, Positions<unit, P>,
                                       int64_t i) {
    const auto at = g.out(i);
    const auto rows = g.rows.under(at.row), columns = g.columns.under(at.column);
    Sums<T, unit> sums;
    each_under(g, x, at, rows, columns, [&](int, int, const Real<T>(&v)[unit]) {
#pragma unroll
      for (int k = 0; k < unit; ++k) sums.sum[k] += v[k];
    });
    const auto taps = static_cast<Real<T>>((rows.end - rows.begin) * (columns.end - columns.begin));
#pragma unroll
    for (int k = 0; k < unit; ++k) sums.sum[k] /= taps;
    return sums.rounded();
  }
};

template <class Op, class T, int unit, class P>
__global__ void pool(Geometry geometry, const Pack<T, unit>* from, Pack<T, unit>* to,
                     Positions<unit, P> positions, int64_t elements) {
  for (int64_t i = first_index(); i < elements; i += index_step())
    store_pack(to + i, Op::make(geometry, from, positions, i));
}

// What a window gives back to one element under it: `tap` is the element's.
struct MaxPoolGrad {
  static constexpr bool kReadsPositions = true;
  template <class P, class C, int unit>
  static __device__ void add(C (&sum)[unit], const C (&d)[unit],
                             const typename Positions<unit, P>::Taps& taps, int tap, C) {
#pragma unroll
    for (int k = 0; k < unit; ++k)
      if (taps.tap[k] == tap) sum[k] += d[k];
  }
};
struct AvgPoolGrad {
  static constexpr bool kReadsPositions = false;
  template <class P, class C, int unit>
  static __device__ void add(C (&sum)[unit], const C (&d)[unit], const typename Positions<unit, P>::Taps&,
                             int, C under) {
#pragma unroll
    for (int k = 0; k < unit; ++k) sum[k] += d[k] / under;
  }
};

// Elements of a gradient, kPatch x kPatch of them a thread: the windows over them are many the same. Windows
// are read two by two, so that their loads are under way together.
constexpr int kPatch = 2;
template <class Op, class T, int unit, class P>
__global__ void pool_gradient(Geometry g, Divider patch_rows, Divider patch_columns, const Pack<T, unit>* dy,
                              Pack<T, unit>* dx, Positions<unit, P> positions, int64_t patches) {
  using C = Real<T>;
  constexpr int kTogether = 2;
  for (int64_t i = first_index(); i < patches; i += index_step()) {
    auto at = g.split(i, patch_rows, patch_columns);
    at.row *= kPatch, at.column *= kPatch;
    const auto over = [](const Axis& axis, int first) {
      return Axis::Range{axis.over(first).begin, axis.over(min(first + kPatch, axis.input) - 1).end};
    };
    const auto rows = over(g.rows, at.row), columns = over(g.columns, at.column);
    Sums<T, unit> sums[kPatch][kPatch];
    const int64_t windows = g.output_base(at), elements = g.input_base(at);
    for (int o = rows.begin; o < rows.end; o += kTogether)
      for (int q = columns.begin; q < columns.end; q += kTogether) {
        Pack<T, unit> packs[kTogether][kTogether];
        Pack<P, unit> taps[kTogether][kTogether];
        const auto exists = [&](int a, int b) { return o + a < rows.end && q + b < columns.end; };
#pragma unroll
        for (int a = 0; a < kTogether; ++a)
#pragma unroll
          for (int b = 0; b < kTogether; ++b)
            if (exists(a, b)) {
              const int64_t window = windows + g.output_offset(o + a, q + b);
              packs[a][b] = load_pack<T, unit>(dy + window);
              if constexpr (Op::kReadsPositions) taps[a][b] = positions.data[window];
            }
#pragma unroll
        for (int a = 0; a < kTogether; ++a)
#pragma unroll
          for (int b = 0; b < kTogether; ++b) {
            if (!exists(a, b)) continue;
            C d[unit];
            packs[a][b].get(d);
            typename Positions<unit, P>::Taps chosen;
            if constexpr (Op::kReadsPositions) chosen = positions.taps(taps[a][b]);
            const auto r = g.rows.under(o + a), c = g.columns.under(q + b);
            const auto under = static_cast<C>((r.end - r.begin) * (c.end - c.begin));
#pragma unroll
            for (int y = 0; y < kPatch; ++y)
#pragma unroll
              for (int x = 0; x < kPatch; ++x) {
                const int row = at.row + y, column = at.column + x;
                if (row >= r.begin && row < r.end && column >= c.begin && column < c.end)
                  Op::template add<P>(sums[y][x].sum, d, chosen, g.tap(o + a, q + b, row, column), under);
              }
          }
      }
#pragma unroll
    for (int y = 0; y < kPatch; ++y)
#pragma unroll
      for (int x = 0; x < kPatch; ++x)
        if (at.row + y < g.rows.input && at.column + x < g.columns.input)
          store_pack(dx + elements + g.input_offset(at.row + y, at.column + x), sums[y][x].rounded());
  }
}

// Where a kernel's positions are: among its inputs, its outputs, or nowhere.
enum class PositionsAre { none, input, output };

template <class Op, PositionsAre where>
class PoolKernel final : public Kernel {
 public:
  explicit PoolKernel(const KernelRequest& request)
      : dtype_(request.dtype(0)),
        wide_(where == PositionsAre::input    ? request.dtype(1) == DType::int32
              : where == PositionsAre::output ? request.outputs[1].spec.dtype == DType::int32
                                              : false),
        elements_(request.outputs[0].spec.shape.size()) {
    if (elements_ == 0) return;
    const Window& window = request.attrs<PoolAttrs>().window;
    const auto axis = [&](int i) {
      return Axis{static_cast<int>(window.input[i]), static_cast<int>(window.output(i)),
                  static_cast<int>(window.size[i]), static_cast<int>(window.strides[i]),
                  static_cast<int>(window.before[i])};
    };
    images_ = request.shape(0)[0];
    channels_ = request.shape(0)[3];
    geometry_ = {axis(0), axis(1), Divider(), Divider(window.output(0)), Divider(window.output(1))};
  }

  void launch(const LaunchArgs& args) const override {
    if (elements_ == 0) return;
    void* const positions = where == PositionsAre::input    ? args.inputs[1]
                            : where == PositionsAre::output ? args.outputs[1]
                                                            : nullptr;
    dispatch_floats(dtype_, [&]<class T>() {
      dispatch_unit<T>(channels_, {args.inputs[0], args.outputs[0], positions}, [&]<int unit>() {
        if (wide_)
          run<T, unit>(args, Positions<unit, int32_t>{static_cast<Pack<int32_t, unit>*>(positions)});
        else
          run<T, unit>(args, Positions<unit, uint8_t>{static_cast<Pack<uint8_t, unit>*>(positions)});
      });
    });
    launched();
  }

 private:
  template <class T, int unit, class P>
  void run(const LaunchArgs& args, Positions<unit, P> positions) const {
    Geometry geometry = geometry_;
    geometry.channels = Divider(channels_ / unit);
    using E = Pack<T, unit>;
    const auto* from = static_cast<const E*>(args.inputs[0]);
    auto* to = static_cast<E*>(args.outputs[0]);
    if constexpr (requires { Op::kReadsPositions; }) {
      const int64_t rows = ceil_div(geometry.rows.input, kPatch),
                    columns = ceil_div(geometry.columns.input, kPatch);
      const int64_t patches = images_ * rows * columns * (channels_ / unit);
      pool_gradient<Op, T, unit, P><<<blocks_for(patches), kThreads, 0, stream_of(args)>>>(
          geometry, Divider(rows), Divider(columns), from, to, positions, patches);
    } else {
      pool<Op, T, unit, P><<<blocks_for(elements_ / unit), kThreads, 0, stream_of(args)>>>(
          geometry, from, to, positions, elements_ / unit);
    }
  }

  DType dtype_;
  bool wide_;
  int64_t elements_, images_ = 1, channels_ = 1;
  Geometry geometry_;
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kMaxPool2d, {.prepare = prepare<PoolKernel<MaxPool, PositionsAre::output>>}},
    {DeviceKind::gpu, kMaxPool2dGrad, {.prepare = prepare<PoolKernel<MaxPoolGrad, PositionsAre::input>>}},
    {DeviceKind::gpu, kMaxPool2dGather, {.prepare = prepare<PoolKernel<MaxPoolGather, PositionsAre::input>>}},
    {DeviceKind::gpu, kAvgPool2d, {.prepare = prepare<PoolKernel<AvgPool, PositionsAre::none>>}},
    {DeviceKind::gpu, kAvgPool2dGrad, {.prepare = prepare<PoolKernel<AvgPoolGrad, PositionsAre::none>>}}};

}  // namespace
}  // namespace lockstep::cuda
