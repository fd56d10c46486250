// Fuses elementwise ops into one pass over memory.
#pragma once

#include <string>
#include <vector>

#include "compile/planning/placement.h"
#include "graph/graph.h"
#include "ops/elementwise/program.h"

namespace lockstep::compile {

extern const OpDef kFused;  // FusedAttrs

struct FusedAttrs {
  elementwise::ScalarProgram program;
  Shape shape;                        // of all results
  std::vector<std::string_view> ops;  // the names of what was fused, for people
  // One program serves every shape.
  bool operator==(const FusedAttrs& other) const { return program == other.program; }
  void visit(auto&& v) const { v("program", program); }
};

// The op's name, for people; of a fused one with those of its parts: "fused(mul,add,relu)".
std::string name_with_parts(const OpDef& op, const Attrs& attrs);

// Chains and trees of elementwise ops over one shape, in one place and phase, become one node that
// reads each input once and writes each value that is needed outside once. Constants become
// immediates. The result is sorted topologically.
Graph fuse_elementwise(const Graph& graph, const Placement& placement);

}  // namespace lockstep::compile
