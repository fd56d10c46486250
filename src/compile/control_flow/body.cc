#include "compile/control_flow/body.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace lockstep::compile {
namespace {

std::pair<int, int> key(Value v) { return {v.node, v.output}; }

}  // namespace

Graph extract(const Graph& graph, std::span<const Value> results, std::span<const Value> parameters) {
  Graph part;
  std::map<std::pair<int, int>, Value> map;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].valid()) continue;
    const Value added = part.add({.op = &kParameter,
                                  .attrs = ParameterAttrs{static_cast<int64_t>(i)},
                                  .inputs = {},
                                  .outputs = {graph.spec(parameters[i])},
                                  .where = graph.node(parameters[i]).where});
    map.emplace(key(parameters[i]), added);
  }
  std::vector<bool> needed(graph.nodes.size(), false);
  std::vector<Value> stack(results.begin(), results.end());
  while (!stack.empty()) {
    const Value v = stack.back();
    stack.pop_back();
    if (!v.valid() || map.contains(key(v)) || needed[static_cast<size_t>(v.node)]) continue;
    needed[static_cast<size_t>(v.node)] = true;
    for (const Value input : graph.node(v).inputs) stack.push_back(input);
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!needed[i]) continue;
    Node node = graph.nodes[i];
    require(node.op != &kParameter, ErrorCode::internal, node.where,
            "a body reads a value from outside that is not among its parameters");
    for (Value& v : node.inputs) v = map.at(key(v));
    const auto outputs = static_cast<int32_t>(node.outputs.size());
    const Value added = part.add(std::move(node));
    for (int32_t k = 0; k < outputs; ++k)
      map.emplace(std::pair(static_cast<int>(i), k), Value{added.node, k});
  }
  for (const Value v : results) part.outputs.push_back(v.valid() ? map.at(key(v)) : v);
  return part;
}

bool BodyGraph::operator==(const BodyGraph& other) const {
  return this == &other ||
         (hash_ == other.hash_ && parameters_ == other.parameters_ && same_structure(graph_, other.graph_));
}

std::shared_ptr<const Plan> BodyGraph::plan(const PlanOptions& options) const {
  const std::lock_guard lock(mutex_);
  for (const Planned& planned : plans_)
    if (same_kernels(planned.options, options) && planned.plan->settings == PlanSettings{})
      return planned.plan;
  auto plan = std::make_shared<Plan>(make_plan(graph_, options));
  plan->parameters.resize(parameters_);
  plans_.push_back({options, plan});
  return plan;
}

Cost BodyGraph::cost() const {
  Cost total;
  for (const KernelCall& call : plan(PlanOptions::on(DeviceKind::null, nullptr, 1))->calls) {
    total.flops += call.cost.flops;
    total.bytes += call.cost.bytes;
  }
  return total;
}

TracedBody::TracedBody(Trace::BodyKind kind, std::span<const TensorSpec> parameters, const Function& body,
                       const char* name, std::source_location where)
    : trace_(*Trace::current(), kind, [this](const Tensor& tensor) {
        if (is_floating(tensor.dtype())) tape_->watch(tensor);
      }) {
  try {
    const TraceScope scope(trace_);
    tape_.emplace(GradientTapeOptions{.persistent = true});
    for (const TensorSpec& spec : parameters) {
      parameters_.push_back(trace_.parameter(-1, spec, where));
      if (is_floating(spec.dtype)) tape_->watch(parameters_.back());
    }
    const TensorList results = body(parameters_);
    for (const Tensor& result : results) {
      require(result.defined(), ErrorCode::invalid_argument, where, name,
              ": a body returned an undefined tensor");
      outputs_.push_back(trace_.value_of(result, where));
    }
    tape_->stop_recording();
  } catch (Error& error) {
    error.note(detail::concat("while tracing a body of ", name));
    throw;
  }
  forward_nodes_ = static_cast<int>(trace_.graph().nodes.size());
  forward_outside_ = trace_.outside().size();
  // Whoever records outside hears of the variables that were read in here.
  for (const Trace::Outside& outside : trace_.outside())
    if (outside.variable.defined()) tell_recorders_of_read(outside.variable, outside.value);
}

TracedBody::Slot TracedBody::slot_of(const Tensor& parameter) {
  return {parameter, trace_.value_of(parameter, std::source_location::current())};
}

std::shared_ptr<const BodyGraph> TracedBody::graph_of(std::span<const Value> results) const {
  std::vector<Value> parameters;
  for (const Slot& slot : slots) parameters.push_back(slot.value);
  return std::make_shared<BodyGraph>(extract(trace_.graph(), results, parameters), slots.size());
}

int TracedBody::slot_with(Value value) const {
  const auto it =
      std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) { return slot.value == value; });
  return it == slots.end() || !value.valid() ? -1 : static_cast<int>(it - slots.begin());
}

