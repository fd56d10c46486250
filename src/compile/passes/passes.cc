#include "compile/passes/passes.h"

#include <functional>
#include <optional>
#include <unordered_map>

#include "compile/control_flow/control_flow_ops.h"
#include "compile/passes/rewriter.h"
#include "graph/emit.h"
#include "ops/array/array.h"
#include "ops/array/join.h"
#include "ops/elementwise/evaluate.h"
#include "ops/elementwise/expander.h"
#include "ops/elementwise/ops.h"
#include "ops/matmul/matmul.h"
#include "ops/nn/batch_norm.h"
#include "ops/nn/conv.h"
#include "ops/nn/cross_entropy.h"
#include "ops/nn/normalize.h"
#include "ops/nn/pool.h"

namespace lockstep::compile {

std::vector<std::vector<int>> count_uses(const Graph& graph) {
  std::vector<std::vector<int>> uses;
  for (const Node& node : graph.nodes) uses.emplace_back(node.outputs.size(), 0);
  const auto use = [&](Value v) { ++uses[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)]; };
  for (const Node& node : graph.nodes)
    for (const Value v : node.inputs) use(v);
  for (const Value v : graph.results()) use(v);
  return uses;
}

Graph remove_dead_nodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes.size(), false);
  for (const Value v : graph.results()) live[static_cast<size_t>(v.node)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;)
    if (live[i])
      for (const Value v : graph.nodes[i].inputs) live[static_cast<size_t>(v.node)] = true;
  // Sources depend on nothing: in front, they are in nobody's way when nodes are merged; neither are conversions and views
  // of them, such as a bias in another dtype.
  std::vector<bool> front(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    front[i] = is_source(*node.op) || ((node.op == &kCast || node.op->view) && node.inputs.size() == 1 &&
                                       front[static_cast<size_t>(node.inputs[0].node)]);
  }
  Rewriter rewriter(graph);
  for (const bool first : {true, false})
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (live[i] && front[i] == first) rewriter.keep(static_cast<int>(i));
  return rewriter.finish();
}

Graph share_common_subexpressions(const Graph& graph) {
  std::unordered_multimap<uint64_t, int> seen;  // hash to node of the new graph
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node node = rewriter.mapped(static_cast<int>(i));
    if (!node.op->pure) {
      rewriter.replace_with(static_cast<int>(i), std::move(node));
      continue;
    }
    AttrHasher hasher;
    hasher.mix(reinterpret_cast<uintptr_t>(node.op));
    hasher.mix(node.attrs.hash());
    for (const Value v : node.inputs)
      hasher.mix(static_cast<uint64_t>(v.node) << 8 | static_cast<uint64_t>(v.output));
    std::optional<int> twin;
    for (auto [it, end] = seen.equal_range(hasher.value()); it != end && !twin; ++it) {
      const Node& other = rewriter.graph().nodes[static_cast<size_t>(it->second)];
      if (other.op == node.op && other.inputs == node.inputs && other.outputs == node.outputs &&
          other.device == node.device && other.attrs == node.attrs)
        twin = it->second;
    }
    if (twin) {
      for (size_t k = 0; k < node.outputs.size(); ++k)
        rewriter.map({static_cast<int>(i), static_cast<int>(k)}, {*twin, static_cast<int>(k)});
    } else {
      seen.emplace(hasher.value(), rewriter.replace_with(static_cast<int>(i), std::move(node)));
    }
  }
  return rewriter.finish();
}

namespace {

std::optional<double> constant_value(const Graph& graph, Value v) {
  const Node& node = graph.node(v);
  if (node.op != &kConstant) return std::nullopt;
  return node.attrs.as<ConstantAttrs>().value;
}

// The value of an elementwise op whose inputs are constants.
std::optional<double> evaluate(const Graph& graph, const Node& node) {
  if (!node.op->expand || node.outputs.size() != 1) return std::nullopt;
  std::vector<double> inputs;
  std::vector<DType> dtypes;
  for (const Value v : node.inputs) {
    const auto value = constant_value(graph, v);
    if (!value) return std::nullopt;
    inputs.push_back(*value);
    dtypes.push_back(graph.spec(v).dtype);
  }
  return elementwise::evaluate(elementwise::expand(*node.op, node.attrs, dtypes), inputs);
}

}  // namespace

