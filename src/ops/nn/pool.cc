#include "ops/nn/pool.h"

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"

namespace lockstep {
namespace {

DType position_dtype(const Window& window) { return window.taps() <= 256 ? DType::uint8 : DType::int32; }

// Input `i` holds the images the window slides over, or what it gives: (batch, height, width, channels).
void check_input(const InferContext& c, int i, const Dims& size) {
  const Shape& shape = c.shape(i);
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "takes floating-point tensors, received ",
          c.inputs[0], "; cast() it first");
  c.check(shape.rank() == 4 && shape[1] == size[0] && shape[2] == size[1], ErrorCode::shape_mismatch,
          "takes a tensor of shape (batch, ", size[0], ", ", size[1], ", channels), received ", shape);
}

void check_positions(const InferContext& c, const Window& window) {
  check_input(c, 1, window.output());
  c.check(c.dtype(1) == position_dtype(window), ErrorCode::dtype_mismatch, "takes positions of ",
          position_dtype(window), ", received ", c.inputs[1]);
  c.check(c.shape(0)[0] == c.shape(1)[0] && c.shape(0)[3] == c.shape(1)[3], ErrorCode::shape_mismatch,
          "batch or channels differ in ", c.shape(0), " and positions of ", c.shape(1));
}

TensorSpec resized(const InferContext& c, const Dims& size) {
  return {c.dtype(0), {c.shape(0)[0], size[0], size[1], c.shape(0)[3]}};
}

SpecList infer_max(const InferContext& c) {
  const Window& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, window.input);
  const TensorSpec y = resized(c, window.output());
  return {y, {position_dtype(window), y.shape}};
}

SpecList infer_max_grad(const InferContext& c) {
  const Window& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, window.output());
  check_positions(c, window);
  return {resized(c, window.input)};
}

SpecList infer_max_gather(const InferContext& c) {
  const Window& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, window.input);
  check_positions(c, window);
  return {resized(c, window.output())};
}

SpecList infer_avg(const InferContext& c) {
  const Window& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, window.input);
  return {resized(c, window.output())};
}

SpecList infer_avg_grad(const InferContext& c) {
  const Window& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, window.output());
  return {resized(c, window.input)};
}

// One comparison or addition for each tap of each window.
Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  const Window& window = c.attrs<PoolAttrs>().window;
  const int64_t windows = c.shape(0)[0] * window.output(0) * window.output(1) * c.shape(0)[3];
  Cost cost{.flops = windows * window.taps()};
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : outputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  return cost;
}

Tensor emit_pool(const OpDef& op, std::initializer_list<Tensor> inputs, const GradContext& g) {
  return emit_one(op, inputs, g.attributes(), std::source_location::current());
}

}  // namespace

constinit const OpDef kMaxPool2d{.name = "max_pool2d",
                                 .infer = infer_max,
                                 .grad = [](const GradContext& g) -> TensorList {
                                   return {emit_pool(kMaxPool2dGrad, {g.dout(), g.out(1)}, g)};
                                 },
                                 .cost = cost};

constinit const OpDef kMaxPool2dGrad{.name = "max_pool2d_grad",
                                     .min_inputs = 2,
                                     .max_inputs = 2,
                                     .infer = infer_max_grad,
                                     .grad = [](const GradContext& g) -> TensorList {
                                       return {emit_pool(kMaxPool2dGather, {g.dout(), g.in(1)}, g), {}};
                                     },
                                     .cost = cost};

constinit const OpDef kMaxPool2dGather{.name = "max_pool2d_gather",
                                       .min_inputs = 2,
                                       .max_inputs = 2,
                                       .infer = infer_max_gather,
                                       .grad = [](const GradContext& g) -> TensorList {
                                         return {emit_pool(kMaxPool2dGrad, {g.dout(), g.in(1)}, g), {}};
                                       },
                                       .cost = cost};

constinit const OpDef kAvgPool2d{
    .name = "avg_pool2d",
    .infer = infer_avg,
    .grad = [](const GradContext& g) -> TensorList { return {emit_pool(kAvgPool2dGrad, {g.dout()}, g)}; },
    .cost = cost};

