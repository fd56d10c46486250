#include "ops/nn/conv_direct_cuda.h"

#include "backends/cuda/activation.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "ops/nn/conv.h"

namespace lockstep::cuda {
namespace {

constexpr int kRank = 3;      // planes, rows and columns: images of fewer dimensions have one of the first
constexpr int kOutputs = 8;   // channels of a pixel that a thread computes
constexpr int kElements = 4;  // of a filter's gradient that a thread adds up
constexpr int kPartLanes = 8;

struct Geometry {
  int batch, in, out;
  int input[kRank], output[kRank], size[kRank], stride[kRank], dilation[kRank], before[kRank];
  int pixels = 1, windows = 1, taps = 1;

  Geometry(const Window& given, const Shape& x, const Shape& y)
      : batch(static_cast<int>(x[0])), in(static_cast<int>(x[-1])), out(static_cast<int>(y[-1])) {
    const Window window = lift(given, kRank);
    for (int axis = 0; axis < kRank; ++axis) {
      input[axis] = static_cast<int>(window.input[axis]),
      output[axis] = static_cast<int>(window.output(axis));
      size[axis] = static_cast<int>(window.size[axis]), stride[axis] = static_cast<int>(window.strides[axis]);
      dilation[axis] = static_cast<int>(window.dilations[axis]),
      before[axis] = static_cast<int>(window.before[axis]);
      pixels *= input[axis], windows *= output[axis], taps *= size[axis];
    }
  }
};

__device__ inline void load(float* to, const float* from, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) to[i] = from[i];
}

// One image's pixels, each a sum over the taps of the window. Forward, a tap of window `at` lies on a pixel
// of x; backward, pixel `at` lies under a tap of a window of y.
template <bool backward>
__global__ void __launch_bounds__(kThreads)
    sum_over_taps(const __grid_constant__ Geometry g, const float* images, const float* filter,
                  const float* bias, Epilogue epilogue, float* results) {
  extern __shared__ __align__(16) float memory[];
  const int from_channels = backward ? g.out : g.in, to_channels = backward ? g.in : g.out;
  const int from_places = backward ? g.windows : g.pixels, to_places = backward ? g.pixels : g.windows;
  const int chunks = (to_channels + kOutputs - 1) / kOutputs, padded = chunks * kOutputs;
  // Weights [tap, from, to], rows padded with zeros.
  float* const weights = memory;
  float* const image = memory + g.taps * from_channels * padded;
  for (int i = static_cast<int>(threadIdx.x); i < g.taps * from_channels * padded; i += kThreads) {
    const int to = i % padded, from = i / padded % from_channels, tap = i / padded / from_channels;
    const int in = backward ? to : from, out = backward ? from : to;
    weights[i] = to < to_channels ? filter[(tap * g.in + in) * g.out + out] : 0.f;
  }
  load(image, images + static_cast<int64_t>(blockIdx.x) * from_places * from_channels,
       from_places * from_channels);
  __syncthreads();
  const int(&to_size)[kRank] = backward ? g.input : g.output;
  const int(&from_size)[kRank] = backward ? g.output : g.input;
  const int step = static_cast<int>(gridDim.y) * kThreads;
  for (int i = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
       i < to_places * chunks; i += step) {
    const int chunk = i / to_places, place = i % to_places;
    const int at[kRank] = {place / to_size[2] / to_size[1], place / to_size[2] % to_size[1],
                           place % to_size[2]};
    // The place under a tap along an axis, -1: none.
    const auto under = [&](int axis, int tap) {
      int position = 0;
      if constexpr (backward) {
        position = at[axis] + g.before[axis] - tap * g.dilation[axis];
        if (g.stride[axis] > 1)
          position = position >= 0 && position % g.stride[axis] == 0 ? position / g.stride[axis] : -1;
      } else {
        position = at[axis] * g.stride[axis] - g.before[axis] + tap * g.dilation[axis];
      }
      return position < from_size[axis] ? position : -1;
    };
    float sums[kOutputs] = {};
    for (int p = 0; p < g.size[0]; ++p) {
      const int plane = under(0, p);
      if (plane < 0) continue;
      for (int r = 0; r < g.size[1]; ++r) {
        const int row = under(1, r);
        if (row < 0) continue;
        for (int q = 0; q < g.size[2]; ++q) {
          const int column = under(2, q);
          if (column < 0) continue;
          const float* const x =
              image + ((plane * from_size[1] + row) * from_size[2] + column) * from_channels;
          const float* w =
              weights + ((p * g.size[1] + r) * g.size[2] + q) * from_channels * padded + chunk * kOutputs;
          for (int c = 0; c < from_channels; ++c, w += padded) {
            const float factor = x[c];
            const float4 a = *reinterpret_cast<const float4*>(w), b = *reinterpret_cast<const float4*>(w + 4);
            sums[0] = fmaf(factor, a.x, sums[0]), sums[1] = fmaf(factor, a.y, sums[1]);
            sums[2] = fmaf(factor, a.z, sums[2]), sums[3] = fmaf(factor, a.w, sums[3]);
            sums[4] = fmaf(factor, b.x, sums[4]), sums[5] = fmaf(factor, b.y, sums[5]);
            sums[6] = fmaf(factor, b.z, sums[6]), sums[7] = fmaf(factor, b.w, sums[7]);
          }
        }
      }
    }
    float* const to = results + (static_cast<int64_t>(blockIdx.x) * to_places + place) * to_channels;
#pragma unroll
    for (int o = 0; o < kOutputs; ++o)
      if (const int channel = chunk * kOutputs + o; channel < to_channels)
        to[channel] = activated(epilogue, bias ? sums[o] + bias[channel] : sums[o]);
  }
}

// The gradient of a filter over some of the images: parts[blockIdx.x] of all blocks are added up by
// add_parts.
__global__ void __launch_bounds__(kThreads)
    filter_gradient(const __grid_constant__ Geometry g, const float* x, const float* dy, float* parts) {
  extern __shared__ __align__(16) float memory[];
  float *const image = memory, *const gradient = memory + g.pixels * g.in;
  const int elements = g.taps * g.in * g.out;
  int first[kElements], channel[kElements], low[kElements][kRank], high[kElements][kRank];
  float sums[kElements] = {};
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int element =
        (static_cast<int>(blockIdx.y) * kElements + e) * kThreads + static_cast<int>(threadIdx.x);
    int tap = element / g.out / g.in;
    channel[e] = element % g.out;
    first[e] = element / g.out % g.in;
    int stride = g.in;
#pragma unroll
    for (int axis = kRank - 1; axis >= 0; --axis) {
      // The windows whose tap lies on the image: 0 <= window * stride + shift < input.
      const int shift = tap % g.size[axis] * g.dilation[axis] - g.before[axis];
      tap /= g.size[axis];
      low[e][axis] = shift >= 0 ? 0 : (-shift + g.stride[axis] - 1) / g.stride[axis];
      const int last = g.input[axis] - 1 - shift;
      high[e][axis] = last < 0 ? 0 : min(g.output[axis], last / g.stride[axis] + 1);
      if (element >= elements) high[e][axis] = 0;
      first[e] += shift * stride;
      stride *= g.input[axis];
    }
  }
  for (int n = static_cast<int>(blockIdx.x); n < g.batch; n += static_cast<int>(gridDim.x)) {
    __syncthreads();
    load(image, x + static_cast<int64_t>(n) * g.pixels * g.in, g.pixels * g.in);
    load(gradient, dy + static_cast<int64_t>(n) * g.windows * g.out, g.windows * g.out);
    __syncthreads();
    const int column_step = g.stride[2] * g.in, row_step = g.stride[1] * g.input[2] * g.in,
              plane_step = g.stride[0] * g.input[1] * g.input[2] * g.in;
#pragma unroll
    for (int e = 0; e < kElements; ++e)
      for (int p = low[e][0]; p < high[e][0]; ++p)
        for (int r = low[e][1]; r < high[e][1]; ++r) {
          const float* from = image + first[e] + p * plane_step + r * row_step + low[e][2] * column_step;
          const float* by = gradient + ((p * g.output[1] + r) * g.output[2] + low[e][2]) * g.out + channel[e];
#pragma unroll 4
          for (int q = low[e][2]; q < high[e][2]; ++q, from += column_step, by += g.out)
            sums[e] = fmaf(*from, *by, sums[e]);
        }
  }
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int element =
        (static_cast<int>(blockIdx.y) * kElements + e) * kThreads + static_cast<int>(threadIdx.x);
    if (element < elements) parts[static_cast<int64_t>(blockIdx.x) * elements + element] = sums[e];
  }
}

