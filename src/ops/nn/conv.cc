#include "ops/nn/conv.h"

#include "graph/emit.h"
#include "lockstep/ops/conv.h"

namespace lockstep {
namespace {

void check_dtypes(const InferContext& c) {
  for (const TensorSpec& input : c.inputs)
    c.check(is_floating(input.dtype) && input.dtype == c.dtype(0), ErrorCode::dtype_mismatch,
            "takes floating-point tensors of one dtype, received ", c.inputs[0], " and ", input,
            "; cast() one of them");
}

// `images` lie where the window slides, `results` are what it gives: (batch, height, width, channels).
void check_images(const InferContext& c, const Shape& images, const Dims& size, std::string_view what) {
  c.check(images.rank() == 4, ErrorCode::shape_mismatch, "takes ", what,
          " of shape (batch, height, width, channels), received ", images);
  c.check(images[1] == size[0] && images[2] == size[1], ErrorCode::shape_mismatch, what, " of ", images,
          " where the window gives ", size[0], " x ", size[1]);
}

Dims output_size(const Window2d& window) { return {window.output(0), window.output(1)}; }

void check_groups(const InferContext& c, int64_t in_channels, int64_t out_channels, int64_t groups) {
  c.check(groups >= 1 && in_channels % groups == 0 && out_channels % groups == 0, ErrorCode::shape_mismatch,
          "groups must divide the channels, received ", groups, " groups of ", in_channels, " input and ",
          out_channels, " output channels");
}

void check_filter(const InferContext& c, const Shape& filter, const Window2d& window) {
  c.check(filter.rank() == 4 && filter[0] == window.size[0] && filter[1] == window.size[1],
          ErrorCode::shape_mismatch, "takes a filter of shape (", window.size[0], ", ", window.size[1],
          ", input channels of a group, output channels), received ", filter);
}

SpecList infer_conv(const InferContext& c) {
  const auto& attrs = c.attrs<ConvAttrs>();
  const Shape &x = c.shape(0), &filter = c.shape(1);
  check_dtypes(c);
  check_images(c, x, attrs.window.input, "images");
  check_filter(c, filter, attrs.window);
  check_groups(c, x[3], filter[3], attrs.groups);
  c.check(filter[2] * attrs.groups == x[3], ErrorCode::shape_mismatch, "the filter ", filter, " reads ",
          filter[2], " input channels in each of ", attrs.groups, " groups, the images ", x, " have ", x[3]);
  c.check(c.inputs.size() == (attrs.bias ? 3 : 2), ErrorCode::invalid_argument, "takes ", attrs.bias ? 3 : 2,
          " inputs, received ", c.inputs.size());
  c.check(!attrs.bias || c.shape(2).size() == filter[3], ErrorCode::shape_mismatch, "a bias of ", filter[3],
          " values belongs to the filter ", filter, ", received ", attrs.bias ? c.shape(2) : Shape());
  return {{c.dtype(0), {x[0], attrs.window.output(0), attrs.window.output(1), filter[3]}}};
}

SpecList infer_backprop_input(const InferContext& c) {
  const auto& attrs = c.attrs<ConvAttrs>();
  const Shape &filter = c.shape(0), &gradient = c.shape(1);
  check_dtypes(c);
  check_filter(c, filter, attrs.window);
  check_images(c, gradient, output_size(attrs.window), "gradients");
  check_groups(c, filter[2] * attrs.groups, filter[3], attrs.groups);
  c.check(filter[3] == gradient[3], ErrorCode::shape_mismatch, "the filter ", filter, " and the gradient ",
          gradient, " differ in output channels");
  return {
      {c.dtype(0), {gradient[0], attrs.window.input[0], attrs.window.input[1], filter[2] * attrs.groups}}};
}

SpecList infer_backprop_filter(const InferContext& c) {
  const auto& attrs = c.attrs<ConvAttrs>();
  const Shape &x = c.shape(0), &gradient = c.shape(1);
  check_dtypes(c);
  check_images(c, x, attrs.window.input, "images");
  check_images(c, gradient, output_size(attrs.window), "gradients");
  check_groups(c, x[3], gradient[3], attrs.groups);
  c.check(x[0] == gradient[0], ErrorCode::shape_mismatch, "the images ", x, " and the gradient ", gradient,
          " differ in batch");
  return {{c.dtype(0), {attrs.window.size[0], attrs.window.size[1], x[3] / attrs.groups, gradient[3]}}};
}

// The same for all three: each multiplies and adds once for every tap of every result and channel.
// Taps on padding count, as everywhere.
Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  const auto& attrs = c.attrs<ConvAttrs>();
  const bool backprop_input = &c.op == &kConv2dBackpropInput;
  const bool backprop_filter = &c.op == &kConv2dBackpropFilter;
  const Shape& filter = backprop_input ? c.shape(0) : backprop_filter ? outputs[0].shape : c.shape(1);
  const int64_t batch = backprop_input ? c.shape(1)[0] : c.shape(0)[0];
  Cost cost{.flops = 2 * batch * attrs.window.output(0) * attrs.window.output(1) * filter.size()};
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
  const Tensor dy = g.dout();
  Tensor dx, dw;
  if (g.needs(0)) dx = emit_conv(kConv2dBackpropInput, g.in(1), dy, attrs);
  if (g.needs(1)) dw = emit_conv(kConv2dBackpropFilter, g.in(0), dy, attrs);
  return {dx, dw};
}

TensorList grad_backprop_input(const GradContext& g) {
  const ConvAttrs& attrs = plain_attrs(g);
  const Tensor ddx = g.dout();
  Tensor dw, ddy;
  if (g.needs(0)) dw = emit_conv(kConv2dBackpropFilter, ddx, g.in(1), attrs);
  if (g.needs(1)) ddy = emit_conv(kConv2d, ddx, g.in(0), attrs);
  return {dw, ddy};
}

TensorList grad_backprop_filter(const GradContext& g) {
  const ConvAttrs& attrs = plain_attrs(g);
  const Tensor ddw = g.dout();
  Tensor dx, ddy;
  if (g.needs(0)) dx = emit_conv(kConv2dBackpropInput, ddw, g.in(1), attrs);
  if (g.needs(1)) ddy = emit_conv(kConv2d, g.in(0), ddw, attrs);
  return {dx, ddy};
}

Attrs with_epilogue(const Attrs& attributes, bool bias, Epilogue epilogue) {
  auto attrs = attributes.as<ConvAttrs>();
  attrs.bias = bias;
  attrs.epilogue = epilogue;
  return attrs;
}

}  // namespace

