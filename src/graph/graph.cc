#include "graph/graph.h"

#include <ostream>

namespace lockstep {
namespace {

SpecList source_has_no_rule(const InferContext& c) {
  fail(ErrorCode::internal, c.where, c.op.name, ": sources are added by the trace, never emitted");
}

}  // namespace

constinit const OpDef kParameter{
    .name = "parameter", .min_inputs = 0, .max_inputs = 0, .infer = source_has_no_rule};
constinit const OpDef kCapturedInput{
    .name = "captured_input", .min_inputs = 0, .max_inputs = 0, .infer = source_has_no_rule};
constinit const OpDef kConstant{
    .name = "constant", .min_inputs = 0, .max_inputs = 0, .infer = source_has_no_rule};
constinit const OpDef kVariable{
    .name = "variable", .min_inputs = 0, .max_inputs = 0, .infer = source_has_no_rule};
constinit const OpDef kExampleOffset{
    .name = "example_offset", .min_inputs = 0, .max_inputs = 0, .infer = [](const InferContext&) -> SpecList {
      return {{DType::int64, {}}};
    }};

bool is_source(const OpDef& op) {
  return &op == &kParameter || &op == &kCapturedInput || &op == &kConstant || &op == &kVariable ||
         &op == &kExampleOffset;
}

Value Graph::add(Node node) {
  nodes.push_back(std::move(node));
  return {static_cast<int32_t>(nodes.size()) - 1, 0};
}

std::vector<Value> Graph::results() const {
  std::vector<Value> all;
  for (const Value output : outputs)
    if (output.valid()) all.push_back(output);
  for (const VariableUpdate& update : updates) all.push_back(update.value);
  all.insert(all.end(), roots.begin(), roots.end());
  return all;
}

std::ostream& operator<<(std::ostream& out, const Graph& graph) {
  const auto print = [&](Value v) {
    out << '%' << v.node;
    if (graph.node(v).outputs.size() > 1) out << '.' << v.output;
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    out << '%' << i << " = " << node.op->name << '(';
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (k) out << ", ";
      print(node.inputs[k]);
    }
    out << ')';
    for (const TensorSpec& spec : node.outputs) out << ' ' << spec;
    out << "  " << node.attrs << '\n';
  }
  out << "return";
  for (const Value v : graph.outputs) {
    out << ' ';
    if (v.valid()) print(v);
  }
  out << '\n';
  for (const VariableUpdate& update : graph.updates) {
    out << update.variable.name() << " <- ";
    print(update.value);
    out << '\n';
  }
  return out;
}

}  // namespace lockstep