Graph fold_constants(const Graph& graph) {
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    Node node = rewriter.mapped(id);
    const Graph& done = rewriter.graph();
    std::optional<double> value;
    if (node.op->view && node.inputs.size() == 1) value = constant_value(done, node.inputs[0]);
    if (!value && !node.inputs.empty()) value = evaluate(done, node);
    if (value) {
      rewriter.replace_with(id, {.op = &kConstant,
                                 .attrs = ConstantAttrs{*value},
                                 .inputs = {},
                                 .outputs = node.outputs,
                                 .where = node.where});
      continue;
    }
    if (node.op == &kMul) {
      const bool first = constant_value(done, node.inputs[0]) == 1.0;
      const bool second = constant_value(done, node.inputs[1]) == 1.0;
      const Value rest = node.inputs[first ? 1 : 0];
      if ((first || second) && done.spec(rest) == node.outputs[0]) {
        rewriter.map({id, 0}, rest);
        continue;
      }
    }
    if (node.op == &kStopGradient) {
      rewriter.map({id, 0}, node.inputs[0]);
      continue;
    }
    rewriter.replace_with(id, std::move(node));
  }
  return rewriter.finish();
}

Graph drop_collectives(const Graph& graph) {
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    if (graph.nodes[i].op == &kAllReduceSum)
      rewriter.map({id, 0}, rewriter.mapped(graph.nodes[i].inputs[0]));
    else
      rewriter.keep(id);
  }
  return rewriter.finish();
}

namespace {

// A vector with one value for each column of `result`.
bool is_column_bias(const Shape& bias, const Shape& result) {
  if (bias.rank() < 1 || result.rank() < 1 || bias[-1] != result[-1] || bias.rank() > result.rank())
    return false;
  return bias.size() == bias[-1];
}

struct EpilogueState {
  bool bias = false;
  Epilogue epilogue = Epilogue::none;
};

}  // namespace

Graph fuse_epilogues(const Graph& graph) {
  const auto uses = count_uses(graph);
  const auto used_once = [&](Value v) {
    return uses[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)] == 1;
  };
  std::unordered_map<int, EpilogueState> states;  // by node of the new graph
  Rewriter rewriter(graph);

  // The node of the new graph that can take one more thing to do behind `v` on this device, or -1.
  const auto host = [&](Value v, const Device* device) {
    if (!used_once(v) || v.output != 0) return -1;
    const Value mapped = rewriter.mapped(v);
    const Node& node = rewriter.graph().node(mapped);
    if (!node.op->with_epilogue || !is_floating(node.outputs[0].dtype) || node.device != device) return -1;
    if (node.outputs[0].dtype != DType::float32 && node.outputs[0].dtype != DType::bfloat16) return -1;
    return static_cast<int>(mapped.node);
  };

  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    const Node& node = graph.nodes[i];
    if (node.op == &kAdd) {
      bool fused = false;
      for (int side = 0; side < 2 && !fused; ++side) {
        const Value product = node.inputs[static_cast<size_t>(side)];
        const Value bias = node.inputs[static_cast<size_t>(1 - side)];
        const int target = host(product, node.device);
        if (target < 0 || graph.spec(product) != node.outputs[0]) continue;
        if (!is_column_bias(graph.spec(bias).shape, node.outputs[0].shape)) continue;
        EpilogueState& state = states[target];
        const Value mapped_bias = rewriter.mapped(bias);
        // The bias must come before the op that takes it: it moves to the add's place otherwise.
        if (state.bias || state.epilogue != Epilogue::none || mapped_bias.node > target) continue;
        Node& host_node = rewriter.mutable_node(target);
        state.bias = true;
        host_node.inputs.push_back(mapped_bias);
        host_node.attrs = host_node.op->with_epilogue(host_node.attrs, state.bias, state.epilogue);
        rewriter.map({id, 0}, {target, 0});
        fused = true;
      }
      if (fused) continue;
    } else if (node.op->as_epilogue) {
      const int target = host(node.inputs[0], node.device);
      if (target >= 0 && states[target].epilogue == Epilogue::none) {
        EpilogueState& state = states[target];
        state.epilogue = node.op->as_epilogue(node.attrs);
        Node& host_node = rewriter.mutable_node(target);
        host_node.attrs = host_node.op->with_epilogue(host_node.attrs, state.bias, state.epilogue);
        rewriter.map({id, 0}, {target, 0});
        continue;
      }
    }
    rewriter.keep(id);
  }
  return rewriter.finish();
}

