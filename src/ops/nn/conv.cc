#include "ops/nn/conv.h"

#include <algorithm>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"

namespace lockstep {
namespace {

struct ConvOps {
  const OpDef &forward, &backprop_input, &backprop_filter;
};
constexpr ConvOps kOps2d{kConv2d, kConv2dBackpropInput, kConv2dBackpropFilter},
    kOps3d{kConv3d, kConv3dBackpropInput, kConv3dBackpropFilter};

const ConvOps& ops_of(int rank) { return rank == 3 ? kOps3d : kOps2d; }
const ConvOps& ops_of(const ConvAttrs& attrs) { return ops_of(attrs.window.rank()); }

void check_dtypes(const InferContext& c) {
  for (const TensorSpec& input : c.inputs)
    c.check(is_floating(input.dtype) && input.dtype == c.dtype(0), ErrorCode::dtype_mismatch,
            "takes floating-point tensors of one dtype, received ", c.inputs[0], " and ", input,
            "; cast() one of them");
}

// `images` lie where the window slides, `results` are what it gives.
void check_images(const InferContext& c, const Shape& images, const Dims& size, std::string_view what) {
  c.check(images.rank() == size.rank() + 2, ErrorCode::shape_mismatch, "takes ", what, " of shape ",
          image_axes(size.rank()), ", received ", images);
  c.check(image_size(images) == size, ErrorCode::shape_mismatch, what, " of ", images,
          " where the window gives ", size);
}

void check_groups(const InferContext& c, int64_t in_channels, int64_t out_channels, int64_t groups) {
  c.check(groups >= 1 && in_channels % groups == 0 && out_channels % groups == 0, ErrorCode::shape_mismatch,
          "groups must divide the channels, received ", groups, " groups of ", in_channels, " input and ",
          out_channels, " output channels");
}

Shape filter_shape(const Dims& window, int64_t group_in, int64_t out) {
  Shape shape = window;
  shape.push_back(group_in);
  shape.push_back(out);
  return shape;
}

void check_filter(const InferContext& c, const Shape& filter, const Window& window) {
  c.check(filter.rank() == window.rank() + 2 && filter.drop_last(2) == Shape(window.size),
          ErrorCode::shape_mismatch, "takes a filter of shape ", window.size,
          " + (input channels of a group, output channels), received ", filter);
}

SpecList infer_conv(const InferContext& c) {
  const auto& attrs = c.attrs<ConvAttrs>();
  const Shape &x = c.shape(0), &filter = c.shape(1);
  check_dtypes(c);
  check_images(c, x, attrs.window.input, "images");
  check_filter(c, filter, attrs.window);
  check_groups(c, x[-1], filter[-1], attrs.groups);
  c.check(filter[-2] == x[-1] / attrs.groups, ErrorCode::shape_mismatch, "the filter ", filter, " reads ",
          filter[-2], " input channels in each of ", attrs.groups, " groups, the images ", x, " have ",
          x[-1]);
  c.check(c.inputs.size() == (attrs.bias ? 3 : 2), ErrorCode::invalid_argument, "takes ", attrs.bias ? 3 : 2,
          " inputs, received ", c.inputs.size());
  c.check(!attrs.bias || c.shape(2).size() == filter[-1], ErrorCode::shape_mismatch, "a bias of ", filter[-1],
          " values belongs to the filter ", filter, ", received ", attrs.bias ? c.shape(2) : Shape());
  return {{c.dtype(0), image_shape(x[0], attrs.window.output(), filter[-1])}};
}

SpecList infer_backprop_input(const InferContext& c) {
  const auto& attrs = c.attrs<ConvAttrs>();
  const Shape &filter = c.shape(0), &gradient = c.shape(1);
  check_dtypes(c);
  check_filter(c, filter, attrs.window);
  check_images(c, gradient, attrs.window.output(), "gradients");
  check_groups(c, filter[-2] * attrs.groups, filter[-1], attrs.groups);
  c.check(filter[-1] == gradient[-1], ErrorCode::shape_mismatch, "the filter ", filter, " and the gradient ",
          gradient, " differ in output channels");
  return {{c.dtype(0), image_shape(gradient[0], attrs.window.input, filter[-2] * attrs.groups)}};
}

SpecList infer_backprop_filter(const InferContext& c) {
  const auto& attrs = c.attrs<ConvAttrs>();
  const Shape &x = c.shape(0), &gradient = c.shape(1);
  check_dtypes(c);
  check_images(c, x, attrs.window.input, "images");
  check_images(c, gradient, attrs.window.output(), "gradients");
  check_groups(c, x[-1], gradient[-1], attrs.groups);
  c.check(x[0] == gradient[0], ErrorCode::shape_mismatch, "the images ", x, " and the gradient ", gradient,
          " differ in batch");
  return {{c.dtype(0), filter_shape(attrs.window.size, x[-1] / attrs.groups, gradient[-1])}};
}

// The same for all three: each multiplies and adds once for every tap of every result and channel.
// Taps on padding count, as everywhere.
Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  const auto& attrs = c.attrs<ConvAttrs>();
  const ConvDirection direction = conv_direction(c.op);
  const Shape& filter = direction == ConvDirection::backprop_input    ? c.shape(0)
                        : direction == ConvDirection::backprop_filter ? outputs[0].shape
                                                                      : c.shape(1);
  const int64_t batch = c.shape(direction == ConvDirection::backprop_input ? 1 : 0)[0];
  Cost cost{.flops = 2 * batch * Shape(attrs.window.output()).size() * filter.size()};
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  cost.bytes += static_cast<int64_t>(outputs[0].bytes());
  return cost;
}

Tensor emit_conv(const OpDef& op, const Tensor& a, const Tensor& b, const ConvAttrs& attrs) {
  return emit_one(op, {a, b}, attrs, std::source_location::current());
}

// Bias and epilogue are put on by the compiler, after every gradient was taken.
const ConvAttrs& plain_attrs(const GradContext& g) {
  const auto& attrs = g.attrs<ConvAttrs>();
  require(!attrs.bias && attrs.epilogue == Epilogue::none, ErrorCode::internal,
          std::source_location::current(), g.op().name, ": no gradient with a fused bias or activation");
  return attrs;
}

TensorList grad_conv(const GradContext& g) {
  const ConvAttrs& attrs = plain_attrs(g);
  const ConvOps& ops = ops_of(attrs);
  const Tensor dy = g.dout();
  Tensor dx, dw;
  if (g.needs(0)) dx = emit_conv(ops.backprop_input, g.in(1), dy, attrs);
  if (g.needs(1)) dw = emit_conv(ops.backprop_filter, g.in(0), dy, attrs);
  return {dx, dw};
}

TensorList grad_backprop_input(const GradContext& g) {
  const ConvAttrs& attrs = plain_attrs(g);
  const ConvOps& ops = ops_of(attrs);
  const Tensor ddx = g.dout();
  Tensor dw, ddy;
  if (g.needs(0)) dw = emit_conv(ops.backprop_filter, ddx, g.in(1), attrs);
  if (g.needs(1)) ddy = emit_conv(ops.forward, ddx, g.in(0), attrs);
  return {dw, ddy};
}

TensorList grad_backprop_filter(const GradContext& g) {
  const ConvAttrs& attrs = plain_attrs(g);
  const ConvOps& ops = ops_of(attrs);
  const Tensor ddw = g.dout();
  Tensor dx, ddy;
  if (g.needs(0)) dx = emit_conv(ops.backprop_input, ddw, g.in(1), attrs);
  if (g.needs(1)) ddy = emit_conv(ops.forward, g.in(0), ddw, attrs);
  return {dx, ddy};
}

Attrs with_epilogue(const Attrs& attributes, bool bias, Epilogue epilogue) {
  auto attrs = attributes.as<ConvAttrs>();
  attrs.bias = bias;
  attrs.epilogue = epilogue;
  return attrs;
}

constexpr OpDef forward_op(std::string_view name) {
  return {.name = name,
          .min_inputs = 2,
          .max_inputs = 3,
          .infer = infer_conv,
          .grad = grad_conv,
          .cost = cost,
          .with_epilogue = with_epilogue};
}
constexpr OpDef backprop_input_op(std::string_view name) {
  return {.name = name,
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = infer_backprop_input,
          .grad = grad_backprop_input,
          .cost = cost};
}
constexpr OpDef backprop_filter_op(std::string_view name) {
  return {.name = name,
          .min_inputs = 2,
          .max_inputs = 2,
          .infer = infer_backprop_filter,
          .grad = grad_backprop_filter,
          .cost = cost};
}

}  // namespace

