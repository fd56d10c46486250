#include "graph/emit.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/as_error.h"
#include "graph/active_recorders.h"
#include "graph/eager.h"
#include "graph/variable_impl.h"
#include "lockstep/base/call_site.h"
#include "tensor/countable.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

// A recorder is told only what happens at the depth of pauses at which it was pushed.
struct ActiveRecorder {
  Recorder* recorder;
  int depth;
};
thread_local std::vector<ActiveRecorder> recorders;
thread_local int pause_depth = 0;
thread_local Trace* current_trace = nullptr;

}  // namespace

void push_recorder(Recorder* recorder) { recorders.push_back({recorder, pause_depth}); }

void remove_recorder(Recorder* recorder) {
  std::erase_if(recorders, [&](const ActiveRecorder& active) { return active.recorder == recorder; });
}

RecorderPause::RecorderPause() { ++pause_depth; }
RecorderPause::~RecorderPause() { --pause_depth; }

TracePause::TracePause() : paused_(std::exchange(current_trace, nullptr)) {}
TracePause::~TracePause() { current_trace = paused_; }

TensorList emit(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                std::source_location where) {
  const auto count = static_cast<int>(inputs.size());
  require(count >= op.min_inputs && (op.max_inputs < 0 || count <= op.max_inputs),
          ErrorCode::invalid_argument, where, op.name, ": takes ", op.min_inputs,
          op.max_inputs == op.min_inputs ? "" : " or more", " inputs, received ", count);
  SpecList input_specs;
  input_specs.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    require(input.defined(), ErrorCode::invalid_argument, where, op.name, ": input ", &input - inputs.data(),
            " is none (a default-constructed Tensor or an unconnected gradient)");
    input_specs.push_back(input.spec());
  }
  return as_error(op.name, where, [&] {
    SpecList specs = op.infer(InferContext{op, input_specs, attrs, where});
    for (const TensorSpec& spec : specs) require_countable(spec, op.name, where);
    TensorList outputs = current_trace ? current_trace->append(op, inputs, attrs, std::move(specs), where)
                                       : run_eager(op, inputs, attrs, specs, where);
    tell_recorders(op, attrs, inputs, outputs);
    return outputs;
  });
}

Tensor emit_one(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                std::source_location where) {
  if (!current_trace) {
    Tensor again = as_error(op.name, where, [&] { return run_again(op, inputs, attrs, where); });
    if (again.defined()) {
      tell_recorders(op, attrs, inputs, {&again, 1});
      return again;
    }
  }
  return std::move(emit(op, inputs, attrs, where).front());
}

Tensor emit_one(const OpDef& op, std::initializer_list<Tensor> inputs, const Attrs& attrs,
                std::source_location where) {
  return emit_one(op, std::span<const Tensor>(inputs.begin(), inputs.size()), attrs, where);
}

Tensor fill(const TensorSpec& spec, double value, std::source_location where) {
  if (current_trace) return current_trace->constant(spec, value, where);
  return Tensor::full(spec.dtype, spec.shape, value, current_device(where), where);
}

Tensor fill_beside(const Tensor& neighbour, const TensorSpec& spec, double value,
                   std::source_location where) {
  if (current_trace) return current_trace->constant(spec, value, where);
  if (Device* scoped = scoped_device()) return Tensor::full(spec.dtype, spec.shape, value, *scoped, where);
  require(
      !neighbour.symbolic(), ErrorCode::failed_precondition, where,
      "a tensor of a traced function that has ended was used; return it from the function to use it outside");
  return Tensor::full(spec.dtype, spec.shape, value, neighbour.device(), where);
}

BesideScope::BesideScope(const Tensor& tensor) {
  const Trace* trace = Trace::current();
  const Device* scoped = scoped_device();
  if (!tensor.defined() || (trace && !trace->places()) || (scoped && !backend_of(*scoped).has_memory()))
    return;
  Device* device = nullptr;
  if (!tensor.symbolic())
    device = &tensor.impl()->storage->device();
  else if (const Trace* own = Trace::of(tensor))
    device = own->device_of(tensor);
  if (device) scope_.emplace(*device);
}

namespace {
uint64_t next_trace() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}
}  // namespace

const ReplicaTrace* ReplicaTrace::current() {
  return current_trace && current_trace->replica().local_batch >= 0 ? &current_trace->replica() : nullptr;
}

Trace::Trace(const ReplicaTrace& replica) : id_(next_trace()), outer_(current_trace), replica_(replica) {
  current_trace = this;
}

Trace::Trace(Trace& outer, BodyKind kind, std::function<void(const Tensor&)> noticed)
    : id_(next_trace()),
      outer_(&outer),
      kind_(kind),
      noticed_(std::move(noticed)),
      replica_(outer.replica_) {}

Trace::~Trace() {
  if (!is_body()) current_trace = outer_;
}

TraceScope::TraceScope(Trace& body) : left_(current_trace) {
  body.outer_ = left_;
  body.entered_ = scoped_device();
  current_trace = &body;
}
TraceScope::~TraceScope() { current_trace = left_; }