Graph join_losses(const Graph& graph) {
  const auto uses = count_uses(graph);
  const auto reads_a_loss = [&](int node) {
    std::vector<bool> reached(static_cast<size_t>(node) + 1);
    reached.back() = true;
    for (int i = node; i >= 0; --i) {
      if (!reached[static_cast<size_t>(i)]) continue;
      const Node& at = graph.nodes[static_cast<size_t>(i)];
      if (at.op == &kSparseCrossEntropy) return true;
      for (const Value v : at.inputs) reached[static_cast<size_t>(v.node)] = true;
    }
    return false;
  };

  std::unordered_map<int, int> gradient_of;  // by the loss' node
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op != &kSparseCrossEntropyGrad) continue;
    const Value statistics = node.inputs[2];
    const Node& loss = graph.node(statistics);
    const bool joins = loss.op == &kSparseCrossEntropy && statistics.output == 1 &&
                       loss.inputs[0] == node.inputs[0] && loss.inputs[1] == node.inputs[1] &&
                       loss.device == node.device && uses[static_cast<size_t>(statistics.node)][1] == 1 &&
                       !reads_a_loss(node.inputs[3].node);
    if (joins) gradient_of[statistics.node] = static_cast<int>(i);
  }
  if (gradient_of.empty()) return graph;

  Rewriter rewriter(graph);
  std::vector<bool> done(graph.nodes.size());
  // A loss comes behind what its gradient reads, which may stand behind it now.
  const std::function<void(int)> add = [&](int id) {
    if (done[static_cast<size_t>(id)]) return;
    done[static_cast<size_t>(id)] = true;
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    for (const Value v : node.inputs) add(v.node);
    const auto found = gradient_of.find(id);
    if (found == gradient_of.end()) {
      rewriter.keep(id);
      return;
    }
    const Node& gradient = graph.nodes[static_cast<size_t>(found->second)];
    done[static_cast<size_t>(found->second)] = true;
    const Value arriving = gradient.inputs[3];
    add(arriving.node);
    Node both = node;
    both.op = &kSparseCrossEntropyWithGrad;
    both.inputs = {rewriter.mapped(node.inputs[0]), rewriter.mapped(node.inputs[1]),
                   rewriter.mapped(arriving)};
    both.outputs = {node.outputs[0], gradient.outputs[0]};
    const Value added = rewriter.add(std::move(both));
    rewriter.map({id, 0}, added);
    rewriter.map({found->second, 0}, {added.node, 1});
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) add(static_cast<int>(i));
  return rewriter.finish();
}

namespace {

// The window over images that are not padded yet; nothing where it would be another on the two sides, or where more than
// height and width grow.
std::optional<Window> padded_by(Window window, const Shape& images, const Dims& before, const Dims& after) {
  const int rank = window.rank();
  if (images.rank() != rank + 2 || before[0] + after[0] + before[rank + 1] + after[rank + 1] != 0)
    return std::nullopt;
  for (int i = 0; i < rank; ++i) {
    window.input[i] = images[i + 1];
    window.before[i] += before[i + 1];
    window.after[i] += after[i + 1];
  }
  if (!(window.before == window.after)) return std::nullopt;
  return window;
}

}  // namespace

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
      padded_by(node.attrs.as<PoolAttrs>().window, graph.spec(images).shape, pad.before, pad.after);
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

}  // namespace