// Every kPartLanes-th part is one thread's; their sums are added in order.
__global__ void __launch_bounds__(kThreads)
    add_filter_parts(const float* parts, int count, int elements, float* result) {
  constexpr int kEach = kThreads / kPartLanes;
  __shared__ float shared[kPartLanes][kEach];
  const int lane = static_cast<int>(threadIdx.x) / kEach, column = static_cast<int>(threadIdx.x) % kEach;
  const int element = static_cast<int>(blockIdx.x) * kEach + column;
  float sum = 0.f;
  if (element < elements)
#pragma unroll 8
    for (int part = lane; part < count; part += kPartLanes)
      sum += parts[static_cast<int64_t>(part) * elements + element];
  shared[lane][column] = sum;
  __syncthreads();
  if (lane > 0 || element >= elements) return;
#pragma unroll
  for (int other = 1; other < kPartLanes; ++other) sum += shared[other][column];
  result[element] = sum;
}

constexpr size_t kMostShared = size_t{96} << 10;
constexpr int kFewChannels = 8;
constexpr int64_t kMostWeights = 8192;
constexpr int kMostParts = 256;

class DirectConv final : public Kernel {
 public:
  DirectConv(const KernelRequest& request, const Shape& x, const Shape& y)
      : direction_(conv_direction(request.op)),
        attrs_(request.attrs<ConvAttrs>()),
        geometry_(attrs_.window, x, y) {}