constinit const OpDef kConv2d{.name = "conv2d",
                              .min_inputs = 2,
                              .max_inputs = 3,
                              .infer = infer_conv,
                              .grad = grad_conv,
                              .cost = cost,
                              .with_epilogue = with_epilogue};
constinit const OpDef kConv2dBackpropInput{.name = "conv2d_backprop_input",
                                           .min_inputs = 2,
                                           .max_inputs = 2,
                                           .infer = infer_backprop_input,
                                           .grad = grad_backprop_input,
                                           .cost = cost};
constinit const OpDef kConv2dBackpropFilter{.name = "conv2d_backprop_filter",
                                            .min_inputs = 2,
                                            .max_inputs = 2,
                                            .infer = infer_backprop_filter,
                                            .grad = grad_backprop_filter,
                                            .cost = cost};

namespace {

const RegisterOp registered[] = {RegisterOp(kConv2d), RegisterOp(kConv2dBackpropInput),
                                 RegisterOp(kConv2dBackpropFilter)};

ConvAttrs conv_attrs(const OpDef& op, const Shape& images, const Shape& filter, const Conv2dOptions& options,
                     std::source_location where) {
  require(filter.rank() == 4, ErrorCode::shape_mismatch, where, op.name,
          ": takes a filter of shape (height, width, input channels of a group, output channels), received ",
          filter);
  return {.window = slide_window(op.name, images, {filter[0], filter[1]}, options.strides, options.dilations,
                                 options.padding, where),
          .groups = options.groups};
}

// What a backprop op makes has the shape that its caller asked for.
Tensor checked_shape(const OpDef& op, const Tensor& result, const Shape& asked, std::source_location where) {
  require(result.shape() == asked, ErrorCode::shape_mismatch, where, op.name, ": the result has shape ",
          result.shape(), " by its inputs, asked for was ", asked);
  return result;
}

}  // namespace

Tensor conv2d(const TensorArg& x, const TensorArg& filter, const Conv2dOptions& options) {
  const Tensor &images = x.tensor("conv2d"), &w = filter.tensor("conv2d");
  return emit_one(kConv2d, {images, w}, conv_attrs(kConv2d, images.shape(), w.shape(), options, x.where()),
                  x.where());
}

Tensor conv2d_backprop_input(const Shape& input_shape, const TensorArg& filter, const TensorArg& gradient,
                             const Conv2dOptions& options) {
  const OpDef& op = kConv2dBackpropInput;
  const ConvAttrs attrs =
      conv_attrs(op, input_shape, filter.tensor(op.name.data()).shape(), options, filter.where());
  return checked_shape(op, emit_one(op, {filter.tensor(), gradient.tensor()}, attrs, filter.where()),
                       input_shape, filter.where());
}

Tensor conv2d_backprop_filter(const TensorArg& x, const Shape& filter_shape, const TensorArg& gradient,
                              const Conv2dOptions& options) {
  const OpDef& op = kConv2dBackpropFilter;
  const ConvAttrs attrs = conv_attrs(op, x.tensor(op.name.data()).shape(), filter_shape, options, x.where());
  return checked_shape(op, emit_one(op, {x.tensor(), gradient.tensor()}, attrs, x.where()), filter_shape,
                       x.where());
}

}  // namespace lockstep
