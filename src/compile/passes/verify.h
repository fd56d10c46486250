// Checks a graph against the rules of its ops, after every pass: a pass that makes a node which its op's own
// shape rule refuses is found where it happens, and not in what a kernel makes of it.
#pragma once

#include <string_view>

#include "graph/graph.h"
#include "graph/kernel.h"

namespace lockstep::compile {

// Whether passes are followed by the check: in builds with assertions, and in test programs, which switch it
// on before anything is compiled. Off, it costs nothing.
bool& verifies_graphs();

// Throws Error(internal) that names the node and the rule unless
//   - every node reads values that exist, of nodes before it,
//   - it has as many inputs as its op takes, and outputs as the op's shape rule makes of them,
//   - results, updates and roots are values that exist, and a variable's new value has its spec.
// Where a kernel for `kind` reads and writes 16-bit floats in place of float32 (KernelDef::narrow_inputs),
// the rule may hold for either.
void verify(const Graph& graph, DeviceKind kind);

// The same, where it is switched on; the error names the pass.
void verify_after(std::string_view pass, const Graph& graph, DeviceKind kind = DeviceKind::cpu);

}  // namespace lockstep::compile
