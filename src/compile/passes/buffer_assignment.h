// Prepares a graph's results for being written where they belong.
#pragma once

#include <vector>

#include "compile/planning/schedule.h"
#include "graph/graph.h"

namespace lockstep::compile {

// Gives every sum over replicas inputs in memory of their own: copies are added where one is an
// argument, a view, or a result.
Graph separate_all_reduce_inputs(const Graph& graph);

// Makes every result the value of a launch that can write straight to its destination: an output's
// own memory, or the variable's. Copies are added where a result is an argument, a view, or wanted
// twice, and where a variable's old value is still read after the new one is computed. Appends to
// `edges` what must run before an update overwrites the old value.
Graph assign_result_buffers(const Graph& graph, const std::vector<bool>& split_parameters,
                            std::vector<OrderEdge>& edges);

}  // namespace lockstep::compile
