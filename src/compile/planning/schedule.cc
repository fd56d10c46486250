#include "compile/planning/schedule.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "compile/passes/passes.h"

namespace lockstep::compile {
namespace {

// Calls f with every value that the node reads, once, and how often it does.
template <class F>
void each_input(const Node& node, F&& f) {
  for (auto v = node.inputs.begin(); v != node.inputs.end(); ++v)
    if (std::find(node.inputs.begin(), v, *v) == v)
      f(*v, static_cast<int64_t>(std::count(v, node.inputs.end(), *v)));
}

}  // namespace

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
  std::vector<int64_t> updated(count, 0);  // bytes of results that go into the memory of variables
  for (const VariableUpdate& update : graph.updates)
    updated[static_cast<size_t>(update.value.node)] += static_cast<int64_t>(graph.spec(update.value).bytes());
  // Results are never freed.
  const auto growth_of_one = [&](int node) {
    int64_t bytes = 0;
    const Node& n = graph.nodes[static_cast<size_t>(node)];
    if (is_source(*n.op)) return bytes;
    for (const TensorSpec& spec : n.outputs) bytes += static_cast<int64_t>(spec.bytes());
    each_input(n, [&](Value v, int64_t reads) {
      if (!is_source(*graph.node(v).op) &&
          uses[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)] <= reads)
        bytes -= static_cast<int64_t>(graph.spec(v).bytes());
    });
    return bytes - updated[static_cast<size_t>(node)];
  };

  // A phase begins with its sums over replicas. In a section, growing nodes keep the program's order;
  // shrinking ones go first.
  using Rank = std::tuple<int, int, bool, int64_t, int>;
  const auto rank = [&](int first) {
    const NodePlace& place = placement.nodes[static_cast<size_t>(first)];
    const bool is_sum = graph.nodes[static_cast<size_t>(first)].op == &kAllReduceSum;
    int64_t growth = 0;
    for (const int node : members[static_cast<size_t>(first)]) growth += growth_of_one(node);
    return Rank(place.phase,
                is_sum              ? 0
                : place.per_replica ? 2
                                    : 1,
                growth > 0, std::min<int64_t>(growth, 0), first);
  };
  std::set<Rank> ready;
  std::vector<std::set<Rank>::iterator> among_ready(count, ready.end());
  const auto enter = [&](int first) {
    among_ready[static_cast<size_t>(first)] = ready.insert(rank(first)).first;
  };
  const auto leave = [&](int first) {
    ready.erase(std::exchange(among_ready[static_cast<size_t>(first)], ready.end()));
  };
  // The growth of a ready node changes when it becomes the last reader of one of its inputs. Which one that
  // is shows the sum of those that have not run yet.
  struct Readers {
    int count = 0;
    int64_t sum = 0;
  };
  std::vector<std::vector<Readers>> readers(count);
  for (size_t i = 0; i < count; ++i) readers[i].resize(graph.nodes[i].outputs.size());
  const auto readers_of = [&](Value v) -> Readers& {
    return readers[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)];
  };
  for (size_t i = 0; i < count; ++i)
    each_input(graph.nodes[i], [&](Value v, int64_t) {
      ++readers_of(v).count;
      readers_of(v).sum += static_cast<int64_t>(i);
    });
  for (size_t i = 0; i < count; ++i)
    if (waiting[i] == 0 && unit[i] == static_cast<int>(i)) enter(static_cast<int>(i));
  std::vector<int> order;
  while (!ready.empty()) {
    const int first = std::get<4>(*ready.begin());
    leave(first);
    for (const int node : members[static_cast<size_t>(first)]) {
      order.push_back(node);
      each_input(graph.nodes[static_cast<size_t>(node)], [&](Value v, int64_t reads) {
        uses[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)] -= static_cast<int>(reads);
        Readers& left = readers_of(v);
        left.sum -= node;
        if (--left.count != 1) return;
        const int last = unit[static_cast<size_t>(left.sum)];
        if (among_ready[static_cast<size_t>(last)] == ready.end()) return;
        leave(last);
        enter(last);
      });
      for (const int next : followers[static_cast<size_t>(node)])
        if (--waiting[static_cast<size_t>(next)] == 0) enter(next);
    }
  }
  require(order.size() == count, ErrorCode::internal, std::source_location::current(),
          "the graph has a cycle: ", count - order.size(), " nodes cannot be ordered");
  return order;
}

}  // namespace lockstep::compile