constinit const OpDef kConv2d = forward_op("conv2d"), kConv3d = forward_op("conv3d");
constinit const OpDef kConv2dBackpropInput = backprop_input_op("conv2d_backprop_input"),
                      kConv3dBackpropInput = backprop_input_op("conv3d_backprop_input");
constinit const OpDef kConv2dBackpropFilter = backprop_filter_op("conv2d_backprop_filter"),
                      kConv3dBackpropFilter = backprop_filter_op("conv3d_backprop_filter");

ConvDirection conv_direction(const OpDef& op) {
  if (&op == &kConv2dBackpropInput || &op == &kConv3dBackpropInput) return ConvDirection::backprop_input;
  if (&op == &kConv2dBackpropFilter || &op == &kConv3dBackpropFilter) return ConvDirection::backprop_filter;
  return ConvDirection::forward;
}

namespace {

const RegisterOp registered[] = {
    RegisterOp(kConv2d), RegisterOp(kConv2dBackpropInput), RegisterOp(kConv2dBackpropFilter),
    RegisterOp(kConv3d), RegisterOp(kConv3dBackpropInput), RegisterOp(kConv3dBackpropFilter)};

void check_filter_rank(const char* op, int rank, const Shape& filter, std::string_view channels,
                       std::source_location where) {
  constexpr std::string_view names[] = {"length", "height, width", "depth, height, width"};
  require(filter.rank() == rank + 2, ErrorCode::shape_mismatch, where, op, ": takes a filter of shape (",
          names[rank - 1], ", ", channels, "), received ", filter);
}

Window conv_window(const char* op, int rank, const Shape& images, const Shape& filter,
                   const ConvOptions& options, std::source_location where) {
  check_filter_rank(op, rank, filter, "input channels of a group, output channels", where);
  return slide_window(op, rank, images, filter.drop_last(2), options.strides, options.dilations,
                      options.padding, where);
}

// Sequences are images of one row; there are ops for two and for three dimensions.
int lifted_rank(int rank) { return rank == 1 ? 2 : rank; }
Tensor lift_images(const Tensor& x, int rank, std::source_location where) {
  return rank == 1 ? expand_dims(TensorArg(x, where), 1) : x;
}
Tensor lift_filter(const Tensor& filter, int rank, std::source_location where) {
  return rank == 1 ? expand_dims(TensorArg(filter, where), 0) : filter;
}
Tensor lower_images(const Tensor& y, int rank, std::source_location where) {
  return rank == 1 ? squeeze(TensorArg(y, where), {1}) : y;
}

Tensor convolve(const char* op, int rank, const TensorArg& x, const TensorArg& filter,
                const ConvOptions& options) {
  const std::source_location where = x.where();
  const Tensor images = to_channels_last(x.tensor(op), options.data_format, where);
  const Window window = conv_window(op, rank, images.shape(), filter.tensor(op).shape(), options, where);
  const Tensor y = emit_one(
      ops_of(rank).forward, {lift_images(images, rank, where), lift_filter(filter.tensor(), rank, where)},
      ConvAttrs{.window = lift(window, lifted_rank(rank)), .groups = options.groups}, where);
  return from_channels_last(lower_images(y, rank, where), options.data_format, where);
}

// What a backprop op makes has the shape that its caller asked for.
Tensor backprop(const OpDef& op, const TensorArg& a, const TensorArg& b, const ConvAttrs& attrs,
                const Shape& asked) {
  Tensor result = emit_one(op, {a.tensor(), b.tensor()}, attrs, a.where());
  require(result.shape() == asked, ErrorCode::shape_mismatch, a.where(), op.name, ": the result has shape ",
          result.shape(), " by its inputs, asked for was ", asked);
  return result;
}

Tensor backprop_input(int rank, const Shape& input_shape, const TensorArg& filter, const TensorArg& gradient,
                      const ConvOptions& options) {
  const OpDef& op = ops_of(rank).backprop_input;
  const Window window = conv_window(op.name.data(), rank, input_shape, filter.tensor(op.name.data()).shape(),
                                    options, filter.where());
  return backprop(op, filter, gradient, {.window = window, .groups = options.groups}, input_shape);
}

Tensor backprop_filter(int rank, const TensorArg& x, const Shape& filter_shape, const TensorArg& gradient,
                       const ConvOptions& options) {
  const OpDef& op = ops_of(rank).backprop_filter;
  const Window window =
      conv_window(op.name.data(), rank, x.tensor(op.name.data()).shape(), filter_shape, options, x.where());
  return backprop(op, x, gradient, {.window = window, .groups = options.groups}, filter_shape);
}

// (window..., channels, multiplier) as a filter of one group a channel.
Tensor depthwise(const char* op, int rank, const TensorArg& x, const TensorArg& filter,
                 const DepthwiseConvOptions& options) {
  Shape shape = filter.tensor(op).shape();
  check_filter_rank(op, rank, shape, "channels, multiplier", filter.where());
  const Tensor& images = x.tensor(op);
  const int64_t channels = shape[-2];
  const int channel_axis = options.data_format.kind() == DataFormat::channels_first ? 1 : -1;
  require(images.rank() != rank + 2 || images.shape()[channel_axis] == channels, ErrorCode::shape_mismatch,
          x.where(), op, ": the filter ", shape, " is for ", channels, " channels, the images ",
          images.shape(), " have ", images.rank() == rank + 2 ? images.shape()[channel_axis] : 0);
  shape[-1] *= channels;
  shape[-2] = 1;
  return convolve(op, rank, x, TensorArg(reshape(filter, shape), filter.where()),
                  {.strides = options.strides,
                   .padding = options.padding,
                   .dilations = options.dilations,
                   .groups = channels,
                   .data_format = options.data_format});
}

Tensor separable(const char* op, int rank, const TensorArg& x, const TensorArg& depthwise_filter,
                 const TensorArg& pointwise_filter, const DepthwiseConvOptions& options) {
  const Tensor mixed = depthwise(op, rank, x, depthwise_filter, options);
  const Shape& pointwise = pointwise_filter.tensor(op).shape();
  check_filter_rank(op, rank, pointwise, "input channels, output channels", pointwise_filter.where());
  require(pointwise.drop_last(2) == Shape(Dims::filled(rank, 1)), ErrorCode::shape_mismatch,
          pointwise_filter.where(), op, ": the pointwise filter's window must be of one element, received ",
          pointwise);
  return convolve(op, rank, TensorArg(mixed, x.where()), pointwise_filter,
                  {.data_format = options.data_format});
}

// The convolution whose gradient a transposed one is: over images of the result's size. What `same` crops is
// shared out evenly, the odd one behind.
Window transposed_window(const char* op, int rank, const Shape& x, const Shape& filter,
                         const ConvTransposeOptions& options, std::source_location where) {
  require(x.rank() == rank + 2, ErrorCode::shape_mismatch, where, op, ": takes images of shape ",
          image_axes(rank), ", received ", x);
  check_filter_rank(op, rank, filter, "output channels, input channels", where);
  require(options.padding.kind() != Padding::causal, ErrorCode::invalid_argument, where, op,
          ": padding must be \"valid\" or \"same\", received \"causal\"");
  Window window{.input = {},
                .size = per_axis(op, "the window's size", rank, filter.drop_last(2), 1, where),
                .strides = per_axis(op, "strides", rank, options.strides, 1, where),
                .dilations = per_axis(op, "dilations", rank, options.dilations, 1, where),
                .before = {},
                .after = {}};
  const bool same = options.padding.kind() == Padding::same, given = !options.output_padding.empty();
  const Dims extra = given ? per_axis(op, "output_padding", rank, options.output_padding, 0, where) : Dims();
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t stride = window.strides[axis], extent = window.extent(axis), n = x[axis + 1];
    require(n >= 1, ErrorCode::shape_mismatch, where, op, ": the images of ", x, " are empty");
    require(!given || extra[axis] < stride, ErrorCode::invalid_argument, where, op,
            ": output_padding must be less than the stride, received ", extra, " with strides ",
            window.strides);
    const int64_t whole = (n - 1) * stride + extent;  // what the windows cover
    const int64_t output =
        same ? (given ? whole - extent + extent % 2 + extra[axis] : n * stride)
             : (given ? whole + extra[axis] : whole + std::max<int64_t>(stride - extent, 0));
    require(output >= 1, ErrorCode::shape_mismatch, where, op, ": nothing is left of ", x, " under a filter ",
            filter, " with output_padding ", extra);
    const int64_t crop = std::max<int64_t>(whole - output, 0);
    window.input.push_back(output);
    window.before.push_back(crop / 2);
    window.after.push_back(crop - crop / 2);
  }
  return window;
}

