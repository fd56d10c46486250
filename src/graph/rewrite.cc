#include "graph/rewrite.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lockstep {
namespace {

std::map<DeviceKind, std::vector<Rewrite>>& rewrites() {
  static auto* rewrites = new std::map<DeviceKind, std::vector<Rewrite>>;
  return *rewrites;
}

}  // namespace

RegisterRewrite::RegisterRewrite(DeviceKind kind, const Rewrite& rewrite) {
  std::vector<Rewrite>& all = rewrites()[kind];
  // Initialisers of different files run in no order that anybody promises.
  const auto at = std::lower_bound(all.begin(), all.end(), rewrite, [](const Rewrite& a, const Rewrite& b) {
    return std::tie(a.stage, a.name) < std::tie(b.stage, b.name);
  });
  require(std::none_of(all.begin(), all.end(), [&](const Rewrite& r) { return r.name == rewrite.name; }),
          ErrorCode::internal, std::source_location::current(), "rewrite \"", rewrite.name,
          "\" is registered twice for devices of kind ", name(kind));
  all.insert(at, rewrite);
}

std::span<const Rewrite> registered_rewrites(DeviceKind kind) {
  const auto it = rewrites().find(kind);
  return it == rewrites().end() ? std::span<const Rewrite>() : std::span<const Rewrite>(it->second);
}

std::vector<std::vector<int>> count_uses(const Graph& graph) {
  std::vector<std::vector<int>> uses;
  for (const Node& node : graph.nodes) uses.emplace_back(node.outputs.size(), 0);
  const auto use = [&](Value v) { ++uses[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)]; };
  for (const Node& node : graph.nodes)
    for (const Value v : node.inputs) use(v);
  for (const Value v : graph.results()) use(v);
  return uses;
}

std::vector<std::vector<int>> readers_of(const Graph& graph) {
  std::vector<std::vector<int>> readers(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const Value v : graph.nodes[i].inputs)
      readers[static_cast<size_t>(v.node)].push_back(static_cast<int>(i));
  return readers;
}

std::optional<double> constant_value(const Graph& graph, Value v) {
  const Node& node = graph.node(v);
  if (node.op != &kConstant) return std::nullopt;
  return node.attrs.as<ConstantAttrs>().value;
}

Value converted_from_16_bit(const Graph& graph, Value v) {
  const Node& node = graph.node(v);
  if (!node.op->traits.converts || graph.spec(v).dtype != DType::float32) return {};
  return is_16_bit_float(graph.spec(node.inputs[0]).dtype) ? node.inputs[0] : Value{};
}

}  // namespace lockstep