Trace* Trace::current() { return current_trace; }

Trace* Trace::of(const Tensor& symbol) {
  Trace* trace = current_trace;
  while (trace && trace->id_ != symbol.impl()->symbol.trace)
    trace = trace->is_body() ? trace->outer_ : nullptr;
  return trace;
}

Tensor Trace::wrap(Value value) const {
  return make_symbolic(graph_.spec(value), {id_, value.node, value.output});
}

Value Trace::new_parameter(const TensorSpec& spec, std::source_location where) {
  return graph_.add({.op = &kParameter,
                     .attrs = ParameterAttrs{-1},
                     .inputs = {},
                     .outputs = {spec},
                     .where = CallSite::of(where)});
}

Tensor Trace::parameter(int index, const TensorSpec& spec, std::source_location where, Device* device) {
  require_countable(spec, "input", where);
  return wrap(graph_.add({.op = &kParameter,
                          .attrs = ParameterAttrs{index},
                          .inputs = {},
                          .outputs = {spec},
                          .where = CallSite::of(where),
                          .device = !places() ? nullptr
                                    : device  ? device
                                              : &current_device(where)}));
}

Device* Trace::device_of(const Tensor& symbol) const {
  return graph_.nodes[static_cast<size_t>(symbol.impl()->symbol.node)].device;
}

Device* Trace::place_of(const Node& node) const {
  Device* const scoped = scoped_device();
  if (!places()) {
    require(scoped == entered_, ErrorCode::unsupported, node.where, node.op->name, ": a scope of device ",
            scoped ? scoped->name() : "", " was opened inside ",
            is_body() ? "a body of cond, while_loop or scan, which runs on one device as a whole; open it "
                        "around the loop or branch"
                      : "a function that runs as replicas, each of which runs on its own device as a whole; "
                        "take the scope away (of a layer: around where it was made)");
    return nullptr;
  }
  if (scoped) return scoped;
  InputPlace place;
  for (const Value v : node.inputs) place.add(graph_.node(v).device, graph_.spec(v).shape.rank());
  return place.device() ? place.device() : &current_device(node.where);
}

TensorList Trace::append(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs, SpecList specs,
                         std::source_location where) {
  // The position in the batch is the same everywhere in a program, so bodies get it from outside.
  if (&op == &kExampleOffset && is_body()) return outer_->append(op, inputs, attrs, std::move(specs), where);
  Node node{
      .op = &op, .attrs = attrs, .inputs = {}, .outputs = std::move(specs), .where = CallSite::of(where)};
  node.inputs.reserve(inputs.size());
  for (const Tensor& input : inputs) node.inputs.push_back(value_of(input, where));
  node.device = place_of(node);
  const auto outputs = static_cast<int32_t>(node.outputs.size());
  const Value first = graph_.add(std::move(node));
  TensorList result;
  for (int32_t i = 0; i < outputs; ++i) result.push_back(wrap({first.node, i}));
  return result;
}

Tensor Trace::constant(const TensorSpec& spec, double value, std::source_location where) {
  require_countable(spec, "constant", where);
  return wrap(graph_.add({.op = &kConstant,
                          .attrs = ConstantAttrs{value},
                          .inputs = {},
                          .outputs = {spec},
                          .where = CallSite::of(where)}));
}

Value Trace::value_of(const Tensor& tensor, std::source_location where) {
  const TensorImpl& impl = *tensor.impl();
  if (impl.symbol.trace == id_) return {impl.symbol.node, impl.symbol.output};
  if (is_body()) {
    const Symbol& symbol = impl.symbol;
    for (const Outside& known : outside_) {
      const TensorImpl& inside = *known.inside.impl();
      const Symbol& other = inside.symbol;
      if (symbol.trace == 0
              ? inside.id == impl.id
              : other.trace == symbol.trace && other.node == symbol.node && other.output == symbol.output)
        return known.parameter;
    }
    outer_->value_of(tensor, where);  // it must be known there
    const Value parameter = new_parameter(impl.spec, where);
    outside_.push_back({tensor, tensor, parameter, {}, false});
    noticed_(tensor);
    return parameter;
  }
  require(impl.symbol.trace == 0, ErrorCode::failed_precondition, where,
          "a tensor of another traced function was used here: values leave a traced function only as its "
          "results");
  for (const auto& [id, value] : captured_inputs_)
    if (id == impl.id) return value;
  const Value value = graph_.add({.op = &kCapturedInput,
                                  .attrs = CapturedInputAttrs{tensor},
                                  .inputs = {},
                                  .outputs = {impl.spec},
                                  .where = CallSite::of(where),
                                  .device = places() ? &impl.storage->device() : nullptr});
  captured_inputs_.emplace_back(impl.id, value);
  return value;
}

