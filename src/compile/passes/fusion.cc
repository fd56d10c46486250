#include "compile/passes/fusion.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "compile/passes/passes.h"
#include "ops/elementwise/expander.h"
#include "ops/elementwise/ops.h"

namespace lockstep::compile {

// The fused program stands in for the ops' own expansions, so every backend's elementwise kernel
// serves fused nodes as well.
constinit const OpDef kFused{
    .name = "fused",
    .min_inputs = 0,
    .max_inputs = -1,
    .infer = [](const InferContext& c) -> SpecList {
      const auto& attrs = c.attrs<FusedAttrs>();
      c.check(c.inputs.size() == attrs.program.inputs.size(), ErrorCode::invalid_argument, "takes ",
              attrs.program.inputs.size(), " inputs, received ", c.inputs.size());
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        c.check(c.inputs[i].dtype == attrs.program.inputs[i], ErrorCode::dtype_mismatch, "input ", i,
                " must be of dtype ", attrs.program.inputs[i], ", received ", c.inputs[i]);
        c.check(broadcast(c.inputs[i].shape, attrs.shape, "fused", c.where) == attrs.shape,
                ErrorCode::shape_mismatch, "input ", i, " does not broadcast to ", attrs.shape, ", received ",
                c.inputs[i]);
      }
      SpecList specs;
      for (const int16_t value : attrs.program.outputs)
        specs.push_back({attrs.program.instructions[static_cast<size_t>(value)].dtype, attrs.shape});
      return specs;
    },
    .cost = [](const InferContext& c, std::span<const TensorSpec> outputs) -> Cost {
      Cost cost = cost_elementwise(c, outputs);
      const int64_t elements = outputs.empty() ? 0 : outputs[0].shape.size();
      cost.flops = elements * elementwise::arithmetic(c.attrs<FusedAttrs>().program);
      return cost;
    },
    .expand = [](elementwise::Expander& e) { e.inline_program(e.attrs<FusedAttrs>().program); }};

std::string name_with_parts(const OpDef& op, const Attrs& attrs) {
  constexpr size_t kMost = 6;
  std::string text(op.name);
  if (&op != &kFused) return text;
  const auto& parts = attrs.as<FusedAttrs>().ops;
  text += '(';
  for (size_t i = 0; i < parts.size() && i < kMost; ++i) text += (i ? "," : "") + std::string(parts[i]);
  return text + (parts.size() > kMost ? ",...)" : ")");
}

namespace {

// Bounds that keep the generated code and its registers small.
constexpr size_t kMaxOperands = 24;
constexpr size_t kMaxNodes = 64;

class Fuser {
 public:
  Fuser(const Graph& graph, const Placement& placement)
      : graph_(graph), placement_(placement), uses_(count_uses(graph)) {
    const size_t count = graph.nodes.size();
    cluster_.resize(count);
    std::iota(cluster_.begin(), cluster_.end(), 0);
    members_.resize(count);
    for (size_t i = 0; i < count; ++i) members_[i] = {static_cast<int>(i)};
    reached_in_.resize(count);
    consumers_.resize(count);
    for (size_t i = 0; i < count; ++i)
      for (const Value v : graph.nodes[i].inputs)
        consumers_[static_cast<size_t>(v.node)].push_back(static_cast<int>(i));
  }

