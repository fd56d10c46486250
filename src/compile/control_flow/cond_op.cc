#include <algorithm>

#include "compile/control_flow/control_flow_ops.h"
#include "tensor/tensor_impl.h"

namespace lockstep::compile {
namespace {

constexpr std::array<size_t, 2> kBranches = {0, 1};

SpecList infer(const InferContext& c) {
  const auto& attrs = c.attrs<CondAttrs>();
  SpecList specs;
  for (size_t k = 0; k < attrs.bodies[0]->graph().outputs.size(); ++k) {
    const Value v = attrs.bodies[0]->graph().outputs[k];
    const Graph& graph = attrs.bodies[v.valid() ? 0 : 1]->graph();
    specs.push_back(graph.spec(graph.outputs[k]));
  }
  return specs;
}

// The cost of the branch that costs more.
Cost cost(const InferContext& c, std::span<const TensorSpec>) {
  const auto& attrs = c.attrs<CondAttrs>();
  const Cost a = attrs.bodies[0]->cost();
  const Cost b = attrs.bodies[1]->cost();
  return {.flops = std::max(a.flops, b.flops), .bytes = std::max(a.bytes, b.bytes)};
}

// The gradient is a choice by the same predicate between the branches' gradients. What those read of the
// forward pass becomes results of the forward node, left out by the other branch.
class CondGradient {
 public:
  explicit CondGradient(const GradContext& g)
      : g_(g),
        owner_(g.out().symbolic() ? Trace::of(g.out()) : nullptr),
        number_(g.out().impl()->symbol.node),
        inputs_(static_cast<size_t>(g.num_inputs()) - 1),
        given_(inputs_, false) {
    require(owner_ != nullptr, ErrorCode::failed_precondition, std::source_location::current(),
            "the gradient of cond is taken in the traced function in which it is");
    const Node& node = owner_->graph().nodes[static_cast<size_t>(number_)];
    where_ = node.where;
    attrs_ = node.attrs.as<CondAttrs>();
  }

  TensorList run() {
    collect_arriving();
    for (const size_t b : kBranches) differentiate(b);
    drop_what_no_branch_gives();
    save_what_is_read();
    return emit_choice();
  }

 private:
  TracedBody& body(size_t b) { return *attrs_.traced[b]; }

  // The gradients of the node's results that there are.
  void collect_arriving() {
    const auto emitted = static_cast<size_t>(attrs_.emitted), states = static_cast<size_t>(attrs_.states);
    for (int i = 0; i < g_.num_outputs(); ++i) {
      const auto output = static_cast<size_t>(g_.out(i).impl()->symbol.output);
      const bool state = output < emitted && output >= emitted - states;
      if (!g_.has_dout(i) || state || !is_floating(g_.out(i).dtype())) continue;
      arriving_.push_back(g_.dout(i));
      outputs_.push_back(output);
    }
  }

  // A body that was simplified is traced once more, for gradients are taken of what was traced.
  void trace(size_t b) {
    if (attrs_.traced[b]) return;
    attrs_.traced[b] = replay(*attrs_.bodies[b], Trace::BodyKind::branch);
    size_t next = 0;
    for (const Value v : attrs_.bodies[b]->graph().outputs)
      attrs_.results[b].push_back(v.valid() ? body(b).outputs()[next++] : v);
  }

  // The gradients of a branch, in its own trace.
  void differentiate(size_t b) {
    trace(b);
    TracedBody& branch = body(b);
    const TraceScope scope(branch.trace());
    std::vector<Value> targets;
    TensorList at_targets;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Tensor symbol = branch.trace().parameter(-1, arriving_[i].spec(), where_);
      parameters_[b].push_back(branch.trace().value_of(symbol, where_));
      const Value v = attrs_.results[b][outputs_[i]];
      if (!v.valid()) continue;
      const OpDef& op = *branch.trace().graph().node(v).op;
      require(outputs_[i] < static_cast<size_t>(attrs_.emitted) || !has_bodies(op), ErrorCode::unsupported,
              where_,
              "second derivatives through a loop or branch inside the branch of a cond are not supported");
      targets.push_back(v);
      at_targets.push_back(symbol);
    }
    std::vector<bool> wanted(inputs_, false);
    for (size_t i = 0; i < inputs_; ++i)
      wanted[i] = branch.slots[i].value.valid() && g_.needs(static_cast<int>(i) + 1) &&
                  is_floating(g_.in(static_cast<int>(i) + 1).dtype());
    const TensorList found = branch.gradients(targets, at_targets, wanted);
    for (size_t i = 0; i < inputs_; ++i) {
      results_[b].push_back(found[i].defined() ? branch.trace().value_of(found[i], where_) : Value{});
      given_[i] = given_[i] || found[i].defined();
    }
    reads_[b] = branch.reads_of(results_[b], std::vector<bool>(inputs_, false), [](Value) { return false; });
  }