Graph fold_padding(const Graph& graph) {
  const auto uses = count_uses(graph);
  std::vector<std::vector<int>> readers(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const Value v : graph.nodes[i].inputs)
      readers[static_cast<size_t>(v.node)].push_back(static_cast<int>(i));
  std::unordered_map<int, PaddedPooling> pools;  // by the node of the pooling and of each gradient
  std::vector<bool> is_cut(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (const auto found = padded_pooling(graph, readers, static_cast<int>(i))) {
      pools.emplace(static_cast<int>(i), *found);
      for (const int grad : found->grads) pools.emplace(grad, *found);
      for (const int cut : found->cuts) is_cut[static_cast<size_t>(cut)] = true;
    }
  const auto is_conv = [](const OpDef* op, ConvDirection direction) {
    return (op == &kConv2d || op == &kConv2dBackpropInput || op == &kConv2dBackpropFilter) &&
           conv_direction(*op) == direction;
  };
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    const Node& node = graph.nodes[i];
    const Node* first = node.inputs.empty() ? nullptr : &graph.node(node.inputs[0]);
    if (const auto found = pools.find(id); found != pools.end()) {
      Node folded = rewriter.mapped(id);
      folded.attrs = PoolAttrs{found->second.window};
      if (node.op == &kMaxPool2d)
        folded.inputs[0] = rewriter.mapped(found->second.images);
      else
        folded.outputs[0] = graph.spec(found->second.images);
      rewriter.replace_with(id, std::move(folded));
      continue;
    }
    if (is_cut[i]) {
      rewriter.map({id, 0}, rewriter.mapped(node.inputs[0]));
      continue;
    }
    if ((is_conv(node.op, ConvDirection::forward) || is_conv(node.op, ConvDirection::backprop_filter)) &&
        first->op == &kPad && first->device == node.device) {
      const auto& pad = first->attrs.as<PadAttrs>();
      auto attrs = node.attrs.as<ConvAttrs>();
      const auto window = padded_by(attrs.window, graph.spec(first->inputs[0]).shape, pad.before, pad.after);
      if (pad.value == 0 && window) {
        Node folded = rewriter.mapped(id);
        attrs.window = *window;
        folded.attrs = attrs;
        folded.inputs[0] = rewriter.mapped(first->inputs[0]);
        rewriter.replace_with(id, std::move(folded));
        continue;
      }
    }
    // What arrives at the padding is cut off.
    if (node.op == &kStridedSlice && is_conv(first->op, ConvDirection::backprop_input) &&
        first->device == node.device && uses[static_cast<size_t>(node.inputs[0].node)][0] == 1) {
      const auto& slice = node.attrs.as<StridedSliceAttrs>();
      const Shape &images = node.outputs[0].shape, &whole = graph.spec(node.inputs[0]).shape;
      auto attrs = first->attrs.as<ConvAttrs>();
      Dims after = slice.begin;
      bool dense = true;
      for (int d = 0; d < images.rank(); ++d) {
        after[d] = whole[d] - slice.begin[d] - images[d];
        dense = dense && slice.stride[d] == 1;
      }
      const auto window = padded_by(attrs.window, images, slice.begin, after);
      if (dense && window) {
        Node folded = rewriter.mapped(node.inputs[0].node);
        attrs.window = *window;
        folded.attrs = attrs;
        folded.outputs = node.outputs;
        rewriter.replace_with(id, std::move(folded));
        continue;
      }
    }
    rewriter.keep(id);
  }
  return remove_dead_nodes(rewriter.finish());
}

