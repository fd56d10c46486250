#include "ops/nn/conv_tf32x3_cuda.h"

#include "backends/cuda/launch.h"
#include "backends/cuda/tf32x3_product.h"
#include "ops/nn/conv.h"

namespace lockstep::cuda {
namespace {

using tf32x3::Finish;
using tf32x3::ProductSize;

// Planes, rows and columns: images of fewer dimensions have one of the first.
constexpr int kRank = 3;

struct Geometry {
  int input[kRank], output[kRank], stride[kRank], dilation[kRank], before[kRank];
  int in_channels = 0, out_channels = 0;
  Divider taps_across, taps_down;             // of the window
  Divider of_input[kRank], of_output[kRank];  // by the sizes of images
  Divider of_stride[kRank];
  Divider by_in_channels, by_out_channels;

  Geometry(const Window& given, int in, int out) : in_channels(in), out_channels(out) {
    const Window window = lift(given, kRank);
    for (int axis = 0; axis < kRank; ++axis) {
      input[axis] = static_cast<int>(window.input[axis]),
      output[axis] = static_cast<int>(window.output(axis));
      stride[axis] = static_cast<int>(window.strides[axis]),
      dilation[axis] = static_cast<int>(window.dilations[axis]);
      before[axis] = static_cast<int>(window.before[axis]);
      of_input[axis] = Divider(input[axis]), of_output[axis] = Divider(output[axis]);
      of_stride[axis] = Divider(stride[axis]);
    }
    taps_down = Divider(window.size[1]), taps_across = Divider(window.size[2]);
    by_in_channels = Divider(in), by_out_channels = Divider(out);
  }
};

__device__ inline int divide(int n, const Divider& divider, int& rest) {
  const auto quotient = static_cast<int>(divider.quotient(n));
  rest = n - quotient * static_cast<int>(divider.divisor());
  return quotient;
}

// A place among images of a batch, as its image's first element and the position in it.
struct Pixel {
  int image = 0;
  int at[kRank];
};
// A tap of the window, as its distance from the first, and a channel.
struct Tap {
  int channel = 0;
  int at[kRank];
};

__device__ inline void positions(int index, const Divider (&sizes)[kRank], int& image, int (&at)[kRank]) {
  index = divide(index, sizes[2], at[2]);
  index = divide(index, sizes[1], at[1]);
  image = divide(index, sizes[0], at[0]);
}
__device__ inline Tap tap_of(const Geometry& g, int index, const Divider& channels) {
  Tap tap;
  int number = divide(index, channels, tap.channel);
  number = divide(number, g.taps_across, tap.at[2]);
  tap.at[0] = divide(number, g.taps_down, tap.at[1]);
#pragma unroll
  for (int axis = 0; axis < kRank; ++axis) tap.at[axis] *= g.dilation[axis];
  return tap;
}
constexpr int kNowhere = -(1 << 29);  // a position that no tap brings back into an image

// The images that windows lie on: the left factor of a convolution (a row is a window, the inner dimension
// are its taps and channels), and, the other way round, of the gradient of a filter.
template <bool windows_are_rows>
class WindowedImages {
 public:
  static constexpr bool kByDepth = windows_are_rows;
  using Outer = std::conditional_t<windows_are_rows, Pixel, Tap>;
  using Inner = std::conditional_t<windows_are_rows, Tap, Pixel>;

  WindowedImages(const Geometry& geometry, const float* x, int outers)
      : geometry_(geometry), x_(x), outers_(outers) {
    vectors_ = geometry.in_channels % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
    image_elements_ = geometry.in_channels;
    for (const int size : geometry.input) image_elements_ *= size;
  }

  __device__ const WindowedImages& of_batch(int) const { return *this; }
  __device__ const float* data() const { return x_; }
  __device__ bool vectors() const { return vectors_; }
  __device__ Outer outer(int index) const {
    if constexpr (windows_are_rows)
      return window(index, index < outers_);
    else
      return tap(index, index < outers_);
  }
  __device__ Inner inner(int k) const {
    if constexpr (windows_are_rows)
      return tap(k, true);
    else
      return window(k, true);
  }
  __device__ const float* at(const Pixel& window, const Tap& tap) const {
    int place = 0;
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < kRank; ++axis) {
      const int position = window.at[axis] + tap.at[axis];
      inside = inside && static_cast<unsigned>(position) < static_cast<unsigned>(geometry_.input[axis]);
      place = place * geometry_.input[axis] + position;
    }
    return inside ? x_ + (window.image + place * geometry_.in_channels + tap.channel) : nullptr;
  }
  __device__ const float* at(const Tap& tap, const Pixel& window) const { return at(window, tap); }