  void drop_what_no_branch_gives() {
    for (const size_t b : kBranches)
      for (size_t i = inputs_; i-- > 0;)
        if (!given_[i]) results_[b].erase(results_[b].begin() + static_cast<std::ptrdiff_t>(i));
  }

  // What gradients read of a branch is a result of the forward pass from now on.
  void save_what_is_read() {
    SpecList more;
    for (const size_t b : kBranches)
      for (const Value v : reads_[b].saved) {
        auto& known = attrs_.results[b];
        auto it = std::find(known.begin(), known.end(), v);
        if (it == known.end()) {
          known.push_back(v);
          attrs_.results[1 - b].emplace_back();
          more.push_back(body(b).trace().graph().spec(v));
          it = known.end() - 1;
        }
        saved_[b].push_back(static_cast<size_t>(it - known.begin()));
      }
    for (const size_t b : kBranches) attrs_.bodies[b] = body(b).graph_of(attrs_.results[b]);
    const TensorList added = owner_->extend(g_.out(), attrs_, more);
    if (added.empty()) return;
    TensorList all;
    for (int i = 0; i < g_.num_inputs(); ++i) all.push_back(g_.in(i));
    tell_recorders(kCond, attrs_, all, added);
  }

  // What the branches' gradients are called with; each knows the argument by a value of its own, or does not
  // read it.
  TensorList arguments() {
    TensorList all = {g_.in(0)};
    all.insert(all.end(), arriving_.begin(), arriving_.end());
    const auto add = [&](const Tensor& argument, Value of_then, Value of_else) {
      all.push_back(argument);
      parameters_[0].push_back(of_then);
      parameters_[1].push_back(of_else);
    };
    for (size_t i = 0; i < inputs_; ++i)
      if (reads_[0].slots[i] || reads_[1].slots[i])
        add(g_.in(static_cast<int>(i) + 1), body(0).slots[i].value, body(1).slots[i].value);
    for (const size_t b : kBranches) {
      const auto add_for_branch = [&](const Tensor& argument, Value value) {
        add(argument, b == 0 ? value : Value{}, b == 1 ? value : Value{});
      };
      for (size_t i = 0; i < saved_[b].size(); ++i)
        add_for_branch(owner_->wrap({number_, static_cast<int32_t>(saved_[b][i])}), reads_[b].saved[i]);
      for (const Trace::Outside& outside : reads_[b].outside)
        add_for_branch(outside.value, outside.parameter);
    }
    return all;
  }

  TensorList emit_choice() {
    const TensorList called_with = arguments();
    TensorList leaving(static_cast<size_t>(g_.num_inputs()));
    if (results_[0].empty()) return leaving;
    CondAttrs backward;
    for (const size_t b : kBranches)
      backward.bodies[b] = std::make_shared<BodyGraph>(
          extract(body(b).trace().graph(), results_[b], parameters_[b]), parameters_[b].size());
    backward.emitted = static_cast<int64_t>(results_[0].size());
    const TensorList found = emit(kCond, called_with, backward, where_);
    size_t next = 0;
    for (size_t i = 0; i < inputs_; ++i)
      if (given_[i]) leaving[i + 1] = found[next++];
    return leaving;
  }

  const GradContext& g_;
  Trace* const owner_;
  const int32_t number_;  // of the node
  const size_t inputs_;   // but for the predicate
  std::source_location where_;
  CondAttrs attrs_;
  TensorList arriving_;
  std::vector<size_t> outputs_;                   // of the node, by what arrives
  std::vector<bool> given_;                       // some branch has a gradient for this input
  std::array<std::vector<Value>, 2> parameters_;  // of the branches' gradients, side by side
  std::array<std::vector<Value>, 2> results_;
  std::array<TracedBody::Reads, 2> reads_;
  std::array<std::vector<size_t>, 2> saved_;  // results of the forward node
};

TensorList grad(const GradContext& g) { return CondGradient(g).run(); }

}  // namespace

constinit const OpDef kCond{
    .name = "cond", .min_inputs = 1, .max_inputs = -1, .infer = infer, .grad = grad, .cost = cost};

}  // namespace lockstep::compile
