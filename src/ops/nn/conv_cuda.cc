// Convolutions on GPUs by cuDNN. Images have the layout that it likes best; filters are transposed to its order. Padding
// that differs on the two sides, which few of its algorithms know, is written out.
#include "backends/cuda/cudnn_plan.h"
#include "backends/cuda/launch.h"
#include "ops/array/strided_copy_cuda.h"
#include "ops/nn/conv.h"
#include "ops/nn/conv_loops_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

CudnnDirection direction_of(const OpDef& op) {
  switch (conv_direction(op)) {
    case ConvDirection::backprop_input: return CudnnDirection::backprop_input;
    case ConvDirection::backprop_filter: return CudnnDirection::backprop_filter;
    case ConvDirection::forward: break;
  }
  return CudnnDirection::forward;
}

// The images x, filter and images y of a convolution, whichever of them its op computes.
struct Operands {
  Shape x, filter, y;
  explicit Operands(const KernelRequest& request) {
    const Shape& result = request.outputs[0].spec.shape;
    switch (conv_direction(request.op)) {
      case ConvDirection::forward: x = request.shape(0), filter = request.shape(1), y = result; break;
      case ConvDirection::backprop_input: x = result, filter = request.shape(0), y = request.shape(1); break;
      case ConvDirection::backprop_filter: x = request.shape(0), filter = result, y = request.shape(1); break;
    }
  }
};

CudnnConvolution problem_of(const KernelRequest& request, const Operands& operands, const Window& window) {
  CudnnConvolution c{.direction = direction_of(request.op),
                     .dtype = request.dtype(0),
                     .batch = operands.x[0],
                     .in_channels = operands.x[-1],
                     .out_channels = operands.y[-1],
                     .groups = request.attrs<ConvAttrs>().groups,
                     .input = {},
                     .output = {},
                     .window = {},
                     .strides = {},
                     .dilations = {},
                     .before = {},
                     .after = {}};
  for (int i = 0; i < window.rank(); ++i) {
    c.input.push_back(window.input[i]), c.output.push_back(window.output(i)),
        c.window.push_back(window.size[i]);
    c.strides.push_back(window.strides[i]), c.dilations.push_back(window.dilations[i]);
    c.before.push_back(window.before[i]), c.after.push_back(window.after[i]);
  }
  return c;
}

// cuDNN's fast algorithms for 16-bit floats want channels in eights: images of fewer (the three colours of a picture) are
// brought there.
int64_t planned_channels(const KernelRequest& request, const Operands& operands) {
  const int64_t channels = operands.x[-1];
  const bool widens = size_of(request.dtype(0)) == 2 && channels < 8 &&
                      request.attrs<ConvAttrs>().groups == 1 &&
                      conv_direction(request.op) != ConvDirection::backprop_input;
  return widens ? 8 : channels;
}

// The window over images that hold their padding.
Window written_out(Window window) {
  for (int i = 0; i < window.rank(); ++i) {
    window.input[i] += window.before[i] + window.after[i];
    window.before[i] = window.after[i] = 0;
  }
  return window;
}

class CudnnConvKernel final : public Kernel {
 public:
  CudnnConvKernel(const KernelRequest& request, const Operands& operands, std::unique_ptr<CudnnPlan> plan,
                  bool padded, int64_t in_channels)
      : direction_(conv_direction(request.op)),
        attrs_(request.attrs<ConvAttrs>()),
        dtype_(request.dtype(0)),
        plan_(std::move(plan)),
        loops_(prepare_conv_loops(request)),
        channels_(operands.y[-1]),
        rows_(operands.y.size() / std::max<int64_t>(1, channels_)) {
    const auto width = static_cast<int64_t>(size_of(dtype_));
    const bool makes_filter = direction_ == ConvDirection::backprop_filter;
    const bool widens = in_channels != operands.x[-1];
    const int64_t taps = attrs_.window.taps(), depth = operands.filter.size() / channels_ / taps;
    const int64_t wide = widens ? in_channels : depth;
    if ((taps * depth > 1 && channels_ > 1) || widens) {
      const Shape filter = {taps, depth, channels_};
      const Strides ours = {depth * channels_, channels_, 1}, theirs = {wide, 1, taps * wide};
      filter_copy_.emplace(filter, makes_filter ? theirs : ours, makes_filter ? ours : theirs, dtype_);
      filter_bytes_ = static_cast<size_t>(taps * wide * channels_ * width);
      filter_ = take(static_cast<int64_t>(filter_bytes_));
    }
    if (widens) {
      pixels_ = operands.x.size() / operands.x[-1];
      wide_channels_ = in_channels, own_channels_ = operands.x[-1];
      image_ = take(pixels_ * in_channels * width);
    }
    if (padded) {
      const Window window = written_out(attrs_.window);
      const Shape whole = image_shape(operands.x[0], window.input, operands.x[-1]);
      const Strides strides = contiguous_strides(whole), dense = contiguous_strides(operands.x);
      for (int i = 0; i < window.rank(); ++i) offset_ += attrs_.window.before[i] * strides[i + 1] * width;
      const bool makes_x = direction_ == ConvDirection::backprop_input;
      image_copy_.emplace(operands.x, makes_x ? strides : dense, makes_x ? dense : strides, dtype_);
      image_bytes_ = static_cast<size_t>(whole.size() * width);
      image_ = take(whole.size() * width);
    }
    plan_place_ = take(static_cast<int64_t>(plan_->workspace_bytes()));
  }