 private:
  __device__ Pixel window(int index, bool exists) const {
    Pixel window;
    int image = 0;
    positions(index, geometry_.of_output, image, window.at);
    window.image = image * image_elements_;
#pragma unroll
    for (int axis = 0; axis < kRank; ++axis)
      window.at[axis] = exists ? window.at[axis] * geometry_.stride[axis] - geometry_.before[axis] : kNowhere;
    return window;
  }
  __device__ Tap tap(int index, bool exists) const {
    Tap tap = tap_of(geometry_, index, geometry_.by_in_channels);
    if (!exists) tap.at[0] = kNowhere;
    return tap;
  }

  Geometry geometry_;
  const float* x_;
  int outers_, image_elements_ = 1;
  bool vectors_;
};

// The gradient of a convolution's result under the taps that reach a pixel of its images: the left factor of
// their gradient.
class WindowsOverPixels {
 public:
  static constexpr bool kByDepth = true;
  using Outer = Pixel;
  using Inner = Tap;

  WindowsOverPixels(const Geometry& geometry, const float* dy, int outers)
      : geometry_(geometry), dy_(dy), outers_(outers) {
    vectors_ = geometry.out_channels % 4 == 0 && reinterpret_cast<uintptr_t>(dy) % 16 == 0;
    image_elements_ = geometry.out_channels;
    for (const int size : geometry.output) image_elements_ *= size;
    for (const int stride : geometry.stride) strided_ = strided_ || stride > 1;
  }

  __device__ const WindowsOverPixels& of_batch(int) const { return *this; }
  __device__ const float* data() const { return dy_; }
  __device__ bool vectors() const { return vectors_; }
  __device__ Outer outer(int index) const {
    Pixel pixel;
    int image = 0;
    positions(index, geometry_.of_input, image, pixel.at);
    pixel.image = image * image_elements_;
#pragma unroll
    for (int axis = 0; axis < kRank; ++axis)
      pixel.at[axis] = index < outers_ ? pixel.at[axis] + geometry_.before[axis] : kNowhere;
    return pixel;
  }
  __device__ Inner inner(int k) const { return tap_of(geometry_, k, geometry_.by_out_channels); }
  __device__ const float* at(const Pixel& pixel, const Tap& tap) const {
    int place = 0;
    bool inside = true;
#pragma unroll
    for (int axis = 0; axis < kRank; ++axis) {
      int position = pixel.at[axis] - tap.at[axis], rest = 0;
      inside = inside && position >= 0;
      if (strided_) position = divide(max(position, 0), geometry_.of_stride[axis], rest);
      inside = inside && rest == 0 && position < geometry_.output[axis];
      place = place * geometry_.output[axis] + position;
    }
    return inside ? dy_ + (pixel.image + place * geometry_.out_channels + tap.channel) : nullptr;
  }

 private:
  Geometry geometry_;
  const float* dy_;
  int outers_, image_elements_ = 1;
  bool vectors_, strided_ = false;
};

// A dense matrix [inner, outers]: a filter [taps x in, out], or images' gradient [windows, out].
class DenseColumns {
 public:
  static constexpr bool kByDepth = false;
  using Outer = int;
  using Inner = int;
  DenseColumns(const float* data, int outers)
      : data_(data),
        outers_(outers),
        vectors_(outers % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0) {}
  __device__ const DenseColumns& of_batch(int) const { return *this; }
  __device__ const float* data() const { return data_; }
  __device__ bool vectors() const { return vectors_; }
  __device__ Outer outer(int index) const { return index < outers_ ? index : -1; }
  __device__ Inner inner(int k) const { return k * outers_; }
  __device__ const float* at(Outer outer, Inner inner) const {
    return outer >= 0 ? data_ + (outer + inner) : nullptr;
  }