constinit const OpDef kAvgPool2dGrad{
    .name = "avg_pool2d_grad",
    .infer = infer_avg_grad,
    .grad = [](const GradContext& g) -> TensorList { return {emit_pool(kAvgPool2d, {g.dout()}, g)}; },
    .cost = cost};

namespace {

const RegisterOp registered[] = {RegisterOp(kMaxPool2d), RegisterOp(kMaxPool2dGrad),
                                 RegisterOp(kMaxPool2dGather), RegisterOp(kAvgPool2d),
                                 RegisterOp(kAvgPool2dGrad)};

Tensor emit_window(const OpDef& op, const Tensor& x, const Window& window, std::source_location where) {
  return std::move(emit(op, {&x, 1}, PoolAttrs{window}, where).front());
}

// Entries [first, first + count) of a window.
Window axes_of(const Window& window, int first, int count) {
  const auto part = [=](const Dims& dims) {
    return Dims(dims.span().subspan(static_cast<size_t>(first), static_cast<size_t>(count)));
  };
  return {.input = part(window.input),
          .size = part(window.size),
          .strides = part(window.strides),
          .dilations = part(window.dilations),
          .before = part(window.before),
          .after = part(window.after)};
}

// Sequences are images of one row. A volume's planes are pooled first, as a batch of images; then what is
// left, as images of one pixel per row: the largest (the first of equals) of the largest, and the mean of
// means over equally many.
Tensor pool(const OpDef& op, const char* name, int rank, const TensorArg& x, const PoolOptions& options) {
  const std::source_location where = x.where();
  const Tensor images = to_channels_last(x.tensor(name), options.data_format, where);
  require(options.padding.kind() != Padding::causal, ErrorCode::invalid_argument, where, name,
          ": padding must be \"valid\" or \"same\", received \"causal\"");
  const Dims& strides = options.strides.empty() ? options.pool_size : options.strides;
  const Window window =
      slide_window(name, rank, images.shape(), options.pool_size, strides, {1}, options.padding, where);
  const auto shaped = [&](const Tensor& tensor, const Shape& shape) {
    return reshape(TensorArg(tensor, where), shape);
  };
  const auto result = [&]() -> Tensor {
    if (rank == 2) return emit_window(op, images, window, where);
    const Shape& shape = images.shape();
    const int64_t batch = shape[0], channels = shape[-1];
    const Shape pooled = image_shape(batch, window.output(), channels);
    if (rank == 1)
      return shaped(emit_window(op, shaped(images, {batch, 1, shape[1], channels}), lift(window, 2), where),
                    pooled);
    const Window plane = axes_of(window, 1, 2);
    Window column = axes_of(window, 0, 1);
    for (Dims* dims : {&column.size, &column.strides, &column.dilations}) dims->push_back(1);
    column.before.push_back(0), column.after.push_back(0);
    column.input.push_back(pooled[2] * pooled[3]);
    const Tensor planes =
        emit_window(op, shaped(images, image_shape(batch * shape[1], plane.input, channels)), plane, where);
    return shaped(emit_window(op, shaped(planes, image_shape(batch, column.input, channels)), column, where),
                  pooled);
  };
  return from_channels_last(result(), options.data_format, where);
}

}  // namespace

Tensor max_pool1d(const TensorArg& x, const PoolOptions& options) {
  return pool(kMaxPool2d, "max_pool1d", 1, x, options);
}
Tensor max_pool2d(const TensorArg& x, const PoolOptions& options) {
  return pool(kMaxPool2d, "max_pool2d", 2, x, options);
}
Tensor max_pool3d(const TensorArg& x, const PoolOptions& options) {
  return pool(kMaxPool2d, "max_pool3d", 3, x, options);
}
Tensor avg_pool1d(const TensorArg& x, const PoolOptions& options) {
  return pool(kAvgPool2d, "avg_pool1d", 1, x, options);
}
Tensor avg_pool2d(const TensorArg& x, const PoolOptions& options) {
  return pool(kAvgPool2d, "avg_pool2d", 2, x, options);
}
Tensor avg_pool3d(const TensorArg& x, const PoolOptions& options) {
  return pool(kAvgPool2d, "avg_pool3d", 3, x, options);
}

}  // namespace lockstep