TensorList TracedBody::gradients(std::span<const Value> targets, std::span<const Tensor> output_gradients,
                                 const std::vector<bool>& wanted) {
  TensorList handles;
  for (const Value v : targets) {
    const int slot = slot_with(v);
    handles.push_back(slot >= 0 ? slots[static_cast<size_t>(slot)].handle : trace_.wrap(v));
  }
  std::vector<GradientSource> sources;
  for (size_t i = 0; i < slots.size(); ++i)
    if (wanted[i]) sources.emplace_back(slots[i].handle);
  TensorList found = tape_->gradient(handles, sources, output_gradients);
  TensorList result(slots.size());
  size_t next = 0;
  for (size_t i = 0; i < slots.size(); ++i)
    if (wanted[i]) result[i] = std::move(found[next++]);
  return result;
}

bool TracedBody::depends_only_on(Value value, const std::vector<bool>& allowed) const {
  const Graph& graph = trace_.graph();
  std::vector<Value> stack = {value};
  std::vector<bool> visited(graph.nodes.size(), false);
  while (!stack.empty()) {
    const Value v = stack.back();
    stack.pop_back();
    if (visited[static_cast<size_t>(v.node)]) continue;
    visited[static_cast<size_t>(v.node)] = true;
    const Node& node = graph.node(v);
    if (node.op == &kParameter) {
      const int slot = slot_with(v);
      if (slot < 0 || !allowed[static_cast<size_t>(slot)]) return false;
    } else if (!node.op->pure) {
      return false;
    }
    for (const Value input : node.inputs) stack.push_back(input);
  }
  return true;
}

TracedBody::Reads TracedBody::reads_of(std::span<const Value> results, const std::vector<bool>& slot_is_saved,
                                       const std::function<bool(Value)>& recomputed) const {
  const Graph& graph = trace_.graph();
  Reads reads;
  reads.slots.resize(slots.size(), false);
  std::map<std::pair<int, int>, bool> visited;
  std::vector<Value> stack;
  for (size_t i = results.size(); i-- > 0;)
    if (results[i].valid()) stack.push_back(results[i]);
  while (!stack.empty()) {
    const Value v = stack.back();
    stack.pop_back();
    if (std::exchange(visited[key(v)], true)) continue;
    const Node& node = graph.node(v);
    if (const int slot = slot_with(v); slot >= 0) {
      if (slot_is_saved[static_cast<size_t>(slot)])
        reads.saved.push_back(v);
      else
        reads.slots[static_cast<size_t>(slot)] = true;
      continue;
    }
    if (node.op == &kParameter) {
      const auto& all = trace_.outside();
      for (size_t i = forward_outside_; i < all.size(); ++i)
        if (all[i].parameter == v) reads.outside.push_back(all[i]);
      continue;
    }
    if (is_forward(v) && node.op != &kConstant && !node.op->view && !recomputed(v)) {
      reads.saved.push_back(v);
      continue;
    }
    for (const Value input : node.inputs) stack.push_back(input);
  }
  return reads;
}

std::shared_ptr<TracedBody> replay(const BodyGraph& body, Trace::BodyKind kind) {
  const Graph& graph = body.graph();
  const std::source_location where = std::source_location::current();
  std::vector<TensorSpec> specs;
  std::vector<size_t> numbers;  // of the parameters that are used
  for (const Node& node : graph.nodes)
    if (node.op == &kParameter) {
      specs.push_back(node.outputs[0]);
      numbers.push_back(static_cast<size_t>(node.attrs.as<ParameterAttrs>().index));
    }
  const auto emit_again = [&](std::span<const Tensor> parameters) {
    std::vector<TensorList> values;
    size_t parameter = 0;
    for (const Node& node : graph.nodes) {
      TensorList inputs;
      for (const Value v : node.inputs)
        inputs.push_back(values[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)]);
      if (node.op == &kParameter)
        values.push_back({parameters[parameter++]});
      else if (node.op == &kConstant)
        values.push_back({fill(node.outputs[0], node.attrs.as<ConstantAttrs>().value, node.where)});
      else
        values.push_back(emit(*node.op, inputs, node.attrs, node.where));
    }
    TensorList results;
    for (const Value v : graph.outputs)
      if (v.valid()) results.push_back(values[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)]);
    return results;
  };
  auto traced = std::make_shared<TracedBody>(kind, specs, emit_again, "a gradient", where);
  traced->slots.resize(body.num_parameters());
  for (size_t i = 0; i < numbers.size(); ++i)
    traced->slots[numbers[i]] = traced->slot_of(traced->parameters()[i]);
  return traced;
}

}  // namespace lockstep::compile