namespace {

bool is_narrow(DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float16; }

// Of a float32 value that was converted from a 16-bit one: that one.
Value narrow_source(const Graph& graph, Value v) {
  const Node& node = graph.node(v);
  if (node.op != &kCast || graph.spec(v).dtype != DType::float32) return {};
  return is_narrow(graph.spec(node.inputs[0]).dtype) ? node.inputs[0] : Value{};
}

// The 16-bit type that a node's kernel can read and write in place of float32.
std::optional<DType> narrow_type(const Graph& graph, const Node& node, const KernelDef& kernel,
                                 const std::vector<std::vector<DType>>& read_as) {
  std::optional<DType> type;
  const auto agrees = [&](DType dtype) { return *(type = type.value_or(dtype)) == dtype; };
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if ((kernel.narrow_inputs >> i & 1) == 0) continue;
    const Value source = narrow_source(graph, node.inputs[i]);
    if (!source.valid() || !agrees(graph.spec(source).dtype)) return std::nullopt;
  }
  for (size_t k = 0; k < node.outputs.size(); ++k)
    if ((kernel.narrow_outputs >> k & 1) != 0)
      for (const DType dtype : read_as[k])
        if (!is_narrow(dtype) || !agrees(dtype)) return std::nullopt;
  return type;
}

}  // namespace

Graph absorb_casts(const Graph& graph, const std::function<const KernelDef&(const Node&)>& kernel_of) {
  // What the readers of each value convert it to; float32: they do not, or it is a result.
  std::vector<std::vector<std::vector<DType>>> read_as;
  for (const Node& node : graph.nodes) read_as.emplace_back(node.outputs.size());
  const auto read = [&](Value v, DType as) {
    read_as[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)].push_back(as);
  };
  for (const Node& node : graph.nodes)
    for (const Value v : node.inputs)
      read(v,
           node.op == &kCast && node.device == graph.node(v).device ? node.outputs[0].dtype : DType::float32);
  for (const Value v : graph.results()) read(v, DType::float32);

  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    const Node& old = graph.nodes[i];
    Node node = rewriter.mapped(id);
    if (is_source(*old.op) || old.op == &kAllReduceSum) {
      rewriter.keep(id);
      continue;
    }
    if (old.op == &kCast && rewriter.graph().spec(node.inputs[0]) == node.outputs[0]) {
      rewriter.map({id, 0}, node.inputs[0]);  // of a value that is made narrow now
      continue;
    }
    if (old.op->expand) {
      // A conversion of its own costs an elementwise op nothing; a shared one is a tensor of twice the size.
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (narrow_source(graph, old.inputs[k]).valid())
          node.inputs[k] = rewriter.add(rewriter.mapped(old.inputs[k].node));
      rewriter.replace_with(id, std::move(node));
      continue;
    }
    if (old.op->view == nullptr) {
      const KernelDef& kernel = kernel_of(old);
      if (const auto type =
              kernel.narrow_inputs != 0 ? narrow_type(graph, old, kernel, read_as[i]) : std::nullopt) {
        for (size_t k = 0; k < node.inputs.size(); ++k)
          if ((kernel.narrow_inputs >> k & 1) != 0)
            node.inputs[k] = rewriter.mapped(narrow_source(graph, old.inputs[k]));
        for (size_t k = 0; k < node.outputs.size(); ++k)
          if ((kernel.narrow_outputs >> k & 1) != 0) node.outputs[k].dtype = *type;
      }
    }
    rewriter.replace_with(id, std::move(node));
  }
  return remove_dead_nodes(rewriter.finish());
}

