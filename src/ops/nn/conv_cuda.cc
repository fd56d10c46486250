// Convolutions on GPUs. Those in float32 are made directly where there are few channels (conv_direct_cuda.h),
// else as products in TF32 halves (conv_tf32x3_cuda.h), unless TF32 itself will do; in 16 bits those of one
// tap are products of matrices; the others are cuDNN's. Images have the layout that it likes best; filters
// are transposed to its order. Padding that differs on the two sides, which few of its algorithms know, is
// written out.
#include "backends/cuda/cudnn_plan.h"
#include "backends/cuda/launch.h"
#include "lockstep/device/config.h"
#include "ops/array/strided_copy_cuda.h"
#include "ops/matmul/matmul.h"
#include "ops/nn/conv.h"
#include "ops/nn/conv_direct_cuda.h"
#include "ops/nn/conv_loops_cuda.h"
#include "ops/nn/conv_tf32x3_cuda.h"

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

// Whether a convolution is best folded: pictures of few colours, at the entrance of a network.
std::optional<FoldedConvolution> folded(const KernelRequest& request, const Operands& operands) {
  const auto& attrs = request.attrs<ConvAttrs>();
  const Window& w = attrs.window;
  const bool folds = size_of(request.dtype(0)) == 2 && w.rank() == 2 && operands.x[-1] < 8 &&
                     attrs.groups == 1 && w.strides == Dims{2, 2} && w.dilations == Dims{1, 1} &&
                     w.size[0] > 1 && w.size[1] > 1 &&
                     conv_direction(request.op) != ConvDirection::backprop_input;
  if (!folds) return std::nullopt;
  return FoldedConvolution{.batch = operands.x[0],
                           .height = w.input[0],
                           .width = w.input[1],
                           .channels = operands.x[-1],
                           .filters = operands.y[-1],
                           .rows = w.size[0],
                           .columns = w.size[1],
                           .before_rows = w.before[0],
                           .before_columns = w.before[1],
                           .out_rows = w.output(0),
                           .out_columns = w.output(1)};
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
                  bool padded)
      : direction_(conv_direction(request.op)),
        attrs_(request.attrs<ConvAttrs>()),
        dtype_(request.dtype(0)),
        plan_(std::move(plan)),
        loops_(prepare_conv_loops(request)),
        channels_(operands.y[-1]),
        rows_(operands.y.size() / std::max<int64_t>(1, channels_)) {
    const auto width = static_cast<int64_t>(size_of(dtype_));
    const int64_t taps = operands.filter.size() / channels_;
    const Shape filter = {taps, channels_};
    const Strides ours = {channels_, 1}, theirs = {1, taps};
    const bool makes_filter = direction_ == ConvDirection::backprop_filter;
    if (taps > 1 && channels_ > 1) {
      filter_copy_.emplace(filter, makes_filter ? theirs : ours, makes_filter ? ours : theirs, dtype_);
      filter_ = take(operands.filter.size() * width);
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
    void* const x_there = image_copy_ ? workspace + image_ : x;

    if (filter_copy_ && !makes_filter) filter_copy_->run(filter, filter_there, stream);
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
  size_t image_bytes_ = 0;
  size_t workspace_ = 0, filter_ = 0, image_ = 0, plan_place_ = 0;
};

class FoldedConvKernel final : public Kernel {
 public:
  FoldedConvKernel(const KernelRequest& request, const FoldedConvolution& fold,
                   std::unique_ptr<CudnnPlan> plan)
      : makes_filter_(conv_direction(request.op) == ConvDirection::backprop_filter),
        attrs_(request.attrs<ConvAttrs>()),
        dtype_(request.dtype(0)),
        fold_(fold),
        plan_(std::move(plan)),
        loops_(prepare_conv_loops(request)),
        filter_(aligned(static_cast<size_t>(fold.image_elements()) * 2)),
        plan_place_(filter_ + aligned(static_cast<size_t>(fold.filter_elements()) * 2)) {}

  size_t workspace_bytes() const override { return plan_place_ + plan_->workspace_bytes() + kAlignment; }

  void launch(const LaunchArgs& args) const override {
    const cudaStream_t stream = stream_of(args);
    char* images = static_cast<char*>(args.workspace);
    images += (kAlignment - reinterpret_cast<uintptr_t>(images) % kAlignment) % kAlignment;
    char *const filter = images + filter_, *const own = images + plan_place_;
    void* const y = makes_filter_ ? args.inputs[1] : args.outputs[0];
    if (!is_aligned(y)) return loops_->launch(args);
    fold_.fold_images(args.inputs[0], images, stream);
    if (!makes_filter_) fold_.fold_filter(args.inputs[1], filter, stream);
    plan_->launch(images, filter, y, own, stream);
    if (makes_filter_) fold_.unfold_filter(filter, args.outputs[0], stream);
    if (attrs_.bias || attrs_.epilogue != Epilogue::none)
      apply_epilogue(dtype_, y, attrs_.bias ? args.inputs[2] : nullptr, attrs_.epilogue,
                     fold_.batch * fold_.out_rows * fold_.out_columns, fold_.filters, stream);
  }

 private:
  bool makes_filter_;
  ConvAttrs attrs_;
  DType dtype_;
  FoldedConvolution fold_;
  std::unique_ptr<CudnnPlan> plan_;
  std::unique_ptr<Kernel> loops_;
  size_t filter_, plan_place_;  // in the workspace, behind the images
};

// A convolution of one tap: the product of places x channels with the filter as it lies, which cuDNN wants
// transposed.
class PointwiseConvKernel final : public Kernel {
 public:
  PointwiseConvKernel(const KernelRequest& request, const Operands& operands, std::unique_ptr<Kernel> product)
      : makes_x_(conv_direction(request.op) == ConvDirection::backprop_input),
        attrs_(request.attrs<ConvAttrs>()),
        dtype_(request.dtype(0)),
        product_(std::move(product)),
        channels_(operands.y[-1]),
        rows_(operands.y.size() / channels_) {}

  size_t workspace_bytes() const override { return product_->workspace_bytes(); }

  void launch(const LaunchArgs& args) const override {
    // The gradient of the result is the left matrix.
    void* pointers[] = {args.inputs[makes_x_ ? 1 : 0], args.inputs[makes_x_ ? 0 : 1], args.outputs[0]};
    product_->launch({pointers, pointers + 2, args.workspace, args.stream});
    if (attrs_.bias || attrs_.epilogue != Epilogue::none)
      apply_epilogue(dtype_, args.outputs[0], attrs_.bias ? args.inputs[2] : nullptr, attrs_.epilogue, rows_,
                     channels_, stream_of(args));
  }

 private:
  bool makes_x_;
  ConvAttrs attrs_;
  DType dtype_;
  std::unique_ptr<Kernel> product_;
  int64_t channels_, rows_;
};

// Null where it is not one, or of numbers of channels that tensor cores do not like.
std::unique_ptr<Kernel> prepare_pointwise(const KernelRequest& request, const Operands& operands) {
  const auto& attrs = request.attrs<ConvAttrs>();
  const Window& w = attrs.window;
  const auto each_is = [](const Dims& values, int64_t value) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
  };
  const int64_t in = operands.x[-1], out = operands.y[-1], places = operands.x.size() / in;
  if (size_of(request.dtype(0)) != 2 || attrs.groups != 1 || !each_is(w.size, 1) || !each_is(w.strides, 1) ||
      !each_is(w.before, 0) || !each_is(w.after, 0) || in % 8 != 0 || out % 8 != 0)
    return nullptr;
  const auto matrix = [&](int64_t rows, int64_t columns) {
    const Shape shape{rows, columns};
    return OperandLayout{{request.dtype(0), shape}, contiguous_strides(shape)};
  };
  const OperandLayout x = matrix(places, in), filter = matrix(in, out), y = matrix(places, out);
  const auto direction = conv_direction(request.op);
  const bool makes_x = direction == ConvDirection::backprop_input,
             makes_filter = direction == ConvDirection::backprop_filter;
  const OperandLayout factors[] = {makes_x ? y : x, makes_filter ? y : filter}, result = makes_x ? x
                                                                                         : makes_filter
                                                                                             ? filter
                                                                                             : y;
  auto product = find_kernel(DeviceKind::gpu, kMatmul, request.where)
                     .prepare({.op = kMatmul,
                               .attributes = MatmulAttrs{.transpose_a = makes_filter, .transpose_b = makes_x},
                               .inputs = factors,
                               .outputs = {&result, 1},
                               .device = request.device,
                               .threads = request.threads,
                               .where = request.where});
  return std::make_unique<PointwiseConvKernel>(request, operands, std::move(product));
}

