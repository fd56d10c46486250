// Pooling on GPUs: a thread an element of the result.
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
  Divider channels, input_rows, input_columns, output_rows, output_columns;

  struct Place {
    int64_t image;
    int row, column, channel;
  };
  __device__ Place in(int64_t i) const { return split(i, input_rows, input_columns); }
  __device__ Place out(int64_t i) const { return split(i, output_rows, output_columns); }
  __device__ int64_t input_index(const Place& p, int row, int column) const {
    return ((p.image * rows.input + row) * columns.input + column) * channels.divisor() + p.channel;
  }
  __device__ int64_t output_index(const Place& p, int row, int column) const {
    return ((p.image * rows.output + row) * columns.output + column) * channels.divisor() + p.channel;
  }
  // The tap of window (o, q) on the image's element (row, column), as positions count.
  __device__ int tap(int o, int q, int row, int column) const {
    return (row - (o * rows.stride - rows.before)) * columns.size +
           (column - (q * columns.stride - columns.before));
  }

 private:
  __device__ Place split(int64_t i, const Divider& height, const Divider& width) const {
    const int64_t pixel = channels.quotient(i), line = width.quotient(pixel), image = height.quotient(line);
    return {image, static_cast<int>(line - image * height.divisor()),
            static_cast<int>(pixel - line * width.divisor()),
            static_cast<int>(i - pixel * channels.divisor())};
  }
};

// uint8, or int32 where a window has more taps.
template <int unit>
struct Positions {
  void* data;
  bool wide;

