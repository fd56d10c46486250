#include "ops/nn/conv_loops_cuda.h"

#include "backends/cuda/activation.h"
#include "backends/cuda/block.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"

namespace lockstep::cuda {
namespace {

// Planes, rows and columns. Channels are those of all groups.
struct Sizes {
  int64_t batch, in_channels, out_channels, group_in, group_out;
  int64_t input[3], output[3], size[3], stride[3], dilation[3], before[3];

  Sizes(const ConvAttrs& attrs, const Shape& x, const Shape& y)
      : batch(x[0]),
        in_channels(x[-1]),
        out_channels(y[-1]),
        group_in(in_channels / attrs.groups),
        group_out(out_channels / attrs.groups) {
    const Window window = lift(attrs.window, 3);
    for (int axis = 0; axis < 3; ++axis) {
      input[axis] = window.input[axis], output[axis] = window.output(axis), size[axis] = window.size[axis];
      stride[axis] = window.strides[axis], dilation[axis] = window.dilations[axis],
      before[axis] = window.before[axis];
    }
  }

  // The image's plane (row, column) under tap `tap` of window `o`, or -1 on padding.
  __device__ int64_t under(int axis, int64_t o, int64_t tap) const {
    const int64_t position = o * stride[axis] - before[axis] + tap * dilation[axis];
    return position >= 0 && position < input[axis] ? position : -1;
  }
  // The window whose tap `tap` lies on `position`, or -1.
  __device__ int64_t window_over(int axis, int64_t position, int64_t tap) const {
    const int64_t start = position + before[axis] - tap * dilation[axis];
    if (start < 0 || start % stride[axis] != 0 || start / stride[axis] >= output[axis]) return -1;
    return start / stride[axis];
  }

  // f(tap, place) for every tap at which `find` gives a place; places count planes, rows and columns in one
  // number.
  template <bool from_windows, class F>
  __device__ void each_tap(int64_t plane, int64_t row, int64_t column, F f) const {
    const int64_t(&sizes)[3] = from_windows ? input : output;
    const auto find = [&](int axis, int64_t at, int64_t tap) {
      return from_windows ? under(axis, at, tap) : window_over(axis, at, tap);
    };
    for (int64_t p = 0; p < size[0]; ++p) {
      const int64_t a = find(0, plane, p);
      if (a < 0) continue;
      for (int64_t i = 0; i < size[1]; ++i) {
        const int64_t b = find(1, row, i);
        if (b < 0) continue;
        for (int64_t j = 0; j < size[2]; ++j)
          if (const int64_t c = find(2, column, j); c >= 0)
            f((p * size[1] + i) * size[2] + j, (a * sizes[1] + b) * sizes[2] + c);
      }
    }
  }
};

// y[o] = sum over taps t and channels c of x[under(o, t)][c] * w[t][c]
template <class T>
__global__ void forward(Sizes s, const T* x, const T* filter, const T* bias, Epilogue epilogue, T* y,
                        int64_t elements) {
  using C = Real<T>;
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    const int64_t o = i % s.out_channels, pixel = i / s.out_channels;
    const int64_t column = pixel % s.output[2], row = pixel / s.output[2] % s.output[1],
                  plane = pixel / s.output[2] / s.output[1] % s.output[0],
                  n = pixel / s.output[2] / s.output[1] / s.output[0];
    const int64_t first = o / s.group_out * s.group_in;
    C sum = 0;
    s.each_tap<true>(plane, row, column, [&](int64_t tap, int64_t place) {
      const T* from = x + (n * s.input[0] * s.input[1] * s.input[2] + place) * s.in_channels + first;
      const T* weights = filter + tap * s.group_in * s.out_channels + o;
      for (int64_t c = 0; c < s.group_in; ++c)
        sum += static_cast<C>(from[c]) * static_cast<C>(weights[c * s.out_channels]);
    });
    if (bias) sum += static_cast<C>(bias[o]);
    y[i] = static_cast<T>(activated(epilogue, sum));
  }
}

// dx[p][c] = sum over windows o and taps t with under(o, t) = p of dy[o] . w[t][c]
template <class T>
__global__ void backprop_input(Sizes s, const T* filter, const T* dy, T* dx, int64_t elements) {
  using C = Real<T>;
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    const int64_t c = i % s.in_channels, pixel = i / s.in_channels;
    const int64_t column = pixel % s.input[2], row = pixel / s.input[2] % s.input[1],
                  plane = pixel / s.input[2] / s.input[1] % s.input[0],
                  n = pixel / s.input[2] / s.input[1] / s.input[0];
    const int64_t first = c / s.group_in * s.group_out;
    C sum = 0;
    s.each_tap<false>(plane, row, column, [&](int64_t tap, int64_t place) {
      const T* from = dy + (n * s.output[0] * s.output[1] * s.output[2] + place) * s.out_channels;
      const T* weights = filter + (tap * s.group_in + c % s.group_in) * s.out_channels;
      for (int64_t o = first; o < first + s.group_out; ++o)
        sum += static_cast<C>(from[o]) * static_cast<C>(weights[o]);
    });
    dx[i] = static_cast<T>(sum);
  }
}

