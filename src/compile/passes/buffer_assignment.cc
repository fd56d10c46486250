#include "compile/passes/buffer_assignment.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compile/planning/placement.h"
#include "compile/planning/spread.h"
#include "graph/rewrite.h"

namespace lockstep::compile {
namespace {

class ResultBuffers {
 public:
  ResultBuffers(Graph graph, Placement placement, std::vector<OrderEdge>& edges)
      : graph_(std::move(graph)),
        placement_(std::move(placement)),
        edges_(edges),
        followers_(graph_.nodes.size()) {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      for (const Value v : node.inputs)
        followers_[static_cast<size_t>(v.node)].push_back(static_cast<int>(i));
      if (node.op == &kVariable)
        reads_.emplace(node.attrs.as<VariableAttrs>().variable.id(), static_cast<int32_t>(i));
    }
    consumers_ = followers_;
  }

  Graph run() {
    // First every copy that reads a variable, so that all readers are known when writers are ordered.
    for (Value& output : graph_.outputs)
      if (output.valid()) output = own_value(output);
    for (VariableUpdate& update : graph_.updates)
      if (update.value != old_value(update.variable)) update.value = own_value(update.value);
    for (VariableUpdate& update : graph_.updates) order_behind_readers(update);
    return std::move(graph_);
  }

 private:
  static std::pair<int, int> key(Value v) { return {v.node, v.output}; }

  bool writable(Value v) const {
    const OpDef& op = *graph_.node(v).op;
    return !is_source(op) && !op.view && &op != &kAllReduceSum;
  }

  Value copy_of(Value v) {
    const auto copy = static_cast<int>(graph_.nodes.size());
    followers_[static_cast<size_t>(v.node)].push_back(copy);
    consumers_[static_cast<size_t>(v.node)].push_back(copy);
    followers_.emplace_back();
    consumers_.emplace_back();
    // Nothing waits for a copy: where all replicas have the same value it runs in the last phase.
    const NodePlace source = placement_.nodes[static_cast<size_t>(v.node)];
    placement_.nodes.push_back(source.per_replica ? source
                                                  : NodePlace{false, placement_.phases - 1, source.device});
    return graph_.add({.op = &kIdentity,
                       .attrs = {},
                       .inputs = {v},
                       .outputs = {graph_.spec(v)},
                       .where = graph_.node(v).where,
                       .device = graph_.node(v).device});
  }

  // The value whose memory a view reads.
  Value storage_of(Value v) const {
    while (graph_.node(v).op->view) v = graph_.node(v).inputs[0];
    return v;
  }

  // Everything that reads the memory of `v`, also through views.
  std::vector<int> readers_of(Value v) const {
    std::vector<int> readers;
    std::vector<Value> aliases = {v};
    for (size_t a = 0; a < aliases.size(); ++a)
      for (const int i : consumers_[static_cast<size_t>(aliases[a].node)]) {
        const Node& node = graph_.nodes[static_cast<size_t>(i)];
        if (std::find(node.inputs.begin(), node.inputs.end(), aliases[a]) == node.inputs.end()) continue;
        readers.push_back(i);
        if (node.op->view) aliases.push_back({i, 0});
      }
    return readers;
  }

  bool reaches(int from, int to) const {
    std::vector<bool> visited(graph_.nodes.size(), false);
    std::vector<int> stack = {from};
    while (!stack.empty()) {
      const int current = stack.back();
      stack.pop_back();
      if (current == to) return true;
      if (visited[static_cast<size_t>(current)]) continue;
      visited[static_cast<size_t>(current)] = true;
      for (const int next : followers_[static_cast<size_t>(current)]) stack.push_back(next);
    }
    return false;
  }