Tensor Trace::read(const Variable& variable, std::source_location where) {
  for (const auto& [known, value] : variables_)
    if (known.id() == variable.id()) return value;
  if (is_body()) {
    const Tensor outside = outer_->read(variable, where);
    const Value parameter = new_parameter(variable.spec(), where);
    const Tensor inside = wrap(parameter);
    variables_.emplace_back(variable, inside);
    outside_.push_back({outside, inside, parameter, variable, false});
    noticed_(inside);
    return inside;
  }
  const Tensor value = wrap(graph_.add({.op = &kVariable,
                                        .attrs = VariableAttrs{variable},
                                        .inputs = {},
                                        .outputs = {variable.spec()},
                                        .where = CallSite::of(where),
                                        .device = places() ? &variable.impl()->value.device() : nullptr}));
  variables_.emplace_back(variable, value);
  return value;
}

void Trace::assign(const Variable& variable, const Tensor& value) {
  if (is_body()) read(variable, std::source_location::current());  // its old value comes from outside
  const Value symbol = value_of(value, std::source_location::current());
  const auto update = std::find_if(graph_.updates.begin(), graph_.updates.end(),
                                   [&](const VariableUpdate& u) { return u.variable.id() == variable.id(); });
  if (update == graph_.updates.end())
    graph_.updates.push_back({variable, symbol});
  else
    update->value = symbol;
  // A node of its own, so that no tape takes what is read from now on for what was assigned.
  const Tensor current =
      append(kIdentity, {&value, 1}, {}, {value.spec()}, graph_.node(symbol).where).front();
  if (places())
    graph_.nodes[static_cast<size_t>(current.impl()->symbol.node)].device = &variable.impl()->value.device();
  for (auto& [known, held] : variables_)
    if (known.id() == variable.id()) {
      held = current;
      return;
    }
  variables_.emplace_back(variable, current);
}

int active_recorders() {
  return static_cast<int>(std::count_if(recorders.begin(), recorders.end(), [](const ActiveRecorder& active) {
    return active.depth == pause_depth;
  }));
}
bool has_recorders() { return active_recorders() > 0; }

void tell_recorders(const OpDef& op, const Attrs& attrs, std::span<const Tensor> inputs,
                    std::span<const Tensor> outputs) {
  // By index: a recorder may be pushed while another records.
  for (size_t i = 0; i < recorders.size(); ++i)
    if (recorders[i].depth == pause_depth) recorders[i].recorder->record(op, attrs, inputs, outputs);
}

int64_t Trace::next_collective(std::source_location where) {
  require(
      !is_body(), ErrorCode::unsupported, where,
      "all_reduce_sum: replicas cannot meet inside a body of cond, while_loop or scan, which each of them "
      "runs on its own; return the value from the body and sum it outside");
  return collectives_++;
}

Tensor Trace::effect() {
  if (effect_.defined()) return effect_;
  const TensorSpec spec{DType::boolean, {}};
  if (!is_body()) return constant(spec, 0, std::source_location::current());
  const Value parameter = new_parameter(spec, std::source_location::current());
  effect_ = wrap(parameter);
  outside_.push_back({outer_->effect(), effect_, parameter, {}, true});
  return effect_;
}

void Trace::set_effect(const Tensor& token) {
  if (!is_body()) {
    if (effect_.defined()) std::erase(graph_.roots, value_of(effect_, std::source_location::current()));
    graph_.roots.push_back(value_of(token, std::source_location::current()));
  }
  effect_ = token;
}

std::optional<Value> Trace::changed(const Outside& outside) const {
  if (outside.token) {
    const Symbol& symbol = effect_.impl()->symbol;
    return Value{symbol.node, symbol.output};
  }
  if (outside.variable.defined())
    for (const VariableUpdate& update : graph_.updates)
      if (update.variable.id() == outside.variable.id()) return update.value;
  return std::nullopt;
}

TensorList Trace::loop_indices() {
  TensorList indices = is_body() ? outer_->loop_indices() : TensorList{};
  if (kind_ != BodyKind::loop) return indices;
  if (!loop_index_) loop_index_ = new_parameter({DType::int64, {}}, std::source_location::current());
  indices.push_back(wrap(*loop_index_));
  return indices;
}

TensorList Trace::extend(const Tensor& output, const Attrs& attrs, const SpecList& more) {
  const Value value = value_of(output, std::source_location::current());
  Node& node = graph_.nodes[static_cast<size_t>(value.node)];
  node.attrs = attrs;
  TensorList added;
  for (const TensorSpec& spec : more) {
    node.outputs.push_back(spec);
    added.push_back(wrap({value.node, static_cast<int32_t>(node.outputs.size()) - 1}));
  }
  return added;
}

void Trace::count_runs(const Variable& counter) {
  if (is_body()) return outer_->count_runs(counter);
  const bool known = std::any_of(run_counters_.begin(), run_counters_.end(),
                                 [&](const Variable& v) { return v.id() == counter.id(); });
  if (!known) run_counters_.push_back(counter);
}

void Trace::finish() {
  const std::source_location where = std::source_location::current();
  for (const Variable& counter : run_counters_) counter.assign_add(constant(counter.spec(), 1, where), where);
}

void tell_recorders_of_read(const Variable& variable, const Tensor& value) {
  for (size_t i = 0; i < recorders.size(); ++i)
    if (recorders[i].depth == pause_depth) recorders[i].recorder->read(variable, value);
}

}  // namespace lockstep
