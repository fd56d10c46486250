#include "graph/structure.h"

#include <algorithm>
#include <functional>
#include <string_view>

namespace lockstep {
namespace {

bool same_node(const Node& a, const Node& b) {
  return a.op == b.op && a.device == b.device && a.inputs == b.inputs && a.outputs == b.outputs &&
         a.attrs == b.attrs;
}

bool same_update(const VariableUpdate& a, const VariableUpdate& b) {
  return a.variable.id() == b.variable.id() && a.value == b.value;
}

}  // namespace

bool same_structure(const Graph& a, const Graph& b) {
  return a.outputs == b.outputs && a.roots == b.roots &&
         std::ranges::equal(a.updates, b.updates, same_update) &&
         std::ranges::equal(a.nodes, b.nodes, same_node);
}

uint64_t hash_of_structure(const Graph& graph) {
  AttrHasher hasher;
  const auto mix = [&](Value value) {
    hasher.mix(static_cast<uint64_t>(value.node));
    hasher.mix(static_cast<uint64_t>(value.output));
  };
  for (const Node& node : graph.nodes) {
    hasher.mix(std::hash<std::string_view>()(node.op->name));
    hasher.mix(node.attrs.hash());
    for (const Value value : node.inputs) mix(value);
    for (const TensorSpec& spec : node.outputs) {
      hasher.mix(static_cast<uint64_t>(spec.dtype));
      hasher("shape", spec.shape);
    }
  }
  for (const Value value : graph.outputs) mix(value);
  return hasher.value();
}

}  // namespace lockstep
