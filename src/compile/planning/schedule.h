// The order of execution.
#pragma once

#include <utility>
#include <vector>

#include "compile/planning/placement.h"
#include "graph/graph.h"

namespace lockstep::compile {

// `before` runs before `after`, although no value connects them.
struct OrderEdge {
  int before;
  int after;
};

// All nodes, by phase, within a phase sums over replicas first, then replica-invariant nodes, then those that
// run once per replica; otherwise by dependence. Among the nodes
// that could run next, the one that leaves the least memory alive is taken: variable updates run as
// soon as their gradient is there. `groups`: nodes of one place each, none of which waits for another, that
// come one directly behind the other.
std::vector<int> schedule(const Graph& graph, const Placement& placement, const std::vector<OrderEdge>& edges,
                          const std::vector<std::vector<int>>& groups = {});

}  // namespace lockstep::compile