Tensor convolve_transposed(const char* op, int rank, const TensorArg& x, const TensorArg& filter,
                           const ConvTransposeOptions& options) {
  const std::source_location where = x.where();
  const Tensor images = to_channels_last(x.tensor(op), options.data_format, where);
  const Window window =
      transposed_window(op, rank, images.shape(), filter.tensor(op).shape(), options, where);
  const Tensor y = emit_one(ops_of(rank).backprop_input,
                            {lift_filter(filter.tensor(), rank, where), lift_images(images, rank, where)},
                            ConvAttrs{.window = lift(window, lifted_rank(rank))}, where);
  return from_channels_last(lower_images(y, rank, where), options.data_format, where);
}

}  // namespace

Tensor conv1d(const TensorArg& x, const TensorArg& filter, const ConvOptions& options) {
  return convolve("conv1d", 1, x, filter, options);
}
Tensor conv2d(const TensorArg& x, const TensorArg& filter, const ConvOptions& options) {
  return convolve("conv2d", 2, x, filter, options);
}
Tensor conv3d(const TensorArg& x, const TensorArg& filter, const ConvOptions& options) {
  return convolve("conv3d", 3, x, filter, options);
}

Tensor conv2d_backprop_input(const Shape& input_shape, const TensorArg& filter, const TensorArg& gradient,
                             const ConvOptions& options) {
  return backprop_input(2, input_shape, filter, gradient, options);
}
Tensor conv3d_backprop_input(const Shape& input_shape, const TensorArg& filter, const TensorArg& gradient,
                             const ConvOptions& options) {
  return backprop_input(3, input_shape, filter, gradient, options);
}
Tensor conv2d_backprop_filter(const TensorArg& x, const Shape& filter_shape, const TensorArg& gradient,
                              const ConvOptions& options) {
  return backprop_filter(2, x, filter_shape, gradient, options);
}
Tensor conv3d_backprop_filter(const TensorArg& x, const Shape& filter_shape, const TensorArg& gradient,
                              const ConvOptions& options) {
  return backprop_filter(3, x, filter_shape, gradient, options);
}

