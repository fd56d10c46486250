#include "compile/passes/transfers.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/rewrite.h"
#include "graph/variable_impl.h"

namespace lockstep::compile {

constinit const OpDef kTransfer{.name = "copy_to_device",
                                .infer = [](const InferContext& c) -> SpecList { return {c.inputs[0]}; }};

namespace {

Device* home_of(const VariableUpdate& update) { return &update.variable.impl()->value.device(); }

class Crossings {
 public:
  explicit Crossings(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node node = rewriter_.mapped(static_cast<int>(i));
      if (!is_source(*node.op))
        for (size_t k = 0; k < node.inputs.size(); ++k)
          node.inputs[k] = on(node.device, graph_.nodes[i].inputs[k]);
      rewriter_.replace_with(static_cast<int>(i), std::move(node));
    }
    std::vector<Value> updates;
    for (const VariableUpdate& update : graph_.updates) updates.push_back(new_value(update));
    Graph result = rewriter_.finish();
    for (size_t k = 0; k < updates.size(); ++k) result.updates[k].value = updates[k];
    return result;
  }

 private:
  // The old value `v` as `device` reads it.
  Value on(Device* device, Value v) {
    const Node& producer = graph_.node(v);
    if (is_source(*producer.op) || producer.device == device) return rewriter_.mapped(v);
    Value& copy = copies_[{v.node, v.output, device}];
    if (!copy.valid()) copy = add(kTransfer, v, device);
    return copy;
  }

  Value new_value(const VariableUpdate& update) {
    const Node& producer = graph_.node(update.value);
    Device* const home = home_of(update);
    const bool unchanged =
        producer.op == &kVariable && producer.attrs.as<VariableAttrs>().variable.id() == update.variable.id();
    // A source has no device of its own: the variable's reads it.
    if (is_source(*producer.op) && !unchanged) return add(kIdentity, update.value, home);
    return on(home, update.value);
  }

  Value add(const OpDef& op, Value v, Device* device) {
    return rewriter_.add({.op = &op,
                          .attrs = {},
                          .inputs = {rewriter_.mapped(v)},
                          .outputs = {graph_.spec(v)},
                          .where = graph_.node(v).where,
                          .device = device});
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::map<std::tuple<int, int, Device*>, Value> copies_;
};

}  // namespace

std::vector<Device*> devices_of(const Graph& graph) {
  std::vector<Device*> devices;
  const auto add = [&](Device* device) {
    if (device && std::find(devices.begin(), devices.end(), device) == devices.end())
      devices.push_back(device);
  };
  for (const Node& node : graph.nodes)
    if (!is_source(*node.op)) add(node.device);
  if (devices.size() > 1)
    for (const VariableUpdate& update : graph.updates) add(home_of(update));
  return devices;
}

Graph insert_transfers(const Graph& graph) { return Crossings(graph).run(); }

}  // namespace lockstep::compile
