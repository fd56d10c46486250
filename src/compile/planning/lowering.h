// From a graph whose nodes have their places and their order to a plan: calls with their operands, and the
// memory of these.
#pragma once

#include <vector>

#include "compile/planning/placement.h"
#include "compile/planning/plan.h"
#include "graph/graph.h"

namespace lockstep::compile {

// Each node becomes a call, but for sources, sums over replicas, and views of what others computed. Results
// are written where they belong; all other values get a place in an arena. Kernels are prepared, for they say
// how much workspace they need. `order`: of the nodes; those of a group (launch_groups.h) stand one behind
// the other in it.
Plan lower(const Graph& graph, const Placement& placement, const PlanOptions& options,
           const std::vector<std::vector<int>>& groups, const std::vector<int>& order);

}  // namespace lockstep::compile
