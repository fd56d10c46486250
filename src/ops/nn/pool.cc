#include "ops/nn/pool.h"

#include "graph/emit.h"
#include "lockstep/ops/conv.h"

namespace lockstep {
namespace {

DType position_dtype(const Window2d& window) { return window.taps() <= 256 ? DType::uint8 : DType::int32; }

// Input `i` holds the images the window slides over, or what it gives: (batch, height, width, channels).
void check_input(const InferContext& c, int i, const Dims& size) {
  const Shape& shape = c.shape(i);
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "takes floating-point tensors, received ",
          c.inputs[0], "; cast() it first");
  c.check(shape.rank() == 4 && shape[1] == size[0] && shape[2] == size[1], ErrorCode::shape_mismatch,
          "takes a tensor of shape (batch, ", size[0], ", ", size[1], ", channels), received ", shape);
}

Dims output_size(const Window2d& window) { return {window.output(0), window.output(1)}; }

void check_positions(const InferContext& c, const Window2d& window) {
  check_input(c, 1, output_size(window));
  c.check(c.dtype(1) == position_dtype(window), ErrorCode::dtype_mismatch, "takes positions of ",
          position_dtype(window), ", received ", c.inputs[1]);
  c.check(c.shape(0)[0] == c.shape(1)[0] && c.shape(0)[3] == c.shape(1)[3], ErrorCode::shape_mismatch,
          "batch or channels differ in ", c.shape(0), " and positions of ", c.shape(1));
}

TensorSpec resized(const InferContext& c, const Dims& size) {
  return {c.dtype(0), {c.shape(0)[0], size[0], size[1], c.shape(0)[3]}};
}

SpecList infer_max(const InferContext& c) {
  const Window2d& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, window.input);
  const TensorSpec y = resized(c, output_size(window));
  return {y, {position_dtype(window), y.shape}};
}

SpecList infer_max_grad(const InferContext& c) {
  const Window2d& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, output_size(window));
  check_positions(c, window);
  return {resized(c, window.input)};
}

SpecList infer_max_gather(const InferContext& c) {
  const Window2d& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, window.input);
  check_positions(c, window);
  return {resized(c, output_size(window))};
}

SpecList infer_avg(const InferContext& c) {
  const Window2d& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, window.input);
  return {resized(c, output_size(window))};
}

SpecList infer_avg_grad(const InferContext& c) {
  const Window2d& window = c.attrs<PoolAttrs>().window;
  check_input(c, 0, output_size(window));
  return {resized(c, window.input)};
}

// One comparison or addition for each tap of each window.
Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  const Window2d& window = c.attrs<PoolAttrs>().window;
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

Tensor pool(const OpDef& op, const TensorArg& x, const Pool2dOptions& options) {
  const Dims& strides = options.strides.empty() ? options.pool_size : options.strides;
  const Window2d window = slide_window(op.name, x.tensor(op.name.data()).shape(), options.pool_size, strides,
                                       {1, 1}, options.padding, x.where());
  return std::move(emit(op, {&x.tensor(), 1}, PoolAttrs{window}, x.where()).front());
}

}  // namespace

Tensor max_pool2d(const TensorArg& x, const Pool2dOptions& options) { return pool(kMaxPool2d, x, options); }
Tensor avg_pool2d(const TensorArg& x, const Pool2dOptions& options) { return pool(kAvgPool2d, x, options); }

}  // namespace lockstep