  struct Taps {
    int tap[unit];
  };
  __device__ Taps load(int64_t i) const {
    Taps taps;
    if (wide) {
      const auto stored = static_cast<const Pack<int32_t, unit>*>(data)[i];
#pragma unroll
      for (int k = 0; k < unit; ++k) taps.tap[k] = stored.element[k];
    } else {
      const auto stored = static_cast<const Pack<uint8_t, unit>*>(data)[i];
#pragma unroll
      for (int k = 0; k < unit; ++k) taps.tap[k] = stored.element[k];
    }
    return taps;
  }
  __device__ void store(int64_t i, const Taps& taps) const {
    if (wide) {
      Pack<int32_t, unit> stored;
#pragma unroll
      for (int k = 0; k < unit; ++k) stored.element[k] = taps.tap[k];
      static_cast<Pack<int32_t, unit>*>(data)[i] = stored;
    } else {
      Pack<uint8_t, unit> stored;
#pragma unroll
      for (int k = 0; k < unit; ++k) stored.element[k] = static_cast<uint8_t>(taps.tap[k]);
      static_cast<Pack<uint8_t, unit>*>(data)[i] = stored;
    }
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

struct MaxPool {
  template <class T, int unit>
  static __device__ Pack<T, unit> make(const Geometry& g, const Pack<T, unit>* x, Positions<unit> positions,
                                       int64_t i) {
    using C = Real<T>;
    const auto at = g.out(i);
    const auto rows = g.rows.under(at.row), columns = g.columns.under(at.column);
    C best[unit];
    load_pack<T, unit>(x + g.input_index(at, rows.begin, columns.begin)).get(best);
    typename Positions<unit>::Taps taps;
#pragma unroll
    for (int k = 0; k < unit; ++k) taps.tap[k] = g.tap(at.row, at.column, rows.begin, columns.begin);
    for (int r = rows.begin; r < rows.end; ++r)
      for (int c = columns.begin; c < columns.end; ++c) {
        C next[unit];
        load_pack<T, unit>(x + g.input_index(at, r, c)).get(next);
        const int tap = g.tap(at.row, at.column, r, c);
#pragma unroll
        for (int k = 0; k < unit; ++k) {
          // The first NaN is the largest of all.
          if (next[k] > best[k] || (next[k] != next[k] && best[k] == best[k])) {
            best[k] = next[k];
            taps.tap[k] = tap;
          }
        }
      }
    positions.store(i, taps);
    Pack<T, unit> result;
    result.set(best);
    return result;
  }
};

struct MaxPoolGather {
  template <class T, int unit>
  static __device__ Pack<T, unit> make(const Geometry& g, const Pack<T, unit>* x, Positions<unit> positions,
                                       int64_t i) {
    const auto at = g.out(i);
    const auto taps = positions.load(i);
    Real<T> values[unit];
#pragma unroll
    for (int k = 0; k < unit; ++k) {
      const int row = taps.tap[k] / g.columns.size, column = taps.tap[k] - row * g.columns.size;
      const auto* from = reinterpret_cast<const T*>(
          x + g.input_index(at, at.row * g.rows.stride - g.rows.before + row,
                            at.column * g.columns.stride - g.columns.before + column));
      values[k] = static_cast<Real<T>>(from[k]);
    }
    Pack<T, unit> result;
    result.set(values);
    return result;
  }
};

struct MaxPoolGrad {
  template <class T, int unit>
  static __device__ Pack<T, unit> make(const Geometry& g, const Pack<T, unit>* dy, Positions<unit> positions,
                                       int64_t i) {
    const auto at = g.in(i);
    const auto rows = g.rows.over(at.row), columns = g.columns.over(at.column);
    Sums<T, unit> sums;
    for (int o = rows.begin; o < rows.end; ++o)
      for (int q = columns.begin; q < columns.end; ++q) {
        const int64_t window = g.output_index(at, o, q);
        const auto taps = positions.load(window);
        Real<T> d[unit];
        load_pack<T, unit>(dy + window).get(d);
        const int tap = g.tap(o, q, at.row, at.column);
#pragma unroll
        for (int k = 0; k < unit; ++k)
          if (taps.tap[k] == tap) sums.sum[k] += d[k];
      }
    return sums.rounded();
  }
};

struct AvgPool {
  template <class T, int unit>
  static __device__ Pack<T, unit> make(const Geometry& g, const Pack<T, unit>* x, Positions<unit>,
                                       int64_t i) {
    const auto at = g.out(i);
    const auto rows = g.rows.under(at.row), columns = g.columns.under(at.column);
    Sums<T, unit> sums;
    for (int r = rows.begin; r < rows.end; ++r)
      for (int c = columns.begin; c < columns.end; ++c) {
        Real<T> v[unit];
        load_pack<T, unit>(x + g.input_index(at, r, c)).get(v);
#pragma unroll
        for (int k = 0; k < unit; ++k) sums.sum[k] += v[k];
      }
    const auto taps = static_cast<Real<T>>((rows.end - rows.begin) * (columns.end - columns.begin));
#pragma unroll
    for (int k = 0; k < unit; ++k) sums.sum[k] /= taps;
    return sums.rounded();
  }
};

struct AvgPoolGrad {
  template <class T, int unit>
  static __device__ Pack<T, unit> make(const Geometry& g, const Pack<T, unit>* dy, Positions<unit>,
                                       int64_t i) {
    const auto at = g.in(i);
    const auto rows = g.rows.over(at.row), columns = g.columns.over(at.column);
    Sums<T, unit> sums;
    for (int o = rows.begin; o < rows.end; ++o)
      for (int q = columns.begin; q < columns.end; ++q) {
        const auto r = g.rows.under(o), c = g.columns.under(q);
        const auto taps = static_cast<Real<T>>((r.end - r.begin) * (c.end - c.begin));
        Real<T> d[unit];
        load_pack<T, unit>(dy + g.output_index(at, o, q)).get(d);
#pragma unroll
        for (int k = 0; k < unit; ++k) sums.sum[k] += d[k] / taps;
      }
    return sums.rounded();
  }
};

template <class Op, class T, int unit>
__global__ void pool(Geometry geometry, const Pack<T, unit>* from, Pack<T, unit>* to,
                     Positions<unit> positions, int64_t elements) {
  for (int64_t i = first_index(); i < elements; i += index_step())
    store_pack(to + i, Op::make(geometry, from, positions, i));
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
    channels_ = request.shape(0)[3];
    geometry_ = {axis(0),
                 axis(1),
                 Divider(),
                 Divider(window.input[0]),
                 Divider(window.input[1]),
                 Divider(window.output(0)),
                 Divider(window.output(1))};
  }

  void launch(const LaunchArgs& args) const override {
    if (elements_ == 0) return;
    void* const positions = where == PositionsAre::input    ? args.inputs[1]
                            : where == PositionsAre::output ? args.outputs[1]
                                                            : nullptr;
    dispatch_floats(dtype_, [&]<class T>() {
      dispatch_unit<T>(channels_, {args.inputs[0], args.outputs[0], positions}, [&]<int unit>() {
        Geometry geometry = geometry_;
        geometry.channels = Divider(channels_ / unit);
        using E = Pack<T, unit>;
        pool<Op, T, unit><<<blocks_for(elements_ / unit), kThreads, 0, stream_of(args)>>>(
            geometry, static_cast<const E*>(args.inputs[0]), static_cast<E*>(args.outputs[0]),
            Positions<unit>{positions, wide_}, elements_ / unit);
      });
    });
    launched();
  }

 private:
  DType dtype_;
  bool wide_;
  int64_t elements_, channels_ = 1;
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
