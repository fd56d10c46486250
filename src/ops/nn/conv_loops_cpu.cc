#include "ops/nn/conv_loops_cpu.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/parallel.h"
#include "ops/nn/conv.h"

namespace lockstep::cpu {
namespace {

// Sizes as plain numbers. Channels are those of all groups.
struct Sizes {
  explicit Sizes(const KernelRequest& request, const Shape& x, const Shape& y) {
    const auto& attrs = request.attrs<ConvAttrs>();
    const Window2d& window = attrs.window;
    batch = x[0], in_channels = x[3], out_channels = y[3], groups = attrs.groups;
    for (int axis = 0; axis < 2; ++axis) {
      input[axis] = window.input[axis], output[axis] = window.output(axis), size[axis] = window.size[axis];
      stride[axis] = window.strides[axis], dilation[axis] = window.dilations[axis],
      before[axis] = window.before[axis];
    }
    group_in = in_channels / groups, group_out = out_channels / groups;
  }

  // The image's row (column) under tap `tap` of window `o`; outside of the image on padding.
  int64_t under(int axis, int64_t o, int64_t tap) const {
    return o * stride[axis] - before[axis] + tap * dilation[axis];
  }
  bool inside(int axis, int64_t position) const { return position >= 0 && position < input[axis]; }

  int64_t x_at(int64_t n, int64_t h, int64_t w) const {
    return ((n * input[0] + h) * input[1] + w) * in_channels;
  }
  int64_t y_at(int64_t n, int64_t h, int64_t w) const {
    return ((n * output[0] + h) * output[1] + w) * out_channels;
  }
  // Filter of tap (i, j) and input channel `c` of any group; its values for all groups stand in a row.
  int64_t filter_at(int64_t i, int64_t j, int64_t c) const {
    return ((i * size[1] + j) * group_in + c) * out_channels;
  }

  int64_t batch, in_channels, out_channels, groups, group_in, group_out;
  int64_t input[2], output[2], size[2], stride[2], dilation[2], before[2];
};

template <class Real>
Real activate(Epilogue epilogue, Real v) {
  switch (epilogue) {
    case Epilogue::none: return v;
    case Epilogue::relu: return v < 0 ? Real{0} : v;
    case Epilogue::tanh: return std::tanh(v);
    case Epilogue::sigmoid: return 1 / (1 + std::exp(-v));
    case Epilogue::gelu_erf: return v / 2 * (1 + std::erf(v * std::numbers::sqrt2_v<Real> / 2));
    case Epilogue::gelu_tanh: {
      const Real c = std::sqrt(2 * std::numbers::inv_pi_v<Real>);
      return v / 2 * (1 + std::tanh(c * (v + Real{0.044715} * v * v * v)));
    }
  }
  return v;
}

// Arithmetic is float, or double for double. Sums of one row of results are made in `sum`, memory of
// the calling thread.
template <class T>
struct Loops {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;

  // y[o] = sum over taps t and channels c of x[under(o, t)][c] * w[t][c]
  static void forward(const Sizes& s, const ConvAttrs& attrs, const T* x, const T* filter, const T* bias,
                      T* y, int64_t row, Real* sum) {
    const int64_t n = row / s.output[0], oh = row % s.output[0];
    for (int64_t ow = 0; ow < s.output[1]; ++ow) {
      std::fill_n(sum, s.out_channels, Real{0});
      for (int64_t i = 0; i < s.size[0]; ++i) {
        const int64_t h = s.under(0, oh, i);
        if (!s.inside(0, h)) continue;
        for (int64_t j = 0; j < s.size[1]; ++j) {
          const int64_t w = s.under(1, ow, j);
          if (!s.inside(1, w)) continue;
          const T* pixel = x + s.x_at(n, h, w);
          for (int64_t c = 0; c < s.group_in; ++c) {
            const T* weights = filter + s.filter_at(i, j, c);
            for (int64_t g = 0; g < s.groups; ++g) {
              const Real value = static_cast<Real>(pixel[g * s.group_in + c]);
              for (int64_t o = g * s.group_out; o < (g + 1) * s.group_out; ++o)
                sum[o] += value * static_cast<Real>(weights[o]);
            }
          }
        }
      }
      T* result = y + s.y_at(n, oh, ow);
      for (int64_t o = 0; o < s.out_channels; ++o)
        result[o] =
            static_cast<T>(activate(attrs.epilogue, bias ? sum[o] + static_cast<Real>(bias[o]) : sum[o]));
    }
  }

