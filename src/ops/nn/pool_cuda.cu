// Pooling on GPUs: a thread an element of the result.
#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "ops/nn/pool.h"

namespace lockstep::cuda {
namespace {

struct Axis {
  int64_t input, output, size, stride, before;

  struct Range {
    int64_t begin, end;
  };
  // The rows of the image under window o.
  __device__ Range under(int64_t o) const {
    const int64_t start = o * stride - before;
    return {max(start, int64_t{0}), min(start + size, input)};
  }
  // The windows over a row of the image.
  __device__ Range over(int64_t row) const {
    const int64_t padded = row + before;
    return {padded < size ? 0 : (padded - size) / stride + 1, min(padded / stride + 1, output)};
  }
};

struct Geometry {
  Axis rows, columns;
  Divider channels, input_rows, input_columns, output_rows, output_columns;

  // Element i of the image (or of the result) apart.
  struct Place {
    int64_t image, row, column, channel;
  };
  __device__ Place in(int64_t i) const { return split(i, input_rows, input_columns); }
  __device__ Place out(int64_t i) const { return split(i, output_rows, output_columns); }
  __device__ int64_t input_index(const Place& p, int64_t row, int64_t column) const {
    return ((p.image * rows.input + row) * columns.input + column) * channels.divisor() + p.channel;
  }
  __device__ int64_t output_index(const Place& p, int64_t row, int64_t column) const {
    return ((p.image * rows.output + row) * columns.output + column) * channels.divisor() + p.channel;
  }
  // The tap of window (o, q) on the image's element (row, column), as positions count.
  __device__ int64_t tap(int64_t o, int64_t q, int64_t row, int64_t column) const {
    return (row - (o * rows.stride - rows.before)) * columns.size +
           (column - (q * columns.stride - columns.before));
  }

 private:
  __device__ Place split(int64_t i, const Divider& height, const Divider& width) const {
    const int64_t pixel = channels.quotient(i), line = width.quotient(pixel), image = height.quotient(line);
    return {image, line - image * height.divisor(), pixel - line * width.divisor(),
            i - pixel * channels.divisor()};
  }
};

// uint8, or int32 where a window has more taps.
struct Positions {
  void* data;
  bool wide;
  __device__ int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int32_t*>(data)[i] : static_cast<const uint8_t*>(data)[i];
  }
  __device__ void set(int64_t i, int64_t position) const {
    if (wide)
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(position);
    else
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(position);
  }
};

struct MaxPool {
  template <class T>
  static __device__ T make(const Geometry& g, const T* x, Positions positions, int64_t i) {
    using C = Real<T>;
    const auto at = g.out(i);
    const auto rows = g.rows.under(at.row), columns = g.columns.under(at.column);
    T best = x[g.input_index(at, rows.begin, columns.begin)];
    int64_t position = g.tap(at.row, at.column, rows.begin, columns.begin);
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int64_t c = columns.begin; c < columns.end; ++c) {
        const T element = x[g.input_index(at, r, c)];
        const C v = static_cast<C>(element), b = static_cast<C>(best);
        // The first NaN is the largest of all.
        if (v > b || (v != v && b == b)) {
          best = element;
          position = g.tap(at.row, at.column, r, c);
        }
      }
    positions.set(i, position);
    return best;
  }
};

struct MaxPoolGather {
  template <class T>
  static __device__ T make(const Geometry& g, const T* x, Positions positions, int64_t i) {
    const auto at = g.out(i);
    const int64_t position = positions[i], row = position / g.columns.size;
    return x[g.input_index(
        at, at.row * g.rows.stride - g.rows.before + row,
        at.column * g.columns.stride - g.columns.before + position - row * g.columns.size)];
  }
};

struct MaxPoolGrad {
  template <class T>
  static __device__ T make(const Geometry& g, const T* dy, Positions positions, int64_t i) {
    const auto at = g.in(i);
    const auto rows = g.rows.over(at.row), columns = g.columns.over(at.column);
    Real<T> sum = 0;
    for (int64_t o = rows.begin; o < rows.end; ++o)
      for (int64_t q = columns.begin; q < columns.end; ++q) {
        const int64_t window = g.output_index(at, o, q);
        if (positions[window] == g.tap(o, q, at.row, at.column)) sum += static_cast<Real<T>>(dy[window]);
      }
    return static_cast<T>(sum);
  }
};

struct AvgPool {
  template <class T>
  static __device__ T make(const Geometry& g, const T* x, Positions, int64_t i) {
    const auto at = g.out(i);
    const auto rows = g.rows.under(at.row), columns = g.columns.under(at.column);
    Real<T> sum = 0;
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int64_t c = columns.begin; c < columns.end; ++c)
        sum += static_cast<Real<T>>(x[g.input_index(at, r, c)]);
    return static_cast<T>(sum /
                          static_cast<Real<T>>((rows.end - rows.begin) * (columns.end - columns.begin)));
  }
};

struct AvgPoolGrad {
  template <class T>
  static __device__ T make(const Geometry& g, const T* dy, Positions, int64_t i) {
    const auto at = g.in(i);
    const auto rows = g.rows.over(at.row), columns = g.columns.over(at.column);
    Real<T> sum = 0;
    for (int64_t o = rows.begin; o < rows.end; ++o)
      for (int64_t q = columns.begin; q < columns.end; ++q) {
        const auto r = g.rows.under(o), c = g.columns.under(q);
        sum += static_cast<Real<T>>(dy[g.output_index(at, o, q)]) /
               static_cast<Real<T>>((r.end - r.begin) * (c.end - c.begin));
      }
    return static_cast<T>(sum);
  }
};

template <class Op, class T>
__global__ void pool(Geometry geometry, const T* from, T* to, Positions positions, int64_t elements) {
  for (int64_t i = first_index(); i < elements; i += index_step())
    to[i] = Op::make(geometry, from, positions, i);
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
      return Axis{window.input[i], window.output(i), window.size[i], window.strides[i], window.before[i]};
    };
    geometry_ = {axis(0),
                 axis(1),
                 Divider(request.shape(0)[3]),
                 Divider(window.input[0]),
                 Divider(window.input[1]),
                 Divider(window.output(0)),
                 Divider(window.output(1))};
  }

  void launch(const LaunchArgs& args) const override {
    if (elements_ == 0) return;
    const Positions positions{where == PositionsAre::input    ? args.inputs[1]
                              : where == PositionsAre::output ? args.outputs[1]
                                                              : nullptr,
                              wide_};
    dispatch_floats(dtype_, [&]<class T>() {
      pool<Op><<<blocks_for(elements_), kThreads, 0, stream_of(args)>>>(
          geometry_, static_cast<const T*>(args.inputs[0]), static_cast<T*>(args.outputs[0]), positions,
          elements_);
    });
    launched();
  }

 private:
  DType dtype_;
  bool wide_;
  int64_t elements_;
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