 private:
  const float* data_;
  int outers_;
  bool vectors_;
};

// A filter [taps, in, out] with `in` as columns and (taps, out) as the inner dimension.
class FilterByTap {
 public:
  static constexpr bool kByDepth = true;
  using Outer = int;
  using Inner = int;
  FilterByTap(const Geometry& g, const float* filter)
      : filter_(filter),
        in_(g.in_channels),
        out_(g.out_channels),
        by_out_(g.by_out_channels),
        vectors_(out_ % 4 == 0 && reinterpret_cast<uintptr_t>(filter) % 16 == 0) {}
  __device__ const FilterByTap& of_batch(int) const { return *this; }
  __device__ const float* data() const { return filter_; }
  __device__ bool vectors() const { return vectors_; }
  __device__ Outer outer(int index) const { return index < in_ ? index * out_ : -1; }
  __device__ Inner inner(int k) const {
    int channel = 0;
    const int tap = divide(k, by_out_, channel);
    return tap * in_ * out_ + channel;
  }
  __device__ const float* at(Outer outer, Inner inner) const {
    return outer >= 0 ? filter_ + (outer + inner) : nullptr;
  }

 private:
  const float* filter_;
  int in_, out_;
  Divider by_out_;
  bool vectors_;
};

class Tf32x3Conv final : public Kernel {
 public:
  Tf32x3Conv(const KernelRequest& request, const Shape& x, const Shape& y)
      : direction_(conv_direction(request.op)),
        attrs_(request.attrs<ConvAttrs>()),
        geometry_(attrs_.window, static_cast<int>(x[-1]), static_cast<int>(y[-1])) {
    const auto in = static_cast<int>(x[-1]), out = static_cast<int>(y[-1]),
               taps = static_cast<int>(attrs_.window.taps()), pixels = static_cast<int>(x.size() / x[-1]),
               windows = static_cast<int>(y.size() / y[-1]);
    switch (direction_) {
      case ConvDirection::forward: size_ = {windows, out, taps * in}; break;
      case ConvDirection::backprop_input: size_ = {pixels, in, taps * out}; break;
      case ConvDirection::backprop_filter: size_ = {taps * in, out, windows}; break;
    }
    plan_ = tf32x3::make_plan(size_, tf32x3::this_gpu());
  }

  size_t workspace_bytes() const override { return plan_.workspace_bytes(size_); }

  void launch(const LaunchArgs& args) const override {
    const auto *first = static_cast<const float*>(args.inputs[0]),
               *second = static_cast<const float*>(args.inputs[1]);
    const auto run = [&](const auto& a, const auto& b, const Finish& finish) {
      tf32x3::launch_product(plan_, size_, a, b, finish, static_cast<float*>(args.outputs[0]),
                             static_cast<float*>(args.workspace), stream_of(args));
    };
    switch (direction_) {
      case ConvDirection::forward:
        return run(WindowedImages<true>(geometry_, first, size_.m), DenseColumns(second, size_.n),
                   Finish{attrs_.bias ? static_cast<const float*>(args.inputs[2]) : nullptr, nullptr,
                          attrs_.epilogue});
      case ConvDirection::backprop_input:
        return run(WindowsOverPixels(geometry_, second, size_.m), FilterByTap(geometry_, first), Finish{});
      case ConvDirection::backprop_filter:
        return run(WindowedImages<false>(geometry_, first, size_.m), DenseColumns(second, size_.n), Finish{});
    }
  }

 private:
  ConvDirection direction_;
  ConvAttrs attrs_;
  Geometry geometry_;
  ProductSize size_;
  tf32x3::Plan plan_;
};

}  // namespace

std::unique_ptr<Kernel> prepare_conv_tf32x3(const KernelRequest& request) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const ConvDirection direction = conv_direction(request.op);
  const auto& attrs = request.attrs<ConvAttrs>();
  const Shape& result = request.outputs[0].spec.shape;
  const Shape& x = direction == ConvDirection::backprop_input ? result : request.shape(0);
  const Shape& y = direction == ConvDirection::forward ? result : request.shape(1);
  if (request.dtype(0) != DType::float32 || attrs.groups != 1 || attrs.window.rank() > kRank) return nullptr;
  const int64_t filter = attrs.window.taps() * x[-1] * y[-1];
  if (x.size() == 0 || y.size() == 0 || filter == 0 || x.size() > kMost || y.size() > kMost ||
      filter > kMost || attrs.window.taps() * std::max(x[-1], y[-1]) > kMost)
    return nullptr;
  for (int axis = 0; axis < attrs.window.rank(); ++axis)
    if (attrs.window.extent(axis) > (1 << 28) || attrs.window.before[axis] > (1 << 28) ||
        attrs.window.input[axis] > (1 << 28) || attrs.window.strides[axis] > (1 << 28))
      return nullptr;
  return std::make_unique<Tf32x3Conv>(request, x, y);
}

}  // namespace lockstep::cuda
