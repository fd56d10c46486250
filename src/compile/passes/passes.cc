#include "compile/passes/passes.h"

#include <optional>
#include <unordered_map>

#include "compile/control_flow/control_flow_ops.h"
#include "compile/passes/verify.h"
#include "graph/emit.h"
#include "graph/rewrite.h"
#include "ops/elementwise/evaluate.h"
#include "ops/elementwise/expander.h"

namespace lockstep::compile {

Graph remove_dead_nodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes.size(), false);
  for (const Value v : graph.results()) live[static_cast<size_t>(v.node)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;)
    if (live[i])
      for (const Value v : graph.nodes[i].inputs) live[static_cast<size_t>(v.node)] = true;
  // Sources depend on nothing: in front, they are in nobody's way when nodes are merged; neither are
  // conversions and views of them, such as a bias in another dtype.
  std::vector<bool> front(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    front[i] =
        is_source(*node.op) || ((node.op->traits.converts || node.op->view) && node.inputs.size() == 1 &&
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
    if (const auto neutral = node.op->traits.neutral) {
      const bool first = constant_value(done, node.inputs[0]) == neutral;
      const bool second = constant_value(done, node.inputs[1]) == neutral;
      const Value rest = node.inputs[first ? 1 : 0];
      if ((first || second) && done.spec(rest) == node.outputs[0]) {
        rewriter.map({id, 0}, rest);
        continue;
      }
    }
    if (node.op->traits.forwards) {
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
    if (node.op->traits.adds) {
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

namespace {

Graph apply_stages(Graph graph, DeviceKind kind, bool behind_fusion, std::vector<std::string_view>* applied) {
  for (const Rewrite& rewrite : registered_rewrites(kind)) {
    if ((rewrite.stage == RewriteStage::fused) != behind_fusion) continue;
    std::optional<Graph> rewritten = rewrite.apply(graph, kind);
    if (!rewritten) continue;
    graph = remove_dead_nodes(*rewritten);
    verify_after(rewrite.name, graph, kind);
    if (applied) applied->push_back(rewrite.name);
  }
  return graph;
}

}  // namespace

Graph apply_rewrites(Graph graph, DeviceKind kind, std::vector<std::string_view>* applied) {
  return apply_stages(std::move(graph), kind, false, applied);
}

Graph apply_rewrites_behind_fusion(Graph graph, DeviceKind kind, std::vector<std::string_view>* applied) {
  return apply_stages(std::move(graph), kind, true, applied);
}

Graph simplify(Graph graph, bool replicated, bool join) {
  const auto pass = [&](std::string_view name, Graph result) {
    graph = std::move(result);
    verify_after(name, graph);
  };
  verify_after("trace", graph);
  if (!replicated) pass("drop_collectives", drop_collectives(graph));
  pass("remove_dead_nodes", remove_dead_nodes(graph));
  pass("fold_constants", fold_constants(graph));
  pass("share_common_subexpressions", share_common_subexpressions(graph));
  pass("remove_dead_nodes", remove_dead_nodes(graph));
  pass("share_histories", share_histories(graph));
  if (join) pass("fuse_epilogues", fuse_epilogues(graph));
  return graph;
}

}  // namespace lockstep::compile
