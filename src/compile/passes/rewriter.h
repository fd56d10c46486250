// Builds a graph from another one, node by node in order, keeping track of where each value went.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace lockstep::compile {

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

}  // namespace lockstep::compile
