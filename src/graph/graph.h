// A traced program: nodes in the order in which they were emitted, every value defined once.
//
// Sources are ops without kernels: `parameter` (an argument of the function), `captured_input` (a tensor
// from outside), `constant`, `variable` (a variable's value when the program starts) and
// `example_offset` (the position of this replica's first example in the global batch). A variable's
// updates are ordinary values; the last one becomes the variable's value when the program ends.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <vector>

#include "graph/op.h"
#include "lockstep/graph/variable.h"

namespace lockstep {

struct Value {
  int32_t node = -1;
  int32_t output = 0;
  bool operator==(const Value&) const = default;
  bool valid() const { return node >= 0; }
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Value> inputs;
  SpecList outputs;
  std::source_location where;
  // Where it runs; of a source: where it lives. Null: the trace does not place its nodes.
  Device* device = nullptr;
};

extern const OpDef kParameter;      // ParameterAttrs
extern const OpDef kCapturedInput;  // CapturedInputAttrs
extern const OpDef kConstant;       // ConstantAttrs
extern const OpDef kVariable;       // VariableAttrs
extern const OpDef kExampleOffset;  // no attributes
extern const OpDef kAllReduceSum;   // CollectiveAttrs; a second input says whether to sum at all
extern const OpDef kIdentity;       // a copy: where a value must lie in memory of its own

bool is_source(const OpDef& op);

struct ParameterAttrs {
  int64_t index = 0;
  bool operator==(const ParameterAttrs&) const = default;
  void visit(auto&& v) const { v("index", index); }
};
struct CapturedInputAttrs {
  Tensor tensor;
  bool operator==(const CapturedInputAttrs& other) const { return tensor.impl() == other.tensor.impl(); }
  void visit(auto&& v) const { v("id", reinterpret_cast<uintptr_t>(tensor.impl().get())); }
};
struct ConstantAttrs {  // every element is `value`
  double value = 0;
  bool operator==(const ConstantAttrs&) const = default;
  void visit(auto&& v) const { v("value", value); }
};
struct VariableAttrs {
  Variable variable;
  bool operator==(const VariableAttrs& other) const { return variable.id() == other.variable.id(); }
  void visit(auto&& v) const { v("id", variable.id()); }
};
struct CollectiveAttrs {
  int64_t sequence = 0;  // the same in the trace of every replica: what pairs them up
  bool operator==(const CollectiveAttrs&) const = default;
  void visit(auto&& v) const { v("sequence", sequence); }
};

struct VariableUpdate {
  Variable variable;
  Value value;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<Value> outputs;  // an invalid Value: computed elsewhere
  std::vector<VariableUpdate> updates;
  std::vector<Value> roots;  // kept although no result depends on them

  Value add(Node node);
  const TensorSpec& spec(Value value) const {
    return nodes[static_cast<size_t>(value.node)].outputs[static_cast<size_t>(value.output)];
  }
  const Node& node(Value value) const { return nodes[static_cast<size_t>(value.node)]; }

  // Every value the program is run for: its outputs, the variables' new values, the roots.
  std::vector<Value> results() const;
};

// "%3 = matmul(%1, %2) float32(32, 128)  transpose_a=false, ..."
std::ostream& operator<<(std::ostream& out, const Graph& graph);

}  // namespace lockstep