  // In shared memory.
  size_t bytes() const {
    const Geometry& g = geometry_;
    const auto padded = [](int channels) { return ceil_div(channels, kOutputs) * kOutputs; };
    int64_t floats = 0;
    switch (direction_) {
      case ConvDirection::forward:
        floats = int64_t{g.taps} * g.in * padded(g.out) + int64_t{g.pixels} * g.in;
        break;
      case ConvDirection::backprop_input:
        floats = int64_t{g.taps} * g.out * padded(g.in) + int64_t{g.windows} * g.out;
        break;
      case ConvDirection::backprop_filter:
        floats = int64_t{g.pixels} * g.in + int64_t{g.windows} * g.out;
        break;
    }
    return static_cast<size_t>(floats) * sizeof(float);
  }

  size_t workspace_bytes() const override {
    return direction_ == ConvDirection::backprop_filter
               ? sizeof(float) * static_cast<size_t>(parts()) * static_cast<size_t>(elements())
               : 0;
  }

  void launch(const LaunchArgs& args) const override {
    const Geometry& g = geometry_;
    const cudaStream_t stream = stream_of(args);
    const auto *first = static_cast<const float*>(args.inputs[0]),
               *second = static_cast<const float*>(args.inputs[1]);
    auto* const result = static_cast<float*>(args.outputs[0]);
    const auto images = static_cast<unsigned>(g.batch);
    // Of these kernels on this GPU: with every launch, for a program may use several.
    for (const auto* kernel :
         {reinterpret_cast<const void*>(sum_over_taps<false>),
          reinterpret_cast<const void*>(sum_over_taps<true>), reinterpret_cast<const void*>(filter_gradient)})
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(kMostShared)),
            "cudaFuncSetAttribute");
    switch (direction_) {
      case ConvDirection::forward:
        sum_over_taps<false><<<dim3(images, slices(g.windows, g.out)), kThreads, bytes(), stream>>>(
            g, first, second, attrs_.bias ? static_cast<const float*>(args.inputs[2]) : nullptr,
            attrs_.epilogue, result);
        break;
      case ConvDirection::backprop_input:
        sum_over_taps<true><<<dim3(images, slices(g.pixels, g.in)), kThreads, bytes(), stream>>>(
            g, second, first, nullptr, Epilogue::none, result);
        break;
      case ConvDirection::backprop_filter:
        filter_gradient<<<dim3(static_cast<unsigned>(parts()),
                               static_cast<unsigned>(ceil_div(elements(), kThreads * kElements))),
                          kThreads, bytes(), stream>>>(g, first, second, static_cast<float*>(args.workspace));
        launched();
        add_filter_parts<<<static_cast<unsigned>(ceil_div(elements(), kThreads / kPartLanes)), kThreads, 0,
                           stream>>>(static_cast<const float*>(args.workspace), parts(), elements(), result);
        break;
    }
    launched();
  }

 private:
  int elements() const { return geometry_.taps * geometry_.in * geometry_.out; }
  int parts() const { return std::min(geometry_.batch, kMostParts); }
  // Blocks of an image: enough for a GPU, and each with something to do.
  unsigned slices(int places, int channels) const {
    constexpr int kBlocksWanted = 264;
    const int items = places * ceil_div(channels, kOutputs);
    return static_cast<unsigned>(
        std::clamp(ceil_div(kBlocksWanted, geometry_.batch), 1, ceil_div(items, kThreads)));
  }

  ConvDirection direction_;
  ConvAttrs attrs_;
  Geometry geometry_;
};

}  // namespace

std::unique_ptr<Kernel> prepare_conv_direct(const KernelRequest& request) {
  const ConvDirection direction = conv_direction(request.op);
  const auto& attrs = request.attrs<ConvAttrs>();
  const Shape& result = request.outputs[0].spec.shape;
  const Shape& x = direction == ConvDirection::backprop_input ? result : request.shape(0);
  const Shape& y = direction == ConvDirection::forward ? result : request.shape(1);
  if (request.dtype(0) != DType::float32 || attrs.groups != 1 || attrs.window.rank() > kRank) return nullptr;
  constexpr int64_t kMostElements = int64_t{1} << 24;
  const int64_t weights = attrs.window.taps() * x[-1] * y[-1];
  const int64_t places =
      std::max(x.size() / std::max<int64_t>(1, x[0] * x[-1]), y.size() / std::max<int64_t>(1, y[0] * y[-1]));
  if (std::min(x[-1], y[-1]) >= kFewChannels || weights > kMostWeights || weights == 0 || x.size() == 0 ||
      y.size() == 0 || places > kMostElements || x[0] > kMostElements)
    return nullptr;
  for (int axis = 0; axis < attrs.window.rank(); ++axis)
    if (attrs.window.extent(axis) > kMostElements || attrs.window.before[axis] > kMostElements ||
        attrs.window.strides[axis] > kMostElements)
      return nullptr;
  auto kernel = std::make_unique<DirectConv>(request, x, y);
  if (kernel->bytes() > kMostShared) return nullptr;
  return kernel;
}

}  // namespace lockstep::cuda
