#include "compile/passes/verify.h"

#include "graph/rewrite.h"
#include "lockstep/base/error.h"

namespace lockstep::compile {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, DeviceKind kind) : graph_(graph), kind_(kind) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) check_node(i);
    for (const Value v : graph_.outputs)
      if (v.valid()) check_result(v, "an output");
    for (const Value v : graph_.roots) check_result(v, "a root");
    for (const VariableUpdate& update : graph_.updates) {
      check_result(update.value, "a variable's new value");
      const TensorSpec variable{update.variable.dtype(), update.variable.shape()};
      check(graph_.spec(update.value) == variable, graph_.node(update.value).where, "variable \"",
            update.variable.name(), "\" is ", variable, ", its new value ", graph_.spec(update.value));
    }
  }

 private:
  template <class... Parts>
  static void check(bool condition, std::source_location where, const Parts&... parts) {
    require(condition, ErrorCode::internal, where, parts...);
  }

  bool exists(Value v, size_t before) const {
    return v.node >= 0 && static_cast<size_t>(v.node) < before && v.output >= 0 &&
           static_cast<size_t>(v.output) < graph_.nodes[static_cast<size_t>(v.node)].outputs.size();
  }

  void check_result(Value v, const char* what) const {
    check(exists(v, graph_.nodes.size()), std::source_location::current(), what, " is output ", v.output,
          " of node ", v.node, ", which does not exist");
  }

  void check_node(size_t i) const {
    const Node& node = graph_.nodes[i];
    check(node.op != nullptr, node.where, "node ", i, " has no op");
    SpecList inputs;
    for (const Value v : node.inputs) {
      check(exists(v, i), node.where, "node ", i, " (", node.op->name, ") reads output ", v.output,
            " of node ", v.node, ", which is not before it");
      inputs.push_back(graph_.spec(v));
    }
    const auto count = static_cast<int>(inputs.size());
    check(count >= node.op->min_inputs && (node.op->max_inputs < 0 || count <= node.op->max_inputs),
          node.where, "node ", i, " (", node.op->name, ") has ", count, " inputs");
    if (is_source(*node.op)) {
      check(node.outputs.size() == 1, node.where, "node ", i, " (", node.op->name, ") has ",
            node.outputs.size(), " outputs");
      return;
    }
    const KernelDef* kernel = registered_kernel(kind_, *node.op);
    if (kernel && kernel->narrow_inputs != 0 && holds_widened(node, inputs, *kernel)) return;
    const SpecList expected = infer(i, node, inputs);
    check(node.outputs.size() == expected.size(), node.where, "node ", i, " (", node.op->name, ") has ",
          node.outputs.size(), " outputs, its rule makes ", expected.size());
    for (size_t k = 0; k < expected.size(); ++k)
      check(node.outputs[k] == expected[k], node.where, "output ", k, " of node ", i, " (", node.op->name,
            ") is ", node.outputs[k], ", its rule makes ", expected[k]);
  }

  static SpecList infer(size_t i, const Node& node, const SpecList& inputs) {
    try {
      return node.op->infer({*node.op, inputs, node.attrs, node.where});
    } catch (const Error& error) {
      fail(ErrorCode::internal, node.where, "node ", i, " breaks its op's rule: ", error.message());
    }
  }

  // Whether the rule holds with float32 in place of the 16-bit floats that the kernel reads and writes.
  static bool holds_widened(const Node& node, SpecList inputs, const KernelDef& kernel) {
    bool narrow = false;
    for (size_t k = 0; k < inputs.size(); ++k)
      if ((kernel.narrow_inputs >> k & 1) != 0 && is_16_bit_float(inputs[k].dtype)) {
        inputs[k].dtype = DType::float32;
        narrow = true;
      }
    if (!narrow) return false;
    try {
      SpecList expected = node.op->infer({*node.op, inputs, node.attrs, node.where});
      if (expected.size() != node.outputs.size()) return false;
      for (size_t k = 0; k < expected.size(); ++k)
        if ((kernel.narrow_outputs >> k & 1) != 0 && is_16_bit_float(node.outputs[k].dtype) &&
            expected[k].dtype == DType::float32)
          expected[k].dtype = node.outputs[k].dtype;
      return expected == node.outputs;
    } catch (const Error&) {
      return false;  // the error that counts is that of the node as it is
    }
  }

  const Graph& graph_;
  DeviceKind kind_;
};

}  // namespace

bool& verifies_graphs() {
#ifdef NDEBUG
  static bool on = false;
#else
  static bool on = true;
#endif
  return on;
}

void verify(const Graph& graph, DeviceKind kind) { Verifier(graph, kind).run(); }

void verify_after(std::string_view pass, const Graph& graph, DeviceKind kind) {
  if (!verifies_graphs()) return;
  try {
    verify(graph, kind);
  } catch (Error& error) {
    error.note(detail::concat("in the graph that the pass ", pass, " made"));
    throw;
  }
}

}  // namespace lockstep::compile
