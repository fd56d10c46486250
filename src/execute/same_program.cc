#include "execute/same_program.h"

#include <algorithm>
#include <functional>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::execute {
namespace {

// Attributes that name something in this process' memory.
bool names_memory(const OpDef& op) { return &op == &kCapturedInput || &op == &kVariable; }

uint64_t structure_of(const Graph& graph) {
  AttrHasher hasher;
  const auto text = [&](std::string_view words) {
    for (const char c : words) hasher.mix(static_cast<uint64_t>(c));
  };
  for (const Node& node : graph.nodes) {
    text(node.op->name);
    if (!names_memory(*node.op)) hasher.mix(node.attrs.hash());
    for (const Value& input : node.inputs) {
      hasher.mix(static_cast<uint64_t>(input.node));
      hasher.mix(static_cast<uint64_t>(input.output));
    }
    for (const TensorSpec& spec : node.outputs) {
      hasher.mix(static_cast<uint64_t>(spec.dtype));
      hasher("shape", spec.shape);
    }
  }
  return hasher.value();
}

// A line for each.
std::string text_of(const std::vector<Variable>& variables) {
  std::string text;
  for (const Variable& variable : variables)
    text += detail::concat(variable.name(), " ", TensorSpec{variable.dtype(), variable.shape()},
                           variable.trainable() ? "" : ", not trainable", "\n");
  return text;
}

std::vector<Variable> variables_of(const Graph& graph) {
  std::vector<Variable> variables;
  for (const Node& node : graph.nodes)
    if (node.op == &kVariable) variables.push_back(node.attrs.as<VariableAttrs>().variable);
  return variables;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// In what another worker's description differs from the chief's; the first line is the trace's.
std::string difference(const std::vector<std::string>& chief, const std::vector<std::string>& other) {
  for (size_t i = 1; i < std::max(chief.size(), other.size()); ++i) {
    const std::string a = i < chief.size() ? chief[i] : "none", b = i < other.size() ? other[i] : "none";
    if (a != b) return detail::concat("variable ", i, " is ", a, " at the chief, and ", b);
  }
  return detail::concat("the variables are the same, the traces are not: ", chief[0], " at the chief, and ",
                        other[0]);
}

std::string differences(const std::vector<std::string>& all) {
  std::string different;
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      different += detail::concat(different.empty() ? "" : "; ",
                                  difference(lines_of(all[0]), lines_of(all[r])), " at worker ", r);
  return different;
}

}  // namespace

void require_same_variables(comm::Workers& workers, const std::vector<Variable>& variables,
                            std::source_location where) {
  const std::string own = "\n" + text_of(variables);
  const std::vector<std::string> hashes =
      workers.gather("the variables", std::to_string(std::hash<std::string>()(own)), where);
  // The list of a model is long, and is sent where it is needed alone.
  if (std::all_of(hashes.begin(), hashes.end(), [&](const std::string& h) { return h == hashes[0]; })) return;
  fail(ErrorCode::failed_precondition, where, "the workers differ in the variables: ",
       differences(workers.gather_large("the list of variables", own, where)));
}

void require_same_program(comm::Workers& workers, const std::string& name, const Graph& graph,
                          std::source_location where) {
  const std::string own = detail::concat(graph.nodes.size(), " operations, hash ", std::hex,
                                         structure_of(graph), "\n", text_of(variables_of(graph)));
  const std::string different = differences(workers.gather_large("the program of " + name, own, where));
  require(different.empty(), ErrorCode::failed_precondition, where,
          "the workers do not run the same program: of ", name, ", ", different);
}

namespace {

// Names the sums that an update comes from and that no other has named. A gradient has its variable's shape;
// what stands behind a sum belongs to something else.
void name_sums_of(const Graph& graph, const VariableUpdate& update, std::map<int64_t, NamedSum>& names) {
  std::vector<bool> seen(graph.nodes.size());
  std::vector<int32_t> open{update.value.node};
  while (!open.empty()) {
    const int32_t n = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(n)]) continue;
    seen[static_cast<size_t>(n)] = true;
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    if (node.op == &kAllReduceSum) {
      if (node.outputs[0].shape == update.variable.shape())
        names.emplace(node.attrs.as<CollectiveAttrs>().sequence,
                      NamedSum{update.variable.name(), update.variable.trainable()});
      continue;
    }
    for (const Value& input : node.inputs)
      if (input.valid()) open.push_back(input.node);
  }
}

}  // namespace

std::map<int64_t, NamedSum> names_of_sums(const Graph& graph) {
  std::map<int64_t, NamedSum> names;
  for (const bool trainable : {true, false})
    for (const VariableUpdate& update : graph.updates)
      if (update.variable.trainable() == trainable) name_sums_of(graph, update, names);
  for (const Node& node : graph.nodes)
    if (node.op == &kAllReduceSum) {
      const std::string_view file = node.where.file_name();
      names.emplace(node.attrs.as<CollectiveAttrs>().sequence,
                    NamedSum{detail::concat(file.substr(file.rfind('/') + 1), ":", node.where.line())});
    }
  return names;
}

}  // namespace lockstep::execute