Tensor depthwise_conv1d(const TensorArg& x, const TensorArg& filter, const DepthwiseConvOptions& options) {
  return depthwise("depthwise_conv1d", 1, x, filter, options);
}
Tensor depthwise_conv2d(const TensorArg& x, const TensorArg& filter, const DepthwiseConvOptions& options) {
  return depthwise("depthwise_conv2d", 2, x, filter, options);
}
Tensor separable_conv1d(const TensorArg& x, const TensorArg& depthwise_filter,
                        const TensorArg& pointwise_filter, const DepthwiseConvOptions& options) {
  return separable("separable_conv1d", 1, x, depthwise_filter, pointwise_filter, options);
}
Tensor separable_conv2d(const TensorArg& x, const TensorArg& depthwise_filter,
                        const TensorArg& pointwise_filter, const DepthwiseConvOptions& options) {
  return separable("separable_conv2d", 2, x, depthwise_filter, pointwise_filter, options);
}

Tensor conv1d_transpose(const TensorArg& x, const TensorArg& filter, const ConvTransposeOptions& options) {
  return convolve_transposed("conv1d_transpose", 1, x, filter, options);
}
Tensor conv2d_transpose(const TensorArg& x, const TensorArg& filter, const ConvTransposeOptions& options) {
  return convolve_transposed("conv2d_transpose", 2, x, filter, options);
}
Tensor conv3d_transpose(const TensorArg& x, const TensorArg& filter, const ConvTransposeOptions& options) {
  return convolve_transposed("conv3d_transpose", 3, x, filter, options);
}

}  // namespace lockstep