// dw[t][c][o] = sum over windows of x[under(window, t)][c] * dy[window][o]; one warp per element.
template <class T>
__global__ void backprop_filter(Sizes s, const T* x, const T* dy, T* dfilter, int64_t elements) {
  using C = Real<T>;
  const int64_t windows = s.output[0] * s.output[1] * s.output[2], all = s.batch * windows;
  const int lane = threadIdx.x % kWarp;
  for (int64_t i = first_index() / kWarp; i < elements; i += index_step() / kWarp) {
    const int64_t o = i % s.out_channels, c = i / s.out_channels % s.group_in,
                  tap = i / s.out_channels / s.group_in;
    const int64_t p = tap / s.size[2] / s.size[1], r = tap / s.size[2] % s.size[1], q = tap % s.size[2];
    const int64_t channel = o / s.group_out * s.group_in + c;
    C sum = 0;
    for (int64_t k = lane; k < all; k += kWarp) {
      const int64_t n = k / windows, w = k % windows;
      const int64_t plane = s.under(0, w / s.output[2] / s.output[1], p),
                    row = s.under(1, w / s.output[2] % s.output[1], r),
                    column = s.under(2, w % s.output[2], q);
      if (plane < 0 || row < 0 || column < 0) continue;
      const int64_t pixel = ((n * s.input[0] + plane) * s.input[1] + row) * s.input[2] + column;
      sum += static_cast<C>(x[pixel * s.in_channels + channel]) * static_cast<C>(dy[k * s.out_channels + o]);
    }
    sum = warp_fold(sum, Add());
    if (lane == 0) dfilter[i] = static_cast<T>(sum);
  }
}

template <class T>
__global__ void epilogue_in_place(T* y, const T* bias, Epilogue epilogue, int64_t elements,
                                  Divider channels) {
  using C = Real<T>;
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    C v = static_cast<C>(y[i]);
    if (bias) v += static_cast<C>(bias[i - channels.quotient(i) * channels.divisor()]);
    y[i] = static_cast<T>(activated(epilogue, v));
  }
}

class ConvLoops final : public Kernel {
 public:
  ConvLoops(const KernelRequest& request, const Shape& x, const Shape& y)
      : direction_(conv_direction(request.op)),
        attrs_(request.attrs<ConvAttrs>()),
        sizes_(attrs_, x, y),
        dtype_(request.dtype(0)),
        elements_(request.outputs[0].spec.shape.size()) {}

  void launch(const LaunchArgs& args) const override {
    if (elements_ == 0) return;
    dispatch_floats(dtype_, [&]<class T>() {
      const cudaStream_t stream = stream_of(args);
      const auto *a = static_cast<const T*>(args.inputs[0]), *b = static_cast<const T*>(args.inputs[1]);
      auto* out = static_cast<T*>(args.outputs[0]);
      switch (direction_) {
        case ConvDirection::forward:
          forward<<<blocks_for(elements_), kThreads, 0, stream>>>(
              sizes_, a, b, attrs_.bias ? static_cast<const T*>(args.inputs[2]) : nullptr, attrs_.epilogue,
              out, elements_);
          break;
        case ConvDirection::backprop_input:
          backprop_input<<<blocks_for(elements_), kThreads, 0, stream>>>(sizes_, a, b, out, elements_);
          break;
        case ConvDirection::backprop_filter:
          backprop_filter<<<blocks_for(elements_ * kWarp), kThreads, 0, stream>>>(sizes_, a, b, out,
                                                                                  elements_);
          break;
      }
    });
    launched();
  }

 private:
  ConvDirection direction_;
  ConvAttrs attrs_;
  Sizes sizes_;
  DType dtype_;
  int64_t elements_;
};

