#include "ops/nn/conv_loops_cpu.h"

#include <algorithm>

#include "base/parallel.h"
#include "ops/nn/conv_places_cpu.h"

namespace lockstep::cpu {
namespace {

// Sums of one row of results are made in `sum`, memory of the calling thread.
template <class T>
struct Loops {
  // Of a depthwise convolution, whose channels are groups by themselves.
  static void add_products(T* sum, const T* a, const T* b, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sum[i] += a[i] * b[i];
  }

  // y[o] = sum over taps t and channels c of x[under(o, t)][c] * w[t][c]; `row` is one of y.
  static void forward(const ConvPlaces& s, const T* x, const T* filter, const T* bias, T* y, int64_t row,
                      T* sum) {
    const int64_t n = row / (s.output[0] * s.output[1]);
    int64_t at[3] = {row / s.output[1] % s.output[0], row % s.output[1], 0};
    const T* image = x + n * s.volume(s.input) * s.in_channels;
    for (; at[2] < s.output[2]; ++at[2]) {
      std::fill_n(sum, s.out_channels, T{0});
      s.each_tap(at, s.input, &ConvPlaces::under, [&](int64_t tap, int64_t place) {
        const T* pixel = image + place * s.in_channels;
        if (s.depthwise()) return add_products(sum, pixel, filter + tap * s.groups, s.groups);
        for (int64_t c = 0; c < s.group_in; ++c) {
          const T* weights = filter + (tap * s.group_in + c) * s.out_channels;
          for (int64_t g = 0; g < s.groups; ++g) {
            const T value = pixel[g * s.group_in + c];
            for (int64_t o = g * s.group_out; o < (g + 1) * s.group_out; ++o) sum[o] += value * weights[o];
          }
        }
      });
      T* result = y + (row * s.output[2] + at[2]) * s.out_channels;
      for (int64_t o = 0; o < s.out_channels; ++o) result[o] = bias ? sum[o] + bias[o] : sum[o];
    }
  }

  // dx[p][c] = sum over windows o and taps t with under(o, t) = p of dy[o] . w[t][c]; `row` is one of dx.
  static void backprop_input(const ConvPlaces& s, const T* filter, const T* dy, T* dx, int64_t row, T* sum) {
    const int64_t n = row / (s.input[0] * s.input[1]);
    int64_t at[3] = {row / s.input[1] % s.input[0], row % s.input[1], 0};
    const T* gradients = dy + n * s.volume(s.output) * s.out_channels;
    for (; at[2] < s.input[2]; ++at[2]) {
      std::fill_n(sum, s.in_channels, T{0});
      s.each_tap(at, s.output, &ConvPlaces::window_over, [&](int64_t tap, int64_t place) {
        const T* gradient = gradients + place * s.out_channels;
        if (s.depthwise()) return add_products(sum, gradient, filter + tap * s.groups, s.groups);
        for (int64_t c = 0; c < s.in_channels; ++c) {
          const T* weights = filter + (tap * s.group_in + c % s.group_in) * s.out_channels;
          const int64_t first = c / s.group_in * s.group_out;
          T product = 0;
          for (int64_t o = first; o < first + s.group_out; ++o) product += gradient[o] * weights[o];
          sum[c] += product;
        }
      });
      T* result = dx + (row * s.input[2] + at[2]) * s.in_channels;
      for (int64_t c = 0; c < s.in_channels; ++c) result[c] = sum[c];
    }
  }

  // dw[t][c] = sum over windows o of x[under(o, t)][c] * dy[o]; `row` names tap and channel.
  static void backprop_filter(const ConvPlaces& s, const T* x, const T* dy, T* dfilter, int64_t row, T* sum) {
    const int64_t c = row % s.group_in, tap = row / s.group_in;
    const int64_t p = tap / s.size[2] / s.size[1], i = tap / s.size[2] % s.size[1], j = tap % s.size[2];
    std::fill_n(sum, s.out_channels, T{0});
    const T* gradient = dy;
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t od = 0; od < s.output[0]; ++od)
        for (int64_t oh = 0; oh < s.output[1]; ++oh) {
          const int64_t d = s.under(0, od, p), h = s.under(1, oh, i);
          for (int64_t ow = 0; ow < s.output[2]; ++ow, gradient += s.out_channels) {
            const int64_t w = s.under(2, ow, j);
            if (d < 0 || h < 0 || w < 0) continue;
            const T* pixel = x + (((n * s.input[0] + d) * s.input[1] + h) * s.input[2] + w) * s.in_channels;
            if (s.depthwise()) {
              add_products(sum, pixel, gradient, s.groups);
              continue;
            }
            for (int64_t g = 0; g < s.groups; ++g) {
              const T value = pixel[g * s.group_in + c];
              for (int64_t o = g * s.group_out; o < (g + 1) * s.group_out; ++o) sum[o] += value * gradient[o];
            }
          }
        }
    T* result = dfilter + row * s.out_channels;
    for (int64_t o = 0; o < s.out_channels; ++o) result[o] = sum[o];
  }
};

class ConvLoops final : public Kernel {
 public:
  ConvLoops(const KernelRequest& request, const Shape& x, const Shape& y)
      : direction_(conv_direction(request.op)),
        bias_(request.attrs<ConvAttrs>().bias),
        places_(request, x, y),
        dtype_(request.dtype(0)),
        threads_(request.threads) {
    switch (direction_) {
      case ConvDirection::forward: rows_ = places_.batch * places_.output[0] * places_.output[1]; break;
      case ConvDirection::backprop_input: rows_ = places_.batch * places_.input[0] * places_.input[1]; break;
      case ConvDirection::backprop_filter: rows_ = ConvPlaces::volume(places_.size) * places_.group_in; break;
    }
    sum_bytes_ =
        (static_cast<size_t>(std::max(places_.in_channels, places_.out_channels)) * sizeof(double) + 63) /
        64 * 64;
  }

  size_t workspace_bytes() const override { return sum_bytes_ * static_cast<size_t>(threads_); }

  void launch(const LaunchArgs& args) const override {
    parallel(threads_, [&](int index) {
      void* sum = static_cast<char*>(args.workspace) + sum_bytes_ * static_cast<size_t>(index);
      for (int64_t row = rows_ * index / threads_; row < rows_ * (index + 1) / threads_; ++row)
        if (dtype_ == DType::float64)
          make_row<double>(args, row, sum);
        else
          make_row<float>(args, row, sum);
    });
  }

 private:
  template <class T>
  void make_row(const LaunchArgs& args, int64_t row, void* memory) const {
    const T *a = static_cast<const T*>(args.inputs[0]), *b = static_cast<const T*>(args.inputs[1]);
    T* out = static_cast<T*>(args.outputs[0]);
    T* sum = static_cast<T*>(memory);
    switch (direction_) {
      case ConvDirection::forward: {
        const T* bias = bias_ ? static_cast<const T*>(args.inputs[2]) : nullptr;
        return Loops<T>::forward(places_, a, b, bias, out, row, sum);
      }
      case ConvDirection::backprop_input: return Loops<T>::backprop_input(places_, a, b, out, row, sum);
      case ConvDirection::backprop_filter: return Loops<T>::backprop_filter(places_, a, b, out, row, sum);
    }
  }

  ConvDirection direction_;
  bool bias_;
  ConvPlaces places_;
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
