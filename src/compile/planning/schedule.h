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

// All nodes in an order of execution: by phase, within a phase sums over replicas first, then
// replica-invariant nodes, then those that run once per replica. Among the nodes whose inputs are there, the
// one that leaves the least memory alive runs next: a variable's update runs as soon as its gradient is
// there. `groups`: each lists nodes of one place, none of which waits for another; they run directly one
// after the other.
std::vector<int> schedule(const Graph& graph, const Placement& placement, const std::vector<OrderEdge>& edges,
                          const std::vector<std::vector<int>>& groups = {});

}  // namespace lockstep::compile