  // dx[p][c] = sum over windows o and taps t with under(o, t) = p of dy[o] . w[t][c]
  static void backprop_input(const Sizes& s, const T* filter, const T* dy, T* dx, int64_t row, Real* sum) {
    const int64_t n = row / s.input[0], h = row % s.input[0];
    for (int64_t w = 0; w < s.input[1]; ++w) {
      std::fill_n(sum, s.in_channels, Real{0});
      for (int64_t i = 0; i < s.size[0]; ++i) {
        const int64_t oh = window_over(s, 0, h, i);
        if (oh < 0) continue;
        for (int64_t j = 0; j < s.size[1]; ++j) {
          const int64_t ow = window_over(s, 1, w, j);
          if (ow < 0) continue;
          const T* gradient = dy + s.y_at(n, oh, ow);
          for (int64_t c = 0; c < s.in_channels; ++c) {
            const T* weights = filter + s.filter_at(i, j, c % s.group_in);
            const int64_t first = c / s.group_in * s.group_out;
            Real product = 0;
            for (int64_t o = first; o < first + s.group_out; ++o)
              product += static_cast<Real>(gradient[o]) * static_cast<Real>(weights[o]);
            sum[c] += product;
          }
        }
      }
      T* result = dx + s.x_at(n, h, w);
      for (int64_t c = 0; c < s.in_channels; ++c) result[c] = static_cast<T>(sum[c]);
    }
  }

  // The window whose tap `tap` lies on `position`, or -1.
  static int64_t window_over(const Sizes& s, int axis, int64_t position, int64_t tap) {
    const int64_t start = position + s.before[axis] - tap * s.dilation[axis];
    if (start < 0 || start % s.stride[axis] != 0 || start / s.stride[axis] >= s.output[axis]) return -1;
    return start / s.stride[axis];
  }

  // dw[t][c] = sum over windows o of x[under(o, t)][c] * dy[o]; `row` names tap and channel.
  static void backprop_filter(const Sizes& s, const T* x, const T* dy, T* dfilter, int64_t row, Real* sum) {
    const int64_t c = row % s.group_in, j = row / s.group_in % s.size[1], i = row / s.group_in / s.size[1];
    std::fill_n(sum, s.out_channels, Real{0});
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t oh = 0; oh < s.output[0]; ++oh) {
        const int64_t h = s.under(0, oh, i);
        if (!s.inside(0, h)) continue;
        for (int64_t ow = 0; ow < s.output[1]; ++ow) {
          const int64_t w = s.under(1, ow, j);
          if (!s.inside(1, w)) continue;
          const T* pixel = x + s.x_at(n, h, w);
          const T* gradient = dy + s.y_at(n, oh, ow);
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

enum class Direction { forward, backprop_input, backprop_filter };

class ConvLoops final : public Kernel {
 public:
  ConvLoops(const KernelRequest& request, Direction direction, const Shape& x, const Shape& y)
      : direction_(direction),
        attrs_(request.attrs<ConvAttrs>()),
        sizes_(request, x, y),
        dtype_(request.dtype(0)),
        threads_(request.threads) {
    switch (direction) {
      case Direction::forward: rows_ = sizes_.batch * sizes_.output[0]; break;
      case Direction::backprop_input: rows_ = sizes_.batch * sizes_.input[0]; break;
      case Direction::backprop_filter: rows_ = sizes_.size[0] * sizes_.size[1] * sizes_.group_in; break;
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
          case DType::bfloat16: make_row<bfloat16>(args, row, sum); break;
          case DType::float16: make_row<float16>(args, row, sum); break;
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
      case Direction::forward: {
        const T* bias = attrs_.bias ? static_cast<const T*>(args.inputs[2]) : nullptr;
        return Loops<T>::forward(sizes_, attrs_, a, b, bias, out, row, sum);
      }
      case Direction::backprop_input: return Loops<T>::backprop_input(sizes_, a, b, out, row, sum);
      case Direction::backprop_filter: return Loops<T>::backprop_filter(sizes_, a, b, out, row, sum);
    }
  }

  Direction direction_;
  ConvAttrs attrs_;
  Sizes sizes_;
  DType dtype_;
  int threads_;
  int64_t rows_ = 0;
  size_t sum_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> prepare_conv_loops(const KernelRequest& request) {
  const Shape& result = request.outputs[0].spec.shape;
  if (&request.op == &kConv2dBackpropInput)
    return std::make_unique<ConvLoops>(request, Direction::backprop_input, result, request.shape(1));
  if (&request.op == &kConv2dBackpropFilter)
    return std::make_unique<ConvLoops>(request, Direction::backprop_filter, request.shape(0),
                                       request.shape(1));
  return std::make_unique<ConvLoops>(request, Direction::forward, request.shape(0), result);
}

}  // namespace lockstep::cpu