Graph fuse_addends(const Graph& graph) {
  const auto uses = count_uses(graph);
  Rewriter rewriter(graph);
  // The node of the new graph that can add `other` to its result `v`, or -1; its attributes then.
  const auto host = [&](Value v, Value other, const Node& add, Attrs& attrs) {
    if (uses[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)] != 1 || v.output != 0) return -1;
    if (graph.spec(v) != add.outputs[0] || graph.spec(other) != add.outputs[0]) return -1;
    const Value mapped = rewriter.mapped(v);
    const Node& node = rewriter.graph().node(mapped);
    if (node.device != add.device || rewriter.mapped(other).node >= mapped.node) return -1;
    if (node.op == &kMatmul) {
      auto changed = node.attrs.as<MatmulAttrs>();
      if (changed.addend || changed.epilogue != Epilogue::none) return -1;
      changed.addend = true;
      attrs = changed;
    } else if (node.op == &kLayerNormGrad || node.op == &kRmsNormGrad) {
      auto changed = node.attrs.as<LayerNormAttrs>();
      if (changed.addend) return -1;
      changed.addend = true;
      attrs = changed;
    } else {
      return -1;
    }
    return static_cast<int>(mapped.node);
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    const Node& node = graph.nodes[i];
    bool fused = false;
    if (node.op == &kAdd && is_narrow(node.outputs[0].dtype))
      for (size_t side = 0; side < 2 && !fused; ++side) {
        Attrs attrs;
        const int target = host(node.inputs[side], node.inputs[1 - side], node, attrs);
        if (target < 0) continue;
        Node& changed = rewriter.mutable_node(target);
        changed.attrs = std::move(attrs);
        changed.inputs.push_back(rewriter.mapped(node.inputs[1 - side]));
        rewriter.map({id, 0}, {target, 0});
        fused = true;
      }
    if (!fused) rewriter.keep(id);
  }
  return rewriter.finish();
}

namespace {

// The value is `arriving` where relu(behind) was above 0, and 0 elsewhere.
struct ReluMask {
  Value arriving, relu;
};
const Node* made_by(const Graph& graph, Value v, const OpDef& op) {
  while (graph.node(v).op == &kIdentity) v = graph.node(v).inputs[0];
  return graph.node(v).op == &op ? &graph.node(v) : nullptr;
}
std::optional<ReluMask> relu_mask(const Graph& graph, Value v) {
  const auto is_zero = [&](Value value) {
    const Node* constant = made_by(graph, value, kConstant);
    return constant && constant->attrs.as<ConstantAttrs>().value == 0;
  };
  const Node* chosen = made_by(graph, v, kSelect);
  if (!chosen || !is_zero(chosen->inputs[2]) || graph.spec(chosen->inputs[1]) != graph.spec(v)) return {};
  const Node* above = made_by(graph, chosen->inputs[0], kGreater);
  if (!above || !is_zero(above->inputs[1]) || graph.spec(above->inputs[0]) != graph.spec(v) ||
      !made_by(graph, above->inputs[0], kRelu))
    return {};
  return ReluMask{chosen->inputs[1], above->inputs[0]};
}

// Of relu(x factor + shift) with x of 16 bits and a factor and a shift for every column.
struct Scaled {
  Value x, factor, shift;
};
std::optional<Scaled> scaled_behind(const Graph& graph, Value relu) {
  const Node* rounded = made_by(graph, made_by(graph, relu, kRelu)->inputs[0], kCast);
  const Node* sum = rounded ? made_by(graph, rounded->inputs[0], kAdd) : nullptr;
  const Node* product = sum ? made_by(graph, sum->inputs[0], kMul) : nullptr;
  if (!product) return {};
  const Scaled found{narrow_source(graph, product->inputs[0]), product->inputs[1], sum->inputs[1]};
  const TensorSpec column{DType::float32, {graph.spec(relu).shape[-1]}};
  const bool fits = found.x.valid() && graph.spec(found.x) == graph.spec(relu) &&
                    graph.spec(found.factor) == column && graph.spec(found.shift) == column;
  return fits ? std::optional(found) : std::nullopt;
}

}  // namespace

