#include "ops/nn/conv_loops_cpu.h"

#include <algorithm>

#include "base/parallel.h"
#include "ops/nn/conv.h"

namespace lockstep::cpu {
namespace {

// Sizes as plain numbers: planes, rows and columns. Channels are those of all groups.
struct Sizes {
  explicit Sizes(const KernelRequest& request, const Shape& x, const Shape& y) {
    const auto& attrs = request.attrs<ConvAttrs>();
    const Window window = lift(attrs.window, 3);
    batch = x[0], in_channels = x[-1], out_channels = y[-1], groups = attrs.groups;
    for (int axis = 0; axis < 3; ++axis) {
      input[axis] = window.input[axis], output[axis] = window.output(axis), size[axis] = window.size[axis];
      stride[axis] = window.strides[axis], dilation[axis] = window.dilations[axis],
      before[axis] = window.before[axis];
    }
    group_in = in_channels / groups, group_out = out_channels / groups;
  }

  // The image's plane (row, column) under tap `tap` of window `o`, or -1 on padding.
  int64_t under(int axis, int64_t o, int64_t tap) const {
    const int64_t position = o * stride[axis] - before[axis] + tap * dilation[axis];
    return position < input[axis] ? position : -1;
  }
  // The window whose tap `tap` lies on `position`, or -1.
  int64_t window_over(int axis, int64_t position, int64_t tap) const {
    const int64_t start = position + before[axis] - tap * dilation[axis];
    if (start < 0 || start % stride[axis] != 0 || start / stride[axis] >= output[axis]) return -1;
    return start / stride[axis];
  }

  // f(place in the filter, place) for every tap at which `find`(axis, at[axis], tap) is a place: `under` from
  // a window, `window_over` from an element of the image. Places count planes, rows and columns of `sizes` in
  // one number.
  template <class Find, class F>
  void each_tap(const int64_t (&at)[3], const int64_t (&sizes)[3], Find find, F f) const {
    for (int64_t p = 0; p < size[0]; ++p) {
      const int64_t plane = (this->*find)(0, at[0], p);
      if (plane < 0) continue;
      for (int64_t i = 0; i < size[1]; ++i) {
        const int64_t row = (this->*find)(1, at[1], i);
        if (row < 0) continue;
        for (int64_t j = 0; j < size[2]; ++j) {
          const int64_t column = (this->*find)(2, at[2], j);
          if (column >= 0) f((p * size[1] + i) * size[2] + j, (plane * sizes[1] + row) * sizes[2] + column);
        }
      }
    }
  }

  static int64_t volume(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

  int64_t batch, in_channels, out_channels, groups, group_in, group_out;
  int64_t input[3], output[3], size[3], stride[3], dilation[3], before[3];
};

// Arithmetic is float, or double for double. Sums of one row of results are made in `sum`, memory of
// the calling thread.
template <class T>
struct Loops {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;

  // y[o] = sum over taps t and channels c of x[under(o, t)][c] * w[t][c]; `row` is one of y.
  static void forward(const Sizes& s, const T* x, const T* filter, const T* bias, T* y, int64_t row,
                      Real* sum) {
    const int64_t n = row / (s.output[0] * s.output[1]);
    int64_t at[3] = {row / s.output[1] % s.output[0], row % s.output[1], 0};
    const T* image = x + n * s.volume(s.input) * s.in_channels;
    for (; at[2] < s.output[2]; ++at[2]) {
      std::fill_n(sum, s.out_channels, Real{0});
      s.each_tap(at, s.input, &Sizes::under, [&](int64_t tap, int64_t place) {
        const T* pixel = image + place * s.in_channels;
        for (int64_t c = 0; c < s.group_in; ++c) {
          const T* weights = filter + (tap * s.group_in + c) * s.out_channels;
          for (int64_t g = 0; g < s.groups; ++g) {
            const Real value = static_cast<Real>(pixel[g * s.group_in + c]);
            for (int64_t o = g * s.group_out; o < (g + 1) * s.group_out; ++o)
              sum[o] += value * static_cast<Real>(weights[o]);
          }
        }
      });
      T* result = y + (row * s.output[2] + at[2]) * s.out_channels;
      for (int64_t o = 0; o < s.out_channels; ++o)
        result[o] = static_cast<T>(bias ? sum[o] + static_cast<Real>(bias[o]) : sum[o]);
    }
  }

  // dx[p][c] = sum over windows o and taps t with under(o, t) = p of dy[o] . w[t][c]; `row` is one of dx.
  static void backprop_input(const Sizes& s, const T* filter, const T* dy, T* dx, int64_t row, Real* sum) {
    const int64_t n = row / (s.input[0] * s.input[1]);
    int64_t at[3] = {row / s.input[1] % s.input[0], row % s.input[1], 0};
    const T* gradients = dy + n * s.volume(s.output) * s.out_channels;
    for (; at[2] < s.input[2]; ++at[2]) {
      std::fill_n(sum, s.in_channels, Real{0});
      s.each_tap(at, s.output, &Sizes::window_over, [&](int64_t tap, int64_t place) {
        const T* gradient = gradients + place * s.out_channels;
        for (int64_t c = 0; c < s.in_channels; ++c) {
          const T* weights = filter + (tap * s.group_in + c % s.group_in) * s.out_channels;
          const int64_t first = c / s.group_in * s.group_out;
          Real product = 0;
          for (int64_t o = first; o < first + s.group_out; ++o)
            product += static_cast<Real>(gradient[o]) * static_cast<Real>(weights[o]);
          sum[c] += product;
        }
      });
      T* result = dx + (row * s.input[2] + at[2]) * s.in_channels;
      for (int64_t c = 0; c < s.in_channels; ++c) result[c] = static_cast<T>(sum[c]);
    }
  }

