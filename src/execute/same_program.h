// Whether the workers of a run have the same variables, and have traced the same step.
#pragma once

#include <map>
#include <source_location>
#include <string>
#include <vector>

#include "comm/workers.h"
#include "graph/graph.h"
#include "lockstep/graph/variable.h"

namespace lockstep::execute {

// Throws Error(failed_precondition) at all workers where they have not: the message names the first variable
// whose name, shape or dtype differs, or says how the traces do. `name` is the function's. Called by all
// workers.
void require_same_program(comm::Workers& workers, const std::string& name, const Graph& graph,
                          std::source_location where);
// The same for variables that are not part of a step yet.
void require_same_variables(comm::Workers& workers, const std::vector<Variable>& variables,
                            std::source_location where);

// A sum over replicas as people know it.
struct NamedSum {
  // The variable that it updates, where it is a gradient; else the place that asked for it.
  std::string name = {};
  bool is_gradient = false;  // of a trainable variable
};
// By their sequence.
std::map<int64_t, NamedSum> names_of_sums(const Graph& graph);

}  // namespace lockstep::execute
