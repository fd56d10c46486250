// What differs between the replicas of a program: its results, and what it assigns to variables.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/planning/placement.h"
#include "graph/graph.h"

namespace lockstep::compile {

enum class Spread : uint8_t {
  same,    // on all replicas
  rows,    // a replica has the rows of its examples
  blocks,  // a replica has a value of its own
};

// The spread of each of the graph's outputs, where a replica has `local_batch` examples; `same` for those
// that are not there. Throws Error(failed_precondition) for blocks, unless they are allowed.
std::vector<Spread> spreads_of_outputs(const Graph& graph, const Placement& placement, int64_t local_batch,
                                       bool allows_blocks);

// Throws Error(failed_precondition) that names the variable where one that all replicas share is assigned a
// value that differs between them, or one that keeps a part in each of them a value that does not.
void check_updates(const Graph& graph, const Placement& placement, bool replicated);

}  // namespace lockstep::compile