  Graph run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!fusible(static_cast<int>(i))) continue;
      for (const Value v : graph_.nodes[i].inputs)
        if (fusible(v.node)) try_join(cluster_of(v.node), cluster_of(static_cast<int>(i)));
    }
    for (size_t i = graph_.nodes.size(); i-- > 0;)
      if (fusible(static_cast<int>(i))) try_move(static_cast<int>(i));
    return emit();
  }

 private:
  int cluster_of(int node) const { return cluster_[static_cast<size_t>(node)]; }
  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }
  bool fusible(int i) const { return node(i).op->expand != nullptr; }
  const Shape& shape(int i) const { return node(i).outputs[0].shape; }

  void try_join(int producer, int consumer) {
    if (producer == consumer) return;
    const int a = members_[static_cast<size_t>(producer)].front();
    const int b = members_[static_cast<size_t>(consumer)].front();
    if (shape(a) != shape(b) ||
        placement_.nodes[static_cast<size_t>(a)] != placement_.nodes[static_cast<size_t>(b)])
      return;
    if (members_[static_cast<size_t>(producer)].size() + members_[static_cast<size_t>(consumer)].size() >
        kMaxNodes)
      return;
    if (operands(producer, consumer) > kMaxOperands) return;
    if (path_outside(producer, consumer)) return;
    auto& into = members_[static_cast<size_t>(producer)];
    auto& from = members_[static_cast<size_t>(consumer)];
    for (const int member : from) cluster_[static_cast<size_t>(member)] = producer;
    into.insert(into.end(), from.begin(), from.end());
    std::sort(into.begin(), into.end());
    from.clear();
  }

  // The cluster that alone reads a node's value; -1: there is none, or it is its own.
  int only_reader(int member) const {
    if (node(member).outputs.size() != 1) return -1;
    int reader = -1, reads = 0;
    for (const int next : consumers_[static_cast<size_t>(member)]) {
      const int cluster = cluster_of(next);
      if (!fusible(next) || cluster == cluster_of(member) || (reader >= 0 && reader != cluster)) return -1;
      reader = cluster;
      ++reads;
    }
    return uses_[static_cast<size_t>(member)][0] == reads ? reader : -1;
  }

  // A value that only one other cluster reads is computed there, with all that nobody else reads, if that
  // moves fewer bytes: a 16-bit tensor that is there anyhow instead of a product with it in float32, say.
  // What the other cluster reads then comes from this one or lies before it, so that no circle comes to be.
  void try_move(int value) {
    const int from = cluster_of(value), to = only_reader(value);
    if (to < 0) return;
    const int other = members_[static_cast<size_t>(to)].front();
    if (shape(value) != shape(other) ||
        placement_.nodes[static_cast<size_t>(value)] != placement_.nodes[static_cast<size_t>(other)])
      return;
    std::vector<int> moved = {value};
    const auto moves = [&](int i) { return std::find(moved.begin(), moved.end(), i) != moved.end(); };
    const auto& members = members_[static_cast<size_t>(from)];
    for (auto it = members.rbegin(); it != members.rend(); ++it) {
      const auto& readers = consumers_[static_cast<size_t>(*it)];
      if (*it < value && node(*it).outputs.size() == 1 && !readers.empty() &&
          std::all_of(readers.begin(), readers.end(), moves) &&
          uses_[static_cast<size_t>(*it)][0] == static_cast<int>(readers.size()))
        moved.push_back(*it);
    }
    std::vector<Value> inputs;  // of the other cluster as it will be
    size_t more = 0;
    const auto read = [&](int member, bool anew) {
      for (const Value v : node(member).inputs) {
        if (node(v.node).op == &kConstant || cluster_of(v.node) == to || moves(v.node) ||
            std::find(inputs.begin(), inputs.end(), v) != inputs.end())
          continue;
        inputs.push_back(v);
        if (!anew) continue;
        const bool kept = cluster_of(v.node) != from || needed_outside(v.node, static_cast<size_t>(v.output));
        more += graph_.spec(v).bytes() * (kept ? 1 : 2);
      }
    };
    for (const int member : members_[static_cast<size_t>(to)]) read(member, false);
    for (const int member : moved) read(member, true);
    size_t outputs = 0;
    for (const int member : members_[static_cast<size_t>(to)])
      for (size_t k = 0; k < node(member).outputs.size(); ++k) outputs += needed_outside(member, k) ? 1 : 0;
    if (more >= 2 * node(value).outputs[0].bytes() || inputs.size() + outputs > kMaxOperands ||
        members_[static_cast<size_t>(to)].size() + moved.size() > kMaxNodes)
      return;
    std::erase_if(members_[static_cast<size_t>(from)], moves);
    auto& into = members_[static_cast<size_t>(to)];
    for (const int member : moved) {
      cluster_[static_cast<size_t>(member)] = to;
      into.push_back(member);
    }
    std::sort(into.begin(), into.end());
  }

  // Whether something outside both clusters lies on a way from one to the other, which reads the first:
  // joining them would make that something depend on itself. Nodes are joined in their order, so those behind
  // the last one of both clusters have not been joined with any yet, and no way leads back from them.
  bool path_outside(int from, int to) {
    const int last =
        std::max(members_[static_cast<size_t>(from)].back(), members_[static_cast<size_t>(to)].back());
    ++search_;
    std::vector<int> stack = {from};
    while (!stack.empty()) {
      const int current = stack.back();
      stack.pop_back();
      for (const int member : members_[static_cast<size_t>(current)])
        for (const int next : consumers_[static_cast<size_t>(member)]) {
          const int cluster = cluster_of(next);
          if (cluster == to && current != from) return true;
          if (next > last || cluster == from || cluster == to ||
              std::exchange(reached_in_[static_cast<size_t>(cluster)], search_) == search_)
            continue;
          stack.push_back(cluster);
        }
    }
    return false;
  }

  size_t operands(int a, int b) const {
    std::vector<Value> inputs;
    size_t outputs = 0;
    for (const int c : {a, b})
      for (const int member : members_[static_cast<size_t>(c)]) {
        for (const Value v : node(member).inputs)
          if (cluster_of(v.node) != a && cluster_of(v.node) != b && node(v.node).op != &kConstant &&
              std::find(inputs.begin(), inputs.end(), v) == inputs.end())
            inputs.push_back(v);
        outputs += node(member).outputs.size();
      }
    return inputs.size() + outputs;
  }

  // --- building the new graph ------------------------------------------------------------------------------

  Graph emit() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) emit_cluster(cluster_of(static_cast<int>(i)));
    for (const Value v : graph_.outputs) result_.outputs.push_back(v.valid() ? map_.at(key(v)) : v);
    for (const Value v : graph_.roots) result_.roots.push_back(map_.at(key(v)));
    for (const VariableUpdate& u : graph_.updates)
      result_.updates.push_back({u.variable, map_.at(key(u.value))});
    return std::move(result_);
  }

  static std::pair<int, int> key(Value v) { return {v.node, v.output}; }

  // Depth first, so that a cluster comes after everything it reads.
  void emit_cluster(int cluster) {
    if (emitted_.size() != graph_.nodes.size()) emitted_.resize(graph_.nodes.size(), false);
    if (emitted_[static_cast<size_t>(cluster)]) return;
    emitted_[static_cast<size_t>(cluster)] = true;
    const std::vector<int>& members = members_[static_cast<size_t>(cluster)];
    for (const int member : members)
      for (const Value v : node(member).inputs) emit_cluster(cluster_of(v.node));
    if (!fusible(members.front())) {
      Node copy = node(members.front());
      for (Value& v : copy.inputs) v = map_.at(key(v));
      const int32_t outputs = static_cast<int32_t>(copy.outputs.size());
      const Value added = result_.add(std::move(copy));
      for (int32_t k = 0; k < outputs; ++k) map_[{members.front(), k}] = {added.node, k};
      return;
    }
    emit_fused(members);
  }

  bool needed_outside(int member, size_t output) const {
    int reads_inside = 0;
    for (const int other : members_[static_cast<size_t>(cluster_of(member))])
      reads_inside += static_cast<int>(std::count(node(other).inputs.begin(), node(other).inputs.end(),
                                                  Value{member, static_cast<int32_t>(output)}));
    return uses_[static_cast<size_t>(member)][output] > reads_inside;
  }

  void emit_fused(const std::vector<int>& members) {
    FusedAttrs fused;
    Node fused_node{.op = &kFused,
                    .attrs = {},
                    .inputs = {},
                    .outputs = {},
                    .where = node(members.back()).where,
                    .device = node(members.back()).device};
    std::map<std::pair<int, int>, int16_t> values;  // old value to value of the program
    const auto value_of = [&](Value v) {
      if (const auto it = values.find(key(v)); it != values.end()) return it->second;
      const Node& source = node(v.node);
      const DType dtype = graph_.spec(v).dtype;
      int16_t value = 0;
      if (source.op == &kConstant) {
        value = append(fused.program, {.op = elementwise::Opcode::constant,
                                       .dtype = dtype,
                                       .immediate = source.attrs.as<ConstantAttrs>().value});
      } else {
        value = append(fused.program, {.op = elementwise::Opcode::input,
                                       .dtype = dtype,
                                       .index = static_cast<int16_t>(fused_node.inputs.size())});
        fused.program.inputs.push_back(dtype);
        fused_node.inputs.push_back(map_.at(key(v)));
      }
      return values[key(v)] = value;
    };
    for (const int member : members) {
      std::vector<int16_t> arguments;
      for (const Value v : node(member).inputs) arguments.push_back(value_of(v));
      elementwise::Expander expander(fused.program, node(member).attrs, arguments);
      node(member).op->expand(expander);
      for (size_t k = 0; k < expander.outputs().size(); ++k)
        values[{member, static_cast<int>(k)}] = expander.outputs()[k];
      fused.ops.push_back(node(member).op->name);
    }
    std::vector<std::pair<int, int>> kept;
    for (const int member : members)
      for (size_t k = 0; k < node(member).outputs.size(); ++k)
        if (needed_outside(member, k)) {
          fused.program.outputs.push_back(values.at({member, static_cast<int>(k)}));
          fused_node.outputs.push_back(node(member).outputs[k]);
          kept.emplace_back(member, static_cast<int>(k));
        }
    fused.shape = shape(members.front());
    fused_node.attrs = std::move(fused);
    const Value added = result_.add(std::move(fused_node));
    for (size_t k = 0; k < kept.size(); ++k) map_[kept[k]] = {added.node, static_cast<int32_t>(k)};
  }

  const Graph& graph_;
  const Placement& placement_;
  std::vector<std::vector<int>> uses_;
  std::vector<std::vector<int>> consumers_;
  std::vector<int> cluster_;
  std::vector<std::vector<int>> members_;
  int search_ = 0;               // path_outside() calls so far
  std::vector<int> reached_in_;  // the last of them that came to a cluster
  std::vector<bool> emitted_;
  std::map<std::pair<int, int>, Value> map_;
  Graph result_;
};

}  // namespace

Graph fuse_elementwise(const Graph& graph, const Placement& placement) {
  return remove_dead_nodes(Fuser(graph, placement).run());
}

}  // namespace lockstep::compile
