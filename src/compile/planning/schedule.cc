#include "compile/planning/schedule.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "compile/passes/passes.h"

namespace lockstep::compile {

std::vector<int> schedule(const Graph& graph, const Placement& placement, const std::vector<OrderEdge>& edges,
                          const std::vector<std::vector<int>>& groups) {
  const size_t count = graph.nodes.size();
  // The first of a group stands for all of it.
  std::vector<int> stands_for(count);
  std::iota(stands_for.begin(), stands_for.end(), 0);
  std::vector<std::span<const int>> members(count);
  for (size_t i = 0; i < count; ++i) members[i] = {&stands_for[i], 1};
  std::vector<int> unit = stands_for;
  for (const std::vector<int>& group : groups) {
    for (const int node : group) unit[static_cast<size_t>(node)] = group.front();
    members[static_cast<size_t>(group.front())] = group;
  }
  std::vector<std::vector<int>> followers(count);
  std::vector<int> waiting(count, 0);
  const auto depends = [&](int after, int before) {
    followers[static_cast<size_t>(before)].push_back(unit[static_cast<size_t>(after)]);
    ++waiting[static_cast<size_t>(unit[static_cast<size_t>(after)])];
  };
  for (size_t i = 0; i < count; ++i)
    for (const Value v : graph.nodes[i].inputs) depends(static_cast<int>(i), v.node);
  for (const OrderEdge& edge : edges) depends(edge.after, edge.before);

  std::vector<std::vector<int>> uses = count_uses(graph);
  // Results are never freed.
  const auto growth_of_one = [&](int node) {
    int64_t bytes = 0;
    const Node& n = graph.nodes[static_cast<size_t>(node)];
    if (is_source(*n.op)) return bytes;
    for (const TensorSpec& spec : n.outputs) bytes += static_cast<int64_t>(spec.bytes());
    std::vector<Value> seen;
    for (const Value v : n.inputs) {
      if (std::find(seen.begin(), seen.end(), v) != seen.end() || is_source(*graph.node(v).op)) continue;
      seen.push_back(v);
      const auto reads = std::count(n.inputs.begin(), n.inputs.end(), v);
      if (uses[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)] <= reads)
        bytes -= static_cast<int64_t>(graph.spec(v).bytes());
    }
    for (const VariableUpdate& update : graph.updates)
      if (update.value.node == node) bytes -= static_cast<int64_t>(graph.spec(update.value).bytes());
    return bytes;
  };
  const auto growth = [&](int first) {
    int64_t bytes = 0;
    for (const int node : members[static_cast<size_t>(first)]) bytes += growth_of_one(node);
    return bytes;
  };

  // Growth of a ready node changes only when another reader of its input runs, which can only make
  // it smaller: it is computed when a node is chosen.
  // A phase begins with its sums over replicas.
  const auto section = [&](int node) {
    const NodePlace& place = placement.nodes[static_cast<size_t>(node)];
    const bool is_sum = graph.nodes[static_cast<size_t>(node)].op == &kAllReduceSum;
    return std::pair(place.phase, is_sum ? 0 : place.per_replica ? 2 : 1);
  };
  std::vector<int> ready;
  for (size_t i = 0; i < count; ++i)
    if (waiting[i] == 0 && unit[i] == static_cast<int>(i)) ready.push_back(static_cast<int>(i));
  std::vector<int> order;
  while (!ready.empty()) {
    const auto best = std::min_element(ready.begin(), ready.end(), [&](int a, int b) {
      if (section(a) != section(b)) return section(a) < section(b);
      const int64_t ga = growth(a);
      const int64_t gb = growth(b);
      // Growing nodes keep the program's order; shrinking ones go first.
      const bool shrinks_a = ga <= 0;
      const bool shrinks_b = gb <= 0;
      return std::tuple(!shrinks_a, shrinks_a ? ga : 0, a) < std::tuple(!shrinks_b, shrinks_b ? gb : 0, b);
    });
    const int first = *best;
    ready.erase(best);
    for (const int node : members[static_cast<size_t>(first)]) {
      order.push_back(node);
      for (const Value v : graph.nodes[static_cast<size_t>(node)].inputs)
        --uses[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)];
      for (const int next : followers[static_cast<size_t>(node)])
        if (--waiting[static_cast<size_t>(next)] == 0) ready.push_back(next);
    }
  }
  require(order.size() == count, ErrorCode::internal, std::source_location::current(),
          "the graph has a cycle: ", count - order.size(), " nodes cannot be ordered");
  return order;
}

}  // namespace lockstep::compile
