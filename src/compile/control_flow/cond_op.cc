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

// Of the dearer branch.
Cost cost(const InferContext& c, std::span<const TensorSpec>) {
  const auto& attrs = c.attrs<CondAttrs>();
  const Cost a = attrs.bodies[0]->cost();
  const Cost b = attrs.bodies[1]->cost();
  return {.flops = std::max(a.flops, b.flops), .bytes = std::max(a.bytes, b.bytes)};
}

// The gradient is a choice by the same predicate between the branches' gradients. What those read of the
// forward pass becomes results of the forward node, left out by the other branch.
TensorList grad(const GradContext& g) {
  Trace* owner = g.out().symbolic() ? Trace::of(g.out()) : nullptr;
  const int32_t number = g.out().impl()->symbol.node;
  require(owner != nullptr, ErrorCode::failed_precondition, std::source_location::current(),
          "the gradient of cond is taken in the traced function in which it is");
  const std::source_location where = owner->graph().nodes[static_cast<size_t>(number)].where;
  auto attrs = owner->graph().nodes[static_cast<size_t>(number)].attrs.as<CondAttrs>();
  const auto inputs = static_cast<size_t>(g.num_inputs()) - 1;  // but for the predicate

  std::array<std::vector<Value>, 2> parameters;  // of the branches' gradients, side by side
  std::array<std::vector<Value>, 2> results;
  std::array<TracedBody::Reads, 2> reads;
  TensorList arriving;
  std::vector<size_t> outputs;  // of the node, by what arrives
  for (int i = 0; i < g.num_outputs(); ++i) {
    const auto output = static_cast<size_t>(g.out(i).impl()->symbol.output);
    const auto emitted = static_cast<size_t>(attrs.emitted);
    const bool state = output < emitted && output >= emitted - static_cast<size_t>(attrs.states);
    if (!g.has_dout(i) || state || !is_floating(g.out(i).dtype())) continue;
    arriving.push_back(g.dout(i));
    outputs.push_back(output);
  }
  std::vector<bool> given(inputs, false);  // some branch has a gradient for this input
  for (const size_t b : kBranches) {
    if (!attrs.traced[b]) {
      attrs.traced[b] = replay(*attrs.bodies[b], Trace::BodyKind::branch);
      size_t next = 0;
      for (const Value v : attrs.bodies[b]->graph().outputs)
        attrs.results[b].push_back(v.valid() ? attrs.traced[b]->outputs()[next++] : v);
    }
    TracedBody& body = *attrs.traced[b];
    const TraceScope scope(body.trace());
    std::vector<Value> targets;
    TensorList at_targets;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor symbol = body.trace().parameter(-1, arriving[i].spec(), where);
      parameters[b].push_back(body.trace().value_of(symbol, where));
      const Value v = attrs.results[b][outputs[i]];
      if (!v.valid()) continue;
      const OpDef& op = *body.trace().graph().node(v).op;
      require(outputs[i] < static_cast<size_t>(attrs.emitted) || !has_bodies(op), ErrorCode::unsupported,
              where,
              "second derivatives through a loop or branch inside the branch of a cond are not supported");
      targets.push_back(v);
      at_targets.push_back(symbol);
    }
    std::vector<bool> wanted(inputs, false);
    for (size_t i = 0; i < inputs; ++i)
      wanted[i] = body.slots[i].value.valid() && g.needs(static_cast<int>(i) + 1) &&
                  is_floating(g.in(static_cast<int>(i) + 1).dtype());
    const TensorList found = body.gradients(targets, at_targets, wanted);
    for (size_t i = 0; i < inputs; ++i) {
      results[b].push_back(found[i].defined() ? body.trace().value_of(found[i], where) : Value{});
      given[i] = given[i] || found[i].defined();
    }
    reads[b] = body.reads_of(results[b], std::vector<bool>(inputs, false), [](Value) { return false; });
  }
  for (const size_t b : kBranches)
    for (size_t i = inputs; i-- > 0;)
      if (!given[i]) results[b].erase(results[b].begin() + static_cast<std::ptrdiff_t>(i));

  // More results of the forward pass.
  SpecList more;
  std::array<std::vector<size_t>, 2> saved;
  for (const size_t b : kBranches)
    for (const Value v : reads[b].saved) {
      auto& known = attrs.results[b];
      auto it = std::find(known.begin(), known.end(), v);
      if (it == known.end()) {
        known.push_back(v);
        attrs.results[1 - b].emplace_back();
        more.push_back(attrs.traced[b]->trace().graph().spec(v));
        it = known.end() - 1;
      }
      saved[b].push_back(static_cast<size_t>(it - known.begin()));
    }
  for (const size_t b : kBranches) attrs.bodies[b] = attrs.traced[b]->program(attrs.results[b]);
  const TensorList added = owner->extend(g.out(), attrs, more);
  if (!added.empty()) {
    TensorList all;
    for (int i = 0; i < g.num_inputs(); ++i) all.push_back(g.in(i));
    tell_recorders(kCond, attrs, all, added);
  }

  TensorList arguments = {g.in(0)};
  arguments.insert(arguments.end(), arriving.begin(), arriving.end());
  const auto add_argument = [&](const Tensor& argument, Value of_then, Value of_else) {
    arguments.push_back(argument);
    parameters[0].push_back(of_then);
    parameters[1].push_back(of_else);
  };
  for (size_t i = 0; i < inputs; ++i)
    if (reads[0].slots[i] || reads[1].slots[i])
      add_argument(g.in(static_cast<int>(i) + 1), attrs.traced[0]->slots[i].value,
                   attrs.traced[1]->slots[i].value);
  for (const size_t b : kBranches) {
    for (size_t i = 0; i < saved[b].size(); ++i)
      add_argument(owner->wrap({number, static_cast<int32_t>(saved[b][i])}),
                   b == 0 ? reads[b].saved[i] : Value{}, b == 1 ? reads[b].saved[i] : Value{});
    for (const Trace::Outside& outside : reads[b].outside)
      add_argument(outside.value, b == 0 ? outside.parameter : Value{}, b == 1 ? outside.parameter : Value{});
  }
  TensorList leaving(static_cast<size_t>(g.num_inputs()));
  if (results[0].empty()) return leaving;
  CondAttrs backward;
  for (const size_t b : kBranches)
    backward.bodies[b] = std::make_shared<BodyProgram>(
        extract(attrs.traced[b]->trace().graph(), results[b], parameters[b]), parameters[b].size());
  backward.emitted = static_cast<int64_t>(results[0].size());
  const TensorList found = emit(kCond, arguments, backward, where);
  size_t next = 0;
  for (size_t i = 0; i < inputs; ++i)
    if (given[i]) leaving[i + 1] = found[next++];
  return leaving;
}

}  // namespace

constinit const OpDef kCond{
    .name = "cond", .min_inputs = 1, .max_inputs = -1, .infer = infer, .grad = grad, .cost = cost};

}  // namespace lockstep::compile
