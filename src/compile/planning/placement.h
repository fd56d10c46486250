// Which nodes run once per device and which once per replica, and in which phase.
//
// A value is replica-invariant where every replica would compute the same one: it comes from variables,
// captured inputs, constants and sums over replicas alone. Replica-invariant nodes run once per device,
// the others once per replica. A sum over replicas ends a phase: all replicas must have its input.
// Replica-invariant nodes that no replica waits for (variable updates above all) run in the last phase,
// when no replica reads the old values any more.
//
// A program that runs as one replica is all replica-invariant and one phase.
#pragma once

#include <algorithm>
#include <vector>

#include "graph/graph.h"

namespace lockstep::compile {

struct NodePlace {
  bool per_replica = false;
  int phase = 0;
  int device = 0;  // of a program that is split over several: which of them
  bool operator==(const NodePlace&) const = default;
};

struct Placement {
  std::vector<NodePlace> nodes;
  int phases = 1;  // 0 .. phases-1
};

// Whether any parameter is sliced over replicas: else the program runs as one.
inline bool is_replicated(const std::vector<bool>& split_parameters) {
  return std::find(split_parameters.begin(), split_parameters.end(), true) != split_parameters.end();
}

// `split_parameters[i]`: parameter i is sliced over the replicas. Not replicated: all false. `devices`: those
// of a program that is split over several.
Placement place_nodes(const Graph& graph, const std::vector<bool>& split_parameters,
                      const std::vector<Device*>& devices = {});

}  // namespace lockstep::compile