Graph fuse_relu_masks(const Graph& graph) {
  using Dy = BatchNormSumsAttrs::Dy;
  struct Change {
    int sums;  // the node that changes
    Dy kind;
    ReluMask mask;
    Scaled scaled = {};
  };
  const auto uses = count_uses(graph);
  std::unordered_map<int, Change> changes;  // by the node of the masked gradient
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op != &kBatchNormSums || !is_narrow(graph.spec(node.inputs[2]).dtype)) continue;
    const Value dy = node.inputs[2];
    const auto mask = relu_mask(graph, dy);
    if (!mask || graph.node(dy).op != &kSelect || graph.node(dy).device != node.device) continue;
    const int id = static_cast<int>(i);
    if (const auto scaled = scaled_behind(graph, mask->relu)) {
      if (scaled->x == node.inputs[0]) changes.emplace(dy.node, Change{id, Dy::masked, *mask, *scaled});
    } else if (const Node& added = graph.node(mask->arriving);
               added.op == &kAdd && uses[static_cast<size_t>(mask->arriving.node)][0] == 1 &&
               graph.spec(added.inputs[0]) == graph.spec(dy) &&
               graph.spec(added.inputs[1]) == graph.spec(dy) && node.inputs[0].node < dy.node &&
               node.inputs[1].node < dy.node) {
      changes.emplace(dy.node, Change{id, Dy::joined, *mask});
    }
  }
  if (changes.empty()) return graph;

  Rewriter rewriter(graph);
  std::unordered_map<int, int> made;  // sums that stand in the new graph already, by their old node
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    Node node = rewriter.mapped(id);
    if (const auto found = changes.find(id); found != changes.end()) {
      const auto& [sums, kind, mask, scaled] = found->second;
      if (kind == Dy::joined) {
        // The sums take its place: what they store is read by others.
        const Node& old = graph.nodes[static_cast<size_t>(sums)];
        const Node& added = graph.node(mask.arriving);
        const Value joined =
            rewriter.add({.op = &kBatchNormSums,
                          .attrs = BatchNormSumsAttrs{kind},
                          .inputs = {rewriter.mapped(old.inputs[0]), rewriter.mapped(old.inputs[1]),
                                     rewriter.mapped(added.inputs[0]), rewriter.mapped(added.inputs[1]),
                                     rewriter.mapped(mask.relu)},
                          .outputs = {old.outputs[0], old.outputs[1], node.outputs[0]},
                          .where = old.where,
                          .device = old.device});
        made[sums] = joined.node;
        rewriter.map({id, 0}, {joined.node, 2});
        continue;
      }
      // For its other readers, from the same operands: computed with what they compute.
      const auto add = [&](const OpDef& op, std::vector<Value> inputs, DType dtype, Attrs attrs = {}) {
        return rewriter.add({.op = &op,
                             .attrs = std::move(attrs),
                             .inputs = std::move(inputs),
                             .outputs = {{dtype, node.outputs[0].shape}},
                             .where = node.where,
                             .device = node.device});
      };
      const Value zero = rewriter.add({.op = &kConstant,
                                       .attrs = ConstantAttrs{0},
                                       .inputs = {},
                                       .outputs = {{DType::float32, {}}},
                                       .where = node.where,
                                       .device = node.device});
      const Value wide = add(kCast, {rewriter.mapped(scaled.x)}, DType::float32, CastAttrs{DType::float32});
      const Value product = add(kMul, {wide, rewriter.mapped(scaled.factor)}, DType::float32);
      const Value sum = add(kAdd, {product, rewriter.mapped(scaled.shift)}, DType::float32);
      node.inputs[0] = add(kGreater, {sum, zero}, DType::boolean);
    } else if (const auto stands = made.find(id); stands != made.end()) {
      for (int32_t k = 0; k < 2; ++k) rewriter.map({id, k}, {stands->second, k});
      continue;
    } else if (node.op == &kBatchNormSums) {
      const auto change = changes.find(graph.nodes[i].inputs[2].node);
      if (change != changes.end() && change->second.sums == id) {
        node.attrs = BatchNormSumsAttrs{Dy::masked};
        node.inputs[2] = rewriter.mapped(change->second.mask.arriving);
        node.inputs.push_back(rewriter.mapped(change->second.scaled.factor));
        node.inputs.push_back(rewriter.mapped(change->second.scaled.shift));
      }
    }
    rewriter.replace_with(id, std::move(node));
  }
  return remove_dead_nodes(rewriter.finish());
}

Graph simplify(Graph graph, bool replicated, bool join) {
  if (!replicated) graph = drop_collectives(graph);
  graph = remove_dead_nodes(graph);
  graph = fold_constants(graph);
  graph = share_common_subexpressions(graph);
  graph = share_histories(remove_dead_nodes(graph));
  return join ? fuse_epilogues(graph) : graph;
}

}  // namespace lockstep::compile
