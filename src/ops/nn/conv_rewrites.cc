// How a graph convolves on GPUs.
#include "graph/rewrite.h"
#include "ops/array/array.h"
#include "ops/array/join.h"
#include "ops/nn/conv.h"

namespace lockstep {
namespace {

bool is_conv2d(const OpDef& op, ConvDirection direction) {
  return (&op == &kConv2d || &op == &kConv2dBackpropInput || &op == &kConv2dBackpropFilter) &&
         conv_direction(op) == direction;
}

// A convolution of images that are padded with zeros, or the gradient of its filter, as one of the images
// themselves.
std::optional<Node> without_pad(const Graph& graph, const Node& node) {
  if (!is_conv2d(*node.op, ConvDirection::forward) && !is_conv2d(*node.op, ConvDirection::backprop_filter))
    return std::nullopt;
  const Node& padded = graph.node(node.inputs[0]);
  if (padded.op != &kPad || padded.device != node.device) return std::nullopt;
  const auto& pad = padded.attrs.as<PadAttrs>();
  auto attrs = node.attrs.as<ConvAttrs>();
  const auto window = with_padding(attrs.window, graph.spec(padded.inputs[0]).shape, pad.before, pad.after);
  if (pad.value != 0 || !window) return std::nullopt;
  Node folded = node;
  attrs.window = *window;
  folded.attrs = attrs;
  folded.inputs[0] = padded.inputs[0];
  return folded;
}

// A slice of a gradient that cuts off what arrives at the padding, as the gradient of the images themselves.
std::optional<Node> without_cut(const Graph& graph, const Node& node,
                                const std::vector<std::vector<int>>& uses) {
  if (node.op != &kStridedSlice) return std::nullopt;
  const Node& gradient = graph.node(node.inputs[0]);
  if (!is_conv2d(*gradient.op, ConvDirection::backprop_input) || gradient.device != node.device ||
      uses[static_cast<size_t>(node.inputs[0].node)][0] != 1)
    return std::nullopt;
  const auto& slice = node.attrs.as<StridedSliceAttrs>();
  const Shape &images = node.outputs[0].shape, &whole = graph.spec(node.inputs[0]).shape;
  auto attrs = gradient.attrs.as<ConvAttrs>();
  Dims after = slice.begin;
  for (int d = 0; d < images.rank(); ++d) {
    after[d] = whole[d] - slice.begin[d] - images[d];
    if (slice.stride[d] != 1) return std::nullopt;
  }
  const auto window = with_padding(attrs.window, images, slice.begin, after);
  if (!window) return std::nullopt;
  Node folded = gradient;
  attrs.window = *window;
  folded.attrs = attrs;
  folded.outputs = node.outputs;
  return folded;
}

// Lets convolutions and their gradients pad images themselves that are padded with zeros alike on both sides.
std::optional<Graph> pad_in_convolution(const Graph& graph, DeviceKind) {
  const auto uses = count_uses(graph);
  bool changed = false;
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    std::optional<Node> folded = without_pad(graph, graph.nodes[i]);
    if (!folded) folded = without_cut(graph, graph.nodes[i], uses);
    if (!folded) {
      rewriter.keep(id);
      continue;
    }
    for (Value& v : folded->inputs) v = rewriter.mapped(v);
    rewriter.replace_with(id, std::move(*folded));
    changed = true;
  }
  if (!changed) return std::nullopt;
  return rewriter.finish();
}

const RegisterRewrite registered(DeviceKind::gpu, {.name = "pad_in_convolution",
                                                   .stage = RewriteStage::combine,
                                                   .apply = pad_in_convolution});

}  // namespace
}  // namespace lockstep
