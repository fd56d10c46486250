#include "compile/planning/placement.h"

#include <algorithm>

namespace lockstep::compile {

Placement place_nodes(const Graph& graph, const std::vector<bool>& split_parameters,
                      const std::vector<Device*>& devices) {
  const size_t count = graph.nodes.size();
  Placement placement;
  placement.nodes.resize(count);
  int last = 0;
  const bool replicated = is_replicated(split_parameters);
  for (size_t i = 0; i < count; ++i) {
    const Node& node = graph.nodes[i];
    NodePlace& place = placement.nodes[i];
    // A source that lives elsewhere is read on the first unless its reader says otherwise.
    if (const auto it = std::find(devices.begin(), devices.end(), node.device); it != devices.end())
      place.device = static_cast<int>(it - devices.begin());
    if (node.op == &kParameter) {
      const auto index = static_cast<size_t>(node.attrs.as<ParameterAttrs>().index);
      place.per_replica = index < split_parameters.size() && split_parameters[index];
    } else if (node.op == &kExampleOffset) {
      place.per_replica = true;
    } else if (node.op == &kVariable) {
      place.per_replica = replicated && node.attrs.as<VariableAttrs>().variable.per_replica();
    }
    for (const Value v : node.inputs) {
      const NodePlace& input = placement.nodes[static_cast<size_t>(v.node)];
      place.phase = std::max(place.phase, input.phase);
      place.per_replica = place.per_replica || input.per_replica;
    }
    if (node.op == &kAllReduceSum) {
      // The sum belongs to the phase after the one that computes its input.
      place.per_replica = false;
      ++place.phase;
    }
    last = std::max(last, place.phase);
  }

  // Replica-invariant nodes that nothing per replica, and no sum, depends on move to the last phase.
  std::vector<bool> awaited(count, false);
  for (size_t i = count; i-- > 0;) {
    const Node& node = graph.nodes[i];
    const bool waits = placement.nodes[i].per_replica || node.op == &kAllReduceSum || awaited[i];
    if (waits)
      for (const Value v : node.inputs) awaited[static_cast<size_t>(v.node)] = true;
  }
  const bool has_replica_nodes = std::any_of(placement.nodes.begin(), placement.nodes.end(),
                                             [](const NodePlace& p) { return p.per_replica; });
  if (has_replica_nodes) {
    ++last;
    for (size_t i = 0; i < count; ++i)
      if (!placement.nodes[i].per_replica && !awaited[i] && graph.nodes[i].op != &kAllReduceSum)
        placement.nodes[i].phase = last;
  }
  placement.phases = last + 1;
  return placement;
}

}  // namespace lockstep::compile
