// How a graph pools on GPUs.
#include <algorithm>
#include <unordered_map>

#include "graph/rewrite.h"
#include "ops/array/array.h"
#include "ops/array/join.h"
#include "ops/elementwise/ops.h"
#include "ops/nn/pool.h"

namespace lockstep {
namespace {

// Largest elements of windows over images padded with zeros that are nowhere below 0, for they come from a ReLU: the padding is
// never more than another element. Whether a zero of it or one of the images' was chosen is not seen either, where all
// that comes back goes through the ReLU again, which stops it at zeros.
struct PaddedPooling {
  Window window;           // over the images themselves
  Value images;            // these
  std::vector<int> grads;  // nodes that bring gradients back
  std::vector<int> cuts;   // and cut the padding off
};

std::optional<PaddedPooling> padded_pooling(const Graph& graph, const std::vector<std::vector<int>>& readers,
                                            int pool) {
  const Node& node = graph.nodes[static_cast<size_t>(pool)];
  if (node.op != &kMaxPool2d || graph.node(node.inputs[0]).op != &kPad) return {};
  const Node& padded = graph.node(node.inputs[0]);
  const Value images = padded.inputs[0];
  const auto& pad = padded.attrs.as<PadAttrs>();
  const auto window =
      with_padding(node.attrs.as<PoolAttrs>().window, graph.spec(images).shape, pad.before, pad.after);
  if (pad.value != 0 || !window || graph.node(images).op != &kRelu || padded.device != node.device) return {};
  for (int i = 0; i < window->rank(); ++i)
    if (window->before[i] >= window->size[i]) return {};  // a window over padding alone
  PaddedPooling found{*window, images, {}, {}};
  const auto results = graph.results();
  const auto is_result = [&](int i) {
    return std::any_of(results.begin(), results.end(), [&](Value v) { return v.node == i; });
  };
  for (const int grad : readers[static_cast<size_t>(pool)]) {
    const Node& reader = graph.nodes[static_cast<size_t>(grad)];
    if (std::find(reader.inputs.begin(), reader.inputs.end(), Value{pool, 1}) == reader.inputs.end())
      continue;
    if (reader.op != &kMaxPool2dGrad || is_result(grad)) return {};
    found.grads.push_back(grad);
    for (const int cut : readers[static_cast<size_t>(grad)]) {
      const Node& slice = graph.nodes[static_cast<size_t>(cut)];
      if (slice.op != &kStridedSlice || slice.outputs[0] != graph.spec(images) || is_result(cut)) return {};
      const auto& attrs = slice.attrs.as<StridedSliceAttrs>();
      for (int d = 0; d < pad.before.rank(); ++d)
        if (attrs.begin[d] != pad.before[d] || attrs.stride[d] != 1) return {};
      for (const int mask : readers[static_cast<size_t>(cut)]) {
        const Node& select = graph.nodes[static_cast<size_t>(mask)];
        if (select.op != &kSelect || select.inputs[1] != Value{cut, 0}) return {};
        const Node& above = graph.node(select.inputs[0]);
        const Node& zero = graph.node(above.inputs.back());
        if (above.op != &kGreater || above.inputs[0] != images || zero.op != &kConstant ||
            zero.attrs.as<ConstantAttrs>().value != 0)
          return {};
      }
      found.cuts.push_back(cut);
    }
  }
  if (std::any_of(results.begin(), results.end(), [&](Value v) { return v == Value{pool, 1}; })) return {};
  return found;
}

// Lets a max pooling behind a ReLU pad its images itself.
std::optional<Graph> pad_in_pooling(const Graph& graph, DeviceKind) {
  const auto readers = readers_of(graph);
  std::unordered_map<int, PaddedPooling> pools;  // by the node of the pooling and of each gradient
  std::vector<bool> is_cut(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (const auto found = padded_pooling(graph, readers, static_cast<int>(i))) {
      pools.emplace(static_cast<int>(i), *found);
      for (const int grad : found->grads) pools.emplace(grad, *found);
      for (const int cut : found->cuts) is_cut[static_cast<size_t>(cut)] = true;
    }
  if (pools.empty()) return std::nullopt;
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    const Node& node = graph.nodes[i];
    if (const auto found = pools.find(id); found != pools.end()) {
      Node folded = rewriter.mapped(id);
      folded.attrs = PoolAttrs{found->second.window};
      if (node.op == &kMaxPool2d)
        folded.inputs[0] = rewriter.mapped(found->second.images);
      else
        folded.outputs[0] = graph.spec(found->second.images);
      rewriter.replace_with(id, std::move(folded));
    } else if (is_cut[i]) {
      rewriter.map({id, 0}, rewriter.mapped(node.inputs[0]));
    } else {
      rewriter.keep(id);
    }
  }
  return rewriter.finish();
}

const RegisterRewrite registered(DeviceKind::gpu, {.name = "pad_in_pooling",
                                                   .stage = RewriteStage::combine,
                                                   .apply = pad_in_pooling});

}  // namespace
}  // namespace lockstep