  // Whether `writer` may overwrite the memory it reads `old` from: elementwise launches that read
  // and write an element at the same place (and ops that say the same of themselves), and read it nowhere
  // else through a view.
  bool overwrites_safely(int writer, Value old) const {
    const Node& node = graph_.nodes[static_cast<size_t>(writer)];
    const bool through_view = std::any_of(node.inputs.begin(), node.inputs.end(),
                                          [&](Value v) { return v != old && storage_of(v) == old; });
    return (node.op->expand || node.op->traits.updates_in_place) && graph_.spec(old) == node.outputs[0] &&
           !through_view;
  }

  // Whether `reader` runs in a phase in which it can come before `writer`: within a phase what runs
  // once on a device comes before what runs once for each replica.
  bool can_come_before(int reader, int writer) const {
    const NodePlace& first = placement_.nodes[static_cast<size_t>(reader)];
    const NodePlace& second = placement_.nodes[static_cast<size_t>(writer)];
    return first.per_replica && !second.per_replica ? first.phase < second.phase
                                                    : first.phase <= second.phase;
  }

  // `v`, or a copy where it cannot be written straight to where it belongs.
  Value own_value(Value v) {
    if (!writable(v) || taken_.contains(key(v))) v = copy_of(v);
    taken_.insert(key(v));
    return v;
  }

  // The variable's value when the program starts; invalid where nobody reads it.
  Value old_value(const Variable& variable) const {
    const auto found = reads_.find(variable.id());
    return found == reads_.end() ? Value{} : Value{found->second, 0};
  }

  void order_behind_readers(VariableUpdate& update) {
    const Value old = old_value(update.variable);
    if (update.value == old || order(update.value.node, old)) return;
    // The new value is needed before the last reader of the old one: it waits in memory of its own.
    update.value = copy_of(update.value);
    require(order(update.value.node, old), ErrorCode::internal, graph_.node(update.value).where,
            "variable \"", update.variable.name(), "\" cannot be written after its last reader");
  }

  void add_edge(int before, int after) {
    edges_.push_back({before, after});
    followers_[static_cast<size_t>(before)].push_back(after);
  }

  // Lets all readers of `old` run before `writer`; false where one of them needs its result.
  bool order(int writer, Value old) {
    if (!old.valid()) return true;
    const std::vector<int> readers = readers_of(old);
    for (const int reader : readers) {
      if (reader == writer ? !overwrites_safely(writer, old)
                           : !can_come_before(reader, writer) || reaches(writer, reader))
        return false;
    }
    for (const int reader : readers)
      if (reader != writer) add_edge(reader, writer);
    return true;
  }

  Graph graph_;
  Placement placement_;
  std::vector<OrderEdge>& edges_;
  std::vector<std::vector<int>> consumers_;      // of each node's values
  std::vector<std::vector<int>> followers_;      // these, and what was ordered behind it
  std::unordered_map<uint64_t, int32_t> reads_;  // by a variable's id the node that reads it
  std::set<std::pair<int, int>> taken_;
};

}  // namespace

Graph separate_all_reduce_inputs(const Graph& graph) {
  const std::vector<Value> results = graph.results();
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node node = rewriter.mapped(static_cast<int>(i));
    if (node.op == &kAllReduceSum) {
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const Value input = graph.nodes[i].inputs[k];
        const OpDef& source = *graph.node(input).op;
        if (is_source(source) || source.view ||
            std::find(results.begin(), results.end(), input) != results.end())
          node.inputs[k] = rewriter.add({.op = &kIdentity,
                                         .attrs = {},
                                         .inputs = {node.inputs[k]},
                                         .outputs = {graph.spec(input)},
                                         .where = node.where,
                                         .device = node.device});
      }
    }
    rewriter.replace_with(static_cast<int>(i), std::move(node));
  }
  return rewriter.finish();
}

Graph assign_result_buffers(const Graph& graph, const std::vector<bool>& split_parameters,
                            std::vector<OrderEdge>& edges) {
  const Placement placement = place_nodes(graph, split_parameters);
  check_updates(graph, placement, is_replicated(split_parameters));
  return ResultBuffers(graph, placement, edges).run();
}

}  // namespace lockstep::compile
