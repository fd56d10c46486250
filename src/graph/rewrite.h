// Rewrites: parts of a graph that may be replaced by others which compute the same results.
//
// A rewrite stands beside the op it belongs to (src/ops/<family>/x_rewrites.cc) and registers for the kinds
// of device that gain by it. Whoever compiles a graph for a kind of device applies all that are registered
// for it; nobody names one.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "lockstep/device/device.h"

namespace lockstep {

// In this order; within a stage by name.
enum class RewriteStage : uint8_t {
  combine,   // several ops become one
  convert,   // conversions to and from 16-bit floats move into kernels that read and write these
  epilogue,  // what is done to the result of an op moves into it
  prologue,  // what is done to an input of an op moves into it
  fused,     // behind the fusion of elementwise ops: what one pass over memory does
};

struct Rewrite {
  std::string_view name;
  RewriteStage stage = RewriteStage::combine;
  // A graph with the same results, or nothing where there is nothing to change. What nobody reads any more
  // may be left in it: dead nodes are removed afterwards.
  std::optional<Graph> (*apply)(const Graph& graph, DeviceKind kind) = nullptr;
};

// At static initialisation.
class RegisterRewrite {
 public:
  RegisterRewrite(DeviceKind kind, const Rewrite& rewrite);
};

// Those of a kind of device, in the order in which they are applied.
std::span<const Rewrite> registered_rewrites(DeviceKind kind);

// --- what rewrites are written with ------------------------------------------------------------------------

// Builds a graph from another one, node by node in order, keeping track of where each value went.
class Rewriter {
 public:
  explicit Rewriter(const Graph& source) : source_(source) {
    for (const Node& node : source.nodes) map_.emplace_back(node.outputs.size());
  }

  // The new value of an old one that was handled already.
  Value mapped(Value old) const {
    return map_[static_cast<size_t>(old.node)][static_cast<size_t>(old.output)];
  }
  // The old node with its inputs as they are in the new graph.
  Node mapped(int old) const {
    Node node = source_.nodes[static_cast<size_t>(old)];
    for (Value& v : node.inputs) v = mapped(v);
    return node;
  }
  void map(Value old, Value to) { map_[static_cast<size_t>(old.node)][static_cast<size_t>(old.output)] = to; }

  // Adds a node and lets it stand for all outputs of the old one; returns its number.
  int replace_with(int old, Node node) {
    const Value added = graph_.add(std::move(node));
    for (size_t k = 0; k < map_[static_cast<size_t>(old)].size(); ++k)
      map_[static_cast<size_t>(old)][k] = {added.node, static_cast<int32_t>(k)};
    return added.node;
  }
  // A node that stands for none of the old ones.
  Value add(Node node) { return graph_.add(std::move(node)); }
  int keep(int old) { return replace_with(old, mapped(old)); }

  const Graph& graph() const { return graph_; }
  Node& mutable_node(int node) { return graph_.nodes[static_cast<size_t>(node)]; }

  Graph finish() {
    for (const Value v : source_.outputs) graph_.outputs.push_back(v.valid() ? mapped(v) : v);
    for (const Value v : source_.roots) graph_.roots.push_back(mapped(v));
    for (const VariableUpdate& update : source_.updates)
      graph_.updates.push_back({update.variable, mapped(update.value)});
    return std::move(graph_);
  }

 private:
  const Graph& source_;
  Graph graph_;
  std::vector<std::vector<Value>> map_;
};

// How often each value is read; results count as reads.
std::vector<std::vector<int>> count_uses(const Graph& graph);

// By node: the nodes that read one of its values.
std::vector<std::vector<int>> readers_of(const Graph& graph);

// What every element of a constant is; nothing of any other value.
std::optional<double> constant_value(const Graph& graph, Value v);

inline bool is_16_bit_float(DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float16; }

// The 16-bit float that a float32 value was converted from. An invalid Value where it was not.
Value converted_from_16_bit(const Graph& graph, Value v);

}  // namespace lockstep