  // cuDNN wants its own aligned better than a workspace promises.
  size_t workspace_bytes() const override { return workspace_ + kAlignment; }

  void launch(const LaunchArgs& args) const override {
    const cudaStream_t stream = stream_of(args);
    char* workspace = static_cast<char*>(args.workspace);
    workspace += (kAlignment - reinterpret_cast<uintptr_t>(workspace) % kAlignment) % kAlignment;
    const bool makes_x = direction_ == ConvDirection::backprop_input,
               makes_filter = direction_ == ConvDirection::backprop_filter;
    void* const x = makes_x ? args.outputs[0] : args.inputs[0];
    void* const filter = makes_filter ? args.outputs[0] : args.inputs[makes_x ? 0 : 1];
    void* const y = direction_ == ConvDirection::forward ? args.outputs[0] : args.inputs[1];
    // cuDNN's algorithms were chosen for aligned memory; a view into a tensor may begin anywhere.
    if (!is_aligned(x) || !is_aligned(filter) || !is_aligned(y)) return loops_->launch(args);
    void* const filter_there = filter_copy_ ? workspace + filter_ : filter;
    void* const x_there = image_copy_ || wide_channels_ > 0 ? workspace + image_ : x;

    if (filter_copy_ && !makes_filter) {
      if (wide_channels_ > 0)
        check(cudaMemsetAsync(filter_there, 0, filter_bytes_, stream), "cudaMemsetAsync");
      filter_copy_->run(filter, filter_there, stream);
    }
    if (wide_channels_ > 0) widen_pixels(x, x_there, pixels_, own_channels_, wide_channels_, stream);
    if (image_copy_ && !makes_x) {
      check(cudaMemsetAsync(x_there, 0, image_bytes_, stream), "cudaMemsetAsync");
      image_copy_->run(x, static_cast<char*>(x_there) + offset_, stream);
    }
    plan_->launch(x_there, filter_there, y, workspace + plan_place_, stream);
    if (filter_copy_ && makes_filter) filter_copy_->run(filter_there, filter, stream);
    if (image_copy_ && makes_x) image_copy_->run(static_cast<char*>(x_there) + offset_, x, stream);
    if (attrs_.bias || attrs_.epilogue != Epilogue::none)
      apply_epilogue(dtype_, y, attrs_.bias ? args.inputs[2] : nullptr, attrs_.epilogue, rows_, channels_,
                     stream);
  }

 private:
  size_t take(int64_t bytes) {
    const size_t place = workspace_;
    workspace_ += aligned(static_cast<size_t>(bytes));
    return place;
  }

  ConvDirection direction_;
  ConvAttrs attrs_;
  DType dtype_;
  std::unique_ptr<CudnnPlan> plan_;
  std::unique_ptr<Kernel> loops_;
  int64_t channels_, rows_;
  std::optional<StridedCopy> filter_copy_;  // between our order of the filter and cuDNN's
  std::optional<StridedCopy> image_copy_;   // between images and those with padding
  int64_t offset_ = 0;                      // of the images in those with padding, in bytes
  size_t image_bytes_ = 0, filter_bytes_ = 0;
  int64_t pixels_ = 0, own_channels_ = 0,
          wide_channels_ = 0;  // of images with more channels; 0: they keep theirs
  size_t workspace_ = 0, filter_ = 0, image_ = 0, plan_place_ = 0;
};

std::unique_ptr<Kernel> prepare_conv(const KernelRequest& request) {
  const Operands operands(request);
  const Window& window = request.attrs<ConvAttrs>().window;
  const bool served = request.dtype(0) != DType::float64 && operands.x.size() > 0 && operands.y.size() > 0 &&
                      operands.filter.size() > 0;
  if (!served) return prepare_conv_loops(request);
  const bool padded = !(window.before == window.after);
  const Window& planned = padded ? written_out(window) : window;
  CudnnConvolution problem = problem_of(request, operands, planned);
  if (!padded) problem.in_channels = planned_channels(request, operands);
  if (auto plan = CudnnPlan::find(problem, request.where))
    return std::make_unique<CudnnConvKernel>(request, operands, std::move(plan), padded, problem.in_channels);
  return prepare_conv_loops(request);
}

const RegisterKernel registered[] = {{DeviceKind::gpu, kConv2d, {.prepare = prepare_conv}},
                                     {DeviceKind::gpu, kConv2dBackpropInput, {.prepare = prepare_conv}},
                                     {DeviceKind::gpu, kConv2dBackpropFilter, {.prepare = prepare_conv}},
                                     {DeviceKind::gpu, kConv3d, {.prepare = prepare_conv}},
                                     {DeviceKind::gpu, kConv3dBackpropInput, {.prepare = prepare_conv}},
                                     {DeviceKind::gpu, kConv3dBackpropFilter, {.prepare = prepare_conv}}};

}  // namespace
}  // namespace lockstep::cuda
