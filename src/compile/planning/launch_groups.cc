#include "compile/planning/launch_groups.h"

#include <algorithm>
#include <array>

#include "ops/elementwise/expander.h"

namespace lockstep::compile {
namespace {

// The most bytes that a group may keep in memory until all of it can run: a launch on that much takes far
// longer than beginning one does.
constexpr size_t kMostHeld = 64 << 20;

// What the nodes of a group have in common.
struct Kind {
  elementwise::ScalarProgram program;
  std::vector<bool> whole;  // by input: of the outputs' shape, not one element
  NodePlace place;
  bool last = false;  // nobody reads its values
  bool operator==(const Kind&) const = default;
};

class Grouper {
 public:
  Grouper(const Graph& graph, const Placement& placement, const std::vector<OrderEdge>& edges)
      : graph_(graph), placement_(placement), group_(graph.nodes.size(), -1), followers_(graph.nodes.size()) {
    is_read_.resize(graph.nodes.size(), false);
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      for (const Value v : graph.nodes[i].inputs) {
        followers_[static_cast<size_t>(v.node)].push_back(static_cast<int>(i));
        is_read_[static_cast<size_t>(v.node)] = true;
      }
    for (const OrderEdge& edge : edges) followers_[static_cast<size_t>(edge.before)].push_back(edge.after);
  }

  std::vector<std::vector<int>> run(const std::vector<int>& order) {
    for (const int node : order)
      if (eligible(node)) take(node);
    std::erase_if(groups_, [](const auto& members) { return members.size() < 2; });
    return std::move(groups_);
  }

 private:
  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }

  bool from_source(Value v) const {
    while (graph_.node(v).op->view) v = graph_.node(v).inputs[0];
    return is_source(*graph_.node(v).op);
  }
  bool is_first(int i) const {
    return std::all_of(node(i).inputs.begin(), node(i).inputs.end(), [&](Value v) { return from_source(v); });
  }
  bool is_last(int i) const { return !is_read_[static_cast<size_t>(i)]; }

  bool eligible(int i) const {
    const Node& n = node(i);
    if (!n.op->expand || n.inputs.empty() || n.outputs.empty() || n.outputs[0].shape.size() == 0)
      return false;
    return (is_first(i) || is_last(i)) && std::all_of(n.inputs.begin(), n.inputs.end(), [&](Value v) {
             const Shape& shape = graph_.spec(v).shape;
             return shape == n.outputs[0].shape || shape.size() == 1;
           });
  }

  Kind kind_of(int i) const {
    const Node& n = node(i);
    std::vector<DType> dtypes;
    Kind kind{
        .program = {}, .whole = {}, .place = placement_.nodes[static_cast<size_t>(i)], .last = is_last(i)};
    for (const Value v : n.inputs) {
      dtypes.push_back(graph_.spec(v).dtype);
      kind.whole.push_back(graph_.spec(v).shape == n.outputs[0].shape);
    }
    kind.program = elementwise::expand(*n.op, n.attrs, dtypes);
    return kind;
  }

  // Bytes that stay alive while a node waits for the rest of its group.
  size_t held_by(int i) const {
    size_t bytes = 0;
    if (is_last(i)) {
      for (const Value v : node(i).inputs) bytes += from_source(v) ? 0 : graph_.spec(v).bytes();
    } else {
      for (const TensorSpec& spec : node(i).outputs) bytes += spec.bytes();
    }
    return bytes;
  }

  // Whether anything leads from one to the other, where groups move as one.
  bool reaches(int from, int to) const {
    std::vector<bool> visited(graph_.nodes.size(), false);
    std::vector<int> stack;
    const auto visit = [&](int i) {
      const auto enter = [&](int member) {
        if (!visited[static_cast<size_t>(member)]) stack.push_back(member);
        visited[static_cast<size_t>(member)] = true;
      };
      const int group = group_[static_cast<size_t>(i)];
      if (group < 0) return enter(i);
      for (const int member : groups_[static_cast<size_t>(group)]) enter(member);
    };
    visit(from);
    while (!stack.empty()) {
      const int current = stack.back();
      stack.pop_back();
      for (const int next : followers_[static_cast<size_t>(current)]) visit(next);
      if (visited[static_cast<size_t>(to)]) return true;
    }
    return false;
  }

  void take(int i) {
    Kind kind = kind_of(i);
    auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& o) { return o.kind == kind; });
    if (open == open_.end()) open = open_.insert(open_.end(), {std::move(kind), -1, 0});
    const size_t held = held_by(i);
    const int first = open->group < 0 ? -1 : groups_[static_cast<size_t>(open->group)].front();
    if (first < 0 || open->held + held > kMostHeld || reaches(first, i) || reaches(i, first)) {
      open->group = static_cast<int>(groups_.size());
      open->held = 0;
      groups_.emplace_back();
    }
    open->held += held;
    groups_[static_cast<size_t>(open->group)].push_back(i);
    group_[static_cast<size_t>(i)] = open->group;
  }

  struct Open {
    Kind kind;
    int group;  // to which the next one is added
    size_t held;
  };

  const Graph& graph_;
  const Placement& placement_;
  std::vector<int> group_;  // by node; -1: none
  std::vector<std::vector<int>> followers_;
  std::vector<bool> is_read_;
  std::vector<Open> open_;
  std::vector<std::vector<int>> groups_;
};

}  // namespace

std::vector<std::vector<int>> group_launches(const Graph& graph, const Placement& placement,
                                             const std::vector<OrderEdge>& edges,
                                             const std::vector<int>& order) {
  return Grouper(graph, placement, edges).run(order);
}

bool can_be_grouped(const KernelCall& call) {
  const auto fits = [&](const OperandLayout& layout) {
    return layout.spec.shape.size() == 1 ||
           (layout.contiguous() && layout.spec.shape == call.output_layouts[0].spec.shape);
  };
  return std::all_of(call.input_layouts.begin(), call.input_layouts.end(), fits) &&
         std::all_of(call.output_layouts.begin(), call.output_layouts.end(), fits);
}

GroupCalls& group_rule(DeviceKind kind) {
  static std::array<GroupCalls, 8> rules{};
  return rules.at(static_cast<size_t>(kind));
}

}  // namespace lockstep::compile