std::unique_ptr<Kernel> prepare_conv(const KernelRequest& request) {
  const Operands operands(request);
  const Window& window = request.attrs<ConvAttrs>().window;
  const bool served = request.dtype(0) != DType::float64 && operands.x.size() > 0 && operands.y.size() > 0 &&
                      operands.filter.size() > 0;
  if (!served) return prepare_conv_loops(request);
  if (auto kernel = prepare_conv_direct(request)) return kernel;
  if (!config::tensor_float_32_execution_enabled())
    if (auto kernel = prepare_conv_tf32x3(request)) return kernel;
  if (auto kernel = prepare_pointwise(request, operands)) return kernel;
  const bool padded = !(window.before == window.after);
  const Window& planned = padded ? written_out(window) : window;
  const CudnnConvolution problem = problem_of(request, operands, planned);
  if (const auto fold = folded(request, operands)) {
    CudnnConvolution quarter = problem;
    quarter.in_channels = fold->folded_channels();
    quarter.input = {fold->folded_height(), fold->folded_width()};
    quarter.window = {fold->folded_rows(), fold->folded_columns()};
    quarter.strides = {1, 1};
    quarter.before = quarter.after = {0, 0};
    if (auto plan = CudnnPlan::find(quarter, request.where))
      return std::make_unique<FoldedConvKernel>(request, *fold, std::move(plan));
  }
  if (auto plan = CudnnPlan::find(problem, request.where))
    return std::make_unique<CudnnConvKernel>(request, operands, std::move(plan), padded);
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
