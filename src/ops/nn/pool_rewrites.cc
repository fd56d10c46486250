// How a graph pools.
#include <algorithm>
#include <unordered_map>

#include "graph/rewrite.h"
#include "ops/array/array.h"
#include "ops/array/join.h"
#include "ops/elementwise/ops.h"
#include "ops/nn/conv.h"
#include "ops/nn/pool.h"

namespace lockstep {
namespace {

bool is_result(const Graph& graph, Value v) {
  const auto results = graph.results();
  return std::find(results.begin(), results.end(), v) != results.end();
}

// --- padding moves into a max pooling ----------------------------------------------------------------------

// Largest elements of windows over images padded with zeros that are nowhere below 0, for they come from a
// ReLU: the padding is never more than another element. Whether a zero of it or one of the images' was chosen
// is not seen either, where all that comes back goes through the ReLU again, which stops it at zeros.
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
  for (const int grad : readers[static_cast<size_t>(pool)]) {
    const Node& reader = graph.nodes[static_cast<size_t>(grad)];
    if (std::find(reader.inputs.begin(), reader.inputs.end(), Value{pool, 1}) == reader.inputs.end())
      continue;
    if (reader.op != &kMaxPool2dGrad || is_result(graph, {grad, 0})) return {};
    found.grads.push_back(grad);
    for (const int cut : readers[static_cast<size_t>(grad)]) {
      const Node& slice = graph.nodes[static_cast<size_t>(cut)];
      if (slice.op != &kStridedSlice || slice.outputs[0] != graph.spec(images) || is_result(graph, {cut, 0}))
        return {};
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
  if (is_result(graph, {pool, 1})) return {};
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

// --- a ReLU moves behind a max pooling ---------------------------------------------------------------------

// A max pooling of what a ReLU gives, which nobody else reads. The largest element is the same one before the
// ReLU, unless none is above 0, and then nothing is seen of which it was. Behind the pooling the ReLU has
// less to do, and its gradient stops what comes back before that is put in its places.
struct EarlyRelu {
  int relu;  // the ReLU, or a convolution that ends in one
  int pool;
  std::vector<int> grads;    // of the pooling
  std::vector<int> selects;  // of what these bring back: where the ReLU's result is above 0
};

bool ends_in_relu(const Node& node) {
  return node.op == &kRelu || ((node.op == &kConv2d || node.op == &kConv3d) &&
                               node.attrs.as<ConvAttrs>().epilogue == Epilogue::relu);
}

// Whether the node is the gradient of a ReLU with this result, for what arrives there.
bool is_relu_gradient(const Graph& graph, const Node& node, Value relu, Value arriving) {
  if (node.op != &kSelect || node.inputs[1] != arriving || constant_value(graph, node.inputs[2]) != 0)
    return false;
  const Node& above = graph.node(node.inputs[0]);
  return above.op == &kGreater && above.inputs[0] == relu && constant_value(graph, above.inputs[1]) == 0;
}

std::optional<EarlyRelu> early_relu(const Graph& graph, const std::vector<std::vector<int>>& readers,
                                    int pool) {
  const auto at = [&](int i) -> const Node& { return graph.nodes[static_cast<size_t>(i)]; };
  const auto readers_at = [&](int i) -> const std::vector<int>& { return readers[static_cast<size_t>(i)]; };
  const auto read_once = [&](int i) { return readers_at(i).size() == 1 && !is_result(graph, {i, 0}); };

  Value relu = at(pool).inputs[0];
  int reader = pool;  // of the ReLU, itself or by reshapes
  for (; graph.node(relu).op == &kReshape && read_once(relu.node); relu = at(reader).inputs[0])
    reader = relu.node;
  const int64_t elements = graph.spec(relu).shape.size(), pooled = graph.spec({pool, 0}).shape.size();
  if (!ends_in_relu(graph.node(relu)) || graph.node(relu).device != at(pool).device ||
      2 * pooled > elements || is_result(graph, relu) || is_result(graph, {pool, 1}))
    return {};

  EarlyRelu found{.relu = relu.node, .pool = pool, .grads = {}, .selects = {}};
  for (const int grad : readers_at(pool)) {
    const std::vector<Value>& inputs = at(grad).inputs;
    if (std::find(inputs.begin(), inputs.end(), Value{pool, 1}) == inputs.end()) continue;
    if (at(grad).op != &kMaxPool2dGrad) return {};
    int back = grad;
    while (read_once(back) && at(readers_at(back)[0]).op == &kReshape) back = readers_at(back)[0];
    if (!read_once(back) || !is_relu_gradient(graph, at(readers_at(back)[0]), relu, {back, 0})) return {};
    found.grads.push_back(grad);
    found.selects.push_back(readers_at(back)[0]);
  }
  const auto is_gradient = [&](int i) {
    return std::find(found.selects.begin(), found.selects.end(), i) != found.selects.end();
  };
  for (const int other : readers_at(relu.node)) {
    if (other == reader) continue;
    if (at(other).op != &kGreater || is_result(graph, {other, 0}) ||
        !std::all_of(readers_at(other).begin(), readers_at(other).end(), is_gradient))
      return {};
  }
  return found;
}

Graph with_relu_behind(const Graph& graph, const EarlyRelu& early) {
  Rewriter rewriter(graph);
  const Node& pool = graph.nodes[static_cast<size_t>(early.pool)];
  const auto add = [&](const OpDef& op, std::vector<Value> inputs, const TensorSpec& spec, Attrs attrs = {}) {
    return rewriter.add({.op = &op,
                         .attrs = std::move(attrs),
                         .inputs = std::move(inputs),
                         .outputs = {spec},
                         .where = pool.where,
                         .device = pool.device});
  };
  const TensorSpec& pooled = pool.outputs[0];
  const auto is_in = [](const std::vector<int>& nodes, int i) {
    return std::find(nodes.begin(), nodes.end(), i) != nodes.end();
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    Node node = rewriter.mapped(id);
    if (id == early.relu && node.op == &kRelu) {
      rewriter.map({id, 0}, node.inputs[0]);
    } else if (id == early.relu) {
      node.attrs = node.op->with_epilogue(node.attrs, node.attrs.as<ConvAttrs>().bias, Epilogue::none);
      rewriter.replace_with(id, std::move(node));
    } else if (id == early.pool) {
      const int largest = rewriter.replace_with(id, std::move(node));
      rewriter.map({id, 0}, add(kRelu, {{largest, 0}}, pooled));
    } else if (is_in(early.grads, id)) {
      const Value zero = add(kConstant, {}, {pooled.dtype, {}}, ConstantAttrs{0});
      const Value above =
          add(kGreater, {rewriter.mapped({early.pool, 0}), zero}, {DType::boolean, pooled.shape});
      node.inputs[0] = add(kSelect, {above, node.inputs[0], zero}, pooled);
      rewriter.replace_with(id, std::move(node));
    } else if (is_in(early.selects, id)) {
      rewriter.map({id, 0}, node.inputs[1]);
    } else {
      rewriter.replace_with(id, std::move(node));
    }
  }
  return rewriter.finish();
}

// The first that can move, again and again: of volumes, planes are pooled and then columns.
std::optional<Graph> relu_behind_pooling(const Graph& graph, DeviceKind) {
  std::optional<Graph> moved;
  for (bool found = true; found;) {
    const Graph& now = moved ? *moved : graph;
    const auto readers = readers_of(now);
    found = false;
    for (size_t i = 0; i < now.nodes.size() && !found; ++i) {
      if (now.nodes[i].op != &kMaxPool2d) continue;
      if (const auto early = early_relu(now, readers, static_cast<int>(i))) {
        moved = with_relu_behind(now, *early);
        found = true;
      }
    }
  }
  return moved;
}

const RegisterRewrite registered[] = {
    {DeviceKind::gpu, {.name = "pad_in_pooling", .stage = RewriteStage::combine, .apply = pad_in_pooling}},
    {DeviceKind::cpu,
     {.name = "relu_behind_pooling", .stage = RewriteStage::combine, .apply = relu_behind_pooling}}};

}  // namespace
}  // namespace lockstep