// A thread makes 8 channels of a folded pixel.
__global__ void fold_pixels(const FoldedConvolution c, const uint16_t* x, uint4* folded, int64_t units,
                            Divider per_pixel, Divider width, Divider height) {
  for (int64_t i = first_index(); i < units; i += index_step()) {
    const int64_t pixel = per_pixel.quotient(i), line = width.quotient(pixel), n = height.quotient(line);
    const int first = static_cast<int>(i - pixel * per_pixel.divisor()) * 8;
    const int row = static_cast<int>(line - n * height.divisor()) * 2 - static_cast<int>(c.before_rows);
    const int column =
        static_cast<int>(pixel - line * width.divisor()) * 2 - static_cast<int>(c.before_columns);
    const int channels = static_cast<int>(c.channels);
    uint32_t words[4] = {};
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int place = (first + k) / channels, channel = first + k - place * channels;
      const int r = row + place / 2, q = column + place % 2;
      if (place < 4 && r >= 0 && r < c.height && q >= 0 && q < c.width)
        words[k / 2] |= static_cast<uint32_t>(x[((n * c.height + r) * c.width + q) * channels + channel])
                        << (k % 2 * 16);
    }
    folded[i] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Where an element of the filter lies among the folded ones.
__device__ int64_t folded_place(const FoldedConvolution& c, int64_t row, int64_t column, int64_t channel,
                                int64_t filter) {
  const int64_t place = (row % 2) * 2 + column % 2;
  return ((filter * c.folded_rows() + row / 2) * c.folded_columns() + column / 2) * c.folded_channels() +
         place * c.channels + channel;
}

// `folded` has been cleared where it is written.
template <bool back>
__global__ void move_filter(FoldedConvolution c, uint16_t* filter, uint16_t* folded, int64_t elements) {
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    const int64_t tap = i / (c.channels * c.filters), rest = i - tap * c.channels * c.filters;
    const int64_t at = folded_place(c, tap / c.columns, tap % c.columns, rest / c.filters, rest % c.filters);
    if (back)
      filter[i] = folded[at];
    else
      folded[at] = filter[i];
  }
}

}  // namespace

std::unique_ptr<Kernel> prepare_conv_loops(const KernelRequest& request) {
  const Shape& result = request.outputs[0].spec.shape;
  switch (conv_direction(request.op)) {
    case ConvDirection::backprop_input: return std::make_unique<ConvLoops>(request, result, request.shape(1));
    case ConvDirection::backprop_filter:
      return std::make_unique<ConvLoops>(request, request.shape(0), request.shape(1));
    case ConvDirection::forward: break;
  }
  return std::make_unique<ConvLoops>(request, request.shape(0), result);
}

void FoldedConvolution::fold_images(const void* x, void* folded, cudaStream_t stream) const {
  const int64_t per_pixel = folded_channels() / 8, units = image_elements() / 8;
  fold_pixels<<<blocks_for(units), kThreads, 0, stream>>>(
      *this, static_cast<const uint16_t*>(x), static_cast<uint4*>(folded), units, Divider(per_pixel),
      Divider(folded_width()), Divider(folded_height()));
  launched();
}

void FoldedConvolution::fold_filter(const void* filter, void* folded, cudaStream_t stream) const {
  const int64_t elements = rows * columns * channels * filters;
  check(cudaMemsetAsync(folded, 0, static_cast<size_t>(filter_elements()) * 2, stream), "cudaMemsetAsync");
  move_filter<false><<<blocks_for(elements), kThreads, 0, stream>>>(
      *this, static_cast<uint16_t*>(const_cast<void*>(filter)), static_cast<uint16_t*>(folded), elements);
  launched();
}

void FoldedConvolution::unfold_filter(const void* folded, void* filter, cudaStream_t stream) const {
  const int64_t elements = rows * columns * channels * filters;
  move_filter<true><<<blocks_for(elements), kThreads, 0, stream>>>(
      *this, static_cast<uint16_t*>(filter), static_cast<uint16_t*>(const_cast<void*>(folded)), elements);
  launched();
}

void apply_epilogue(DType dtype, void* y, const void* bias, Epilogue epilogue, int64_t rows, int64_t channels,
                    cudaStream_t stream) {
  if (rows * channels == 0) return;
  dispatch_floats(dtype, [&]<class T>() {
    epilogue_in_place<<<blocks_for(rows * channels), kThreads, 0, stream>>>(
        static_cast<T*>(y), static_cast<const T*>(bias), epilogue, rows * channels, Divider(channels));
  });
  launched();
}

}  // namespace lockstep::cuda
