// Whether two traces are the same program: op by op, whoever recorded them.
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace lockstep {

// The same ops with the same settings on the same values in the same places. Lines of the source do not
// count.
bool same_structure(const Graph& a, const Graph& b);

// Equal where same_structure() holds. Of a graph that reads neither captured inputs nor variables it is the same
// number in every process that runs the same library.
uint64_t hash_of_structure(const Graph& graph);

}  // namespace lockstep
