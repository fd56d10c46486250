// Programs that run on several devices: which, and what crosses between them.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace lockstep::compile {

// A copy of its input on another device: the node's, while the input's node is the input's device.
extern const OpDef kTransfer;

// The devices that the nodes of a graph name, in order. More than one: those of the variables that it
// updates as well, since an update is written where its variable lives.
std::vector<Device*> devices_of(const Graph& graph);

// Lets every node read values of its own device alone: a value that crosses is copied once for each device
// that reads it. Sources are left alone, they are bound on every device that reads them. New values of
// variables end on the variable's device.
Graph insert_transfers(const Graph& graph);

}  // namespace lockstep::compile
