// Whether the workers of a run have traced the same step.
#pragma once

#include <map>
#include <source_location>
#include <string>

#include "comm/workers.h"
#include "graph/graph.h"

namespace lockstep::execute {

// Throws Error(failed_precondition) at all workers where they have not: the message names the first variable whose name,
// shape or dtype differs, or says how the traces do. `name` is the function's. Called by all workers.
void require_same_program(comm::Workers& workers, const std::string& name, const Graph& graph,
                          std::source_location where);

// What people know the sums over replicas by, by their sequence: the variable that a sum updates, a gradient's; else the place
// in the program that asked for it.
std::map<int64_t, std::string> names_of_sums(const Graph& graph);

}  // namespace lockstep::execute