  // dw[t][c] = sum over windows o of x[under(o, t)][c] * dy[o]; `row` names tap and channel.
  static void backprop_filter(const Sizes& s, const T* x, const T* dy, T* dfilter, int64_t row, Real* sum) {
    const int64_t c = row % s.group_in, tap = row / s.group_in;
    const int64_t p = tap / s.size[2] / s.size[1], i = tap / s.size[2] % s.size[1], j = tap % s.size[2];
    std::fill_n(sum, s.out_channels, Real{0});
    const T* gradient = dy;
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t od = 0; od < s.output[0]; ++od)
        for (int64_t oh = 0; oh < s.output[1]; ++oh) {
          const int64_t d = s.under(0, od, p), h = s.under(1, oh, i);
          for (int64_t ow = 0; ow < s.output[2]; ++ow, gradient += s.out_channels) {
            const int64_t w = s.under(2, ow, j);
            if (d < 0 || h < 0 || w < 0) continue;
            const T* pixel = x + (((n * s.input[0] + d) * s.input[1] + h) * s.input[2] + w) * s.in_channels;
            for (int64_t g = 0; g < s.groups; ++g) {
              const Real value = static_cast<Real>(pixel[g * s.group_in + c]);
              for (int64_t o = g * s.group_out; o < (g + 1) * s.group_out; ++o)
                sum[o] += value * static_cast<Real>(gradient[o]);
            }
          }
        }
    T* result = dfilter + row * s.out_channels;
    for (int64_t o = 0; o < s.out_channels; ++o) result[o] = static_cast<T>(sum[o]);
  }
};

class ConvLoops final : public Kernel {
 public:
  ConvLoops(const KernelRequest& request, const Shape& x, const Shape& y)
      : direction_(conv_direction(request.op)),
        bias_(request.attrs<ConvAttrs>().bias),
        sizes_(request, x, y),
        dtype_(request.dtype(0)),
        threads_(request.threads) {
    switch (direction_) {
      case ConvDirection::forward: rows_ = sizes_.batch * sizes_.output[0] * sizes_.output[1]; break;
      case ConvDirection::backprop_input: rows_ = sizes_.batch * sizes_.input[0] * sizes_.input[1]; break;
      case ConvDirection::backprop_filter: rows_ = Sizes::volume(sizes_.size) * sizes_.group_in; break;
    }
    sum_bytes_ =
        (static_cast<size_t>(std::max(sizes_.in_channels, sizes_.out_channels)) * sizeof(double) + 63) / 64 *
        64;
  }

  size_t workspace_bytes() const override { return sum_bytes_ * static_cast<size_t>(threads_); }

  void launch(const LaunchArgs& args) const override {
    parallel(threads_, [&](int index) {
      void* sum = static_cast<char*>(args.workspace) + sum_bytes_ * static_cast<size_t>(index);
      for (int64_t row = rows_ * index / threads_; row < rows_ * (index + 1) / threads_; ++row)
        switch (dtype_) {
          case DType::float64: make_row<double>(args, row, sum); break;
          case DType::bfloat16: make_row<BFloat16>(args, row, sum); break;
          case DType::float16: make_row<Float16>(args, row, sum); break;
          default: make_row<float>(args, row, sum); break;
        }
    });
  }

 private:
  template <class T>
  void make_row(const LaunchArgs& args, int64_t row, void* memory) const {
    const T *a = static_cast<const T*>(args.inputs[0]), *b = static_cast<const T*>(args.inputs[1]);
    T* out = static_cast<T*>(args.outputs[0]);
    auto* sum = static_cast<typename Loops<T>::Real*>(memory);
    switch (direction_) {
      case ConvDirection::forward: {
        const T* bias = bias_ ? static_cast<const T*>(args.inputs[2]) : nullptr;
        return Loops<T>::forward(sizes_, a, b, bias, out, row, sum);
      }
      case ConvDirection::backprop_input: return Loops<T>::backprop_input(sizes_, a, b, out, row, sum);
      case ConvDirection::backprop_filter: return Loops<T>::backprop_filter(sizes_, a, b, out, row, sum);
    }
  }

  ConvDirection direction_;
  bool bias_;
  Sizes sizes_;
  DType dtype_;
  int threads_;
  int64_t rows_ = 0;
  size_t sum_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> prepare_conv_loops(const KernelRequest& request) {
  const Shape& result = request.outputs[0].spec.shape;
  switch (conv_direction(request.op)) {
    case ConvDirection::forward: break;
    case ConvDirection::backprop_input: return std::make_unique<ConvLoops>(request, result, request.shape(1));
    case ConvDirection::backprop_filter:
      return std::make_unique<ConvLoops>(request, request.shape(0), request.shape(1));
  }
  return std::make_unique<ConvLoops>(request, request.shape(0), result);
}

}  // namespace lockstep::cpu
