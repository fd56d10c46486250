#include <algorithm>
#include <map>

#include "compile/control_flow/control_flow_ops.h"
#include "graph/rewrite.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "ops/array/array.h"
#include "tensor/tensor_impl.h"

namespace lockstep::compile {
namespace {

std::pair<int, int> key(Value v) { return {v.node, v.output}; }

TensorSpec stacked(TensorSpec slice, int64_t length) {
  slice.shape.insert(0, length);
  return slice;
}

SpecList infer(const InferContext& c) {
  const auto& attrs = c.attrs<LoopAttrs>();
  const Graph& body = attrs.body->graph();
  SpecList specs;
  for (int64_t i = 0; i < attrs.carries; ++i) {
    specs.push_back(body.spec(body.outputs[static_cast<size_t>(i)]));
    c.check(specs.back() == c.inputs[static_cast<size_t>(i)], ErrorCode::internal, "carry ", i, " starts as ",
            c.inputs[static_cast<size_t>(i)], ", the body makes it ", specs.back());
  }
  if (attrs.condition) specs.push_back({DType::int64, {}});
  for (int64_t i = 0; i < attrs.num_stacked(); ++i)
    specs.push_back(stacked(body.spec(body.outputs[static_cast<size_t>(attrs.carries + i)]), attrs.length));
  for (const int64_t carry : attrs.histories)
    specs.push_back(stacked(specs[static_cast<size_t>(carry)], attrs.length + 1));
  return specs;
}

Cost cost(const InferContext& c, std::span<const TensorSpec>) {
  const auto& attrs = c.attrs<LoopAttrs>();
  Cost once = attrs.body->cost();
  if (attrs.condition) {
    const Cost more = attrs.condition->cost();
    once.flops += more.flops;
    once.bytes += more.bytes;
  }
  // Nobody knows how often a loop without a bound runs: it counts as one iteration.
  const int64_t times = attrs.length < 0 ? 1 : attrs.length;
  return {.flops = once.flops * times, .bytes = once.bytes * times};
}

// --- the gradient ------------------------------------------------------------------------------------------
//
// The backward pass is a loop in the other direction. It carries the gradients of the carries, gets the
// slices of what arrives at the stacked results, and returns slices of the elems' gradients. What it reads
// of the forward pass is stacked by that one: the node gets more outputs.

class LoopGradient {
 public:
  explicit LoopGradient(const GradContext& g)
      : g_(g), owner_(owner(g)), node_(g.out().impl()->symbol.node), attrs_(current_attrs()) {
    if (!attrs_.traced) {
      attrs_.traced = replay(*attrs_.body, Trace::BodyKind::loop);
      attrs_.results = attrs_.traced->outputs();
    }
    where_ = owner_.graph().nodes[static_cast<size_t>(node_)].where;
  }

  TensorList run() {
    {
      const TraceScope scope(body().trace());
      differentiate();
    }
    if (carry_results_.empty() && stacked_results_.empty() && terms_.empty())
      return TensorList(static_cast<size_t>(g_.num_inputs()));
    save_forward_values();
    emit_backward();
    return results();
  }

 private:
  struct Term {  // of the sum over all iterations of a captured input's gradient: one op on stacked values
    size_t slot;
    SumOverStack sum;
    Attrs attrs;
    std::vector<Value> factors;
    Shape shape;
  };

  static Trace& owner(const GradContext& g) {
    Trace* trace = g.out().symbolic() ? Trace::of(g.out()) : nullptr;
    require(trace != nullptr, ErrorCode::failed_precondition, std::source_location::current(),
            "the gradient of a loop is taken in the traced function in which the loop is");
    return *trace;
  }

  LoopAttrs current_attrs() const {
    const Node& node = owner_.graph().nodes[static_cast<size_t>(node_)];
    const auto& attrs = node.attrs.as<LoopAttrs>();
    require(attrs.length >= 0, ErrorCode::unsupported, node.where,
            "while_loop: the gradient of a loop in a traced function keeps the values of all its iterations, "
            "so their number must be bounded: while_loop(..., {.maximum_iterations = n})");
    return attrs;
  }

  TracedBody& body() const { return *attrs_.traced; }
  size_t carries() const { return static_cast<size_t>(attrs_.carries); }
  size_t elems() const { return static_cast<size_t>(attrs_.elems); }
  bool is_carry(size_t slot) const { return slot < carries(); }
  bool is_state(size_t slot) const {
    return slot < carries() && slot >= carries() - static_cast<size_t>(attrs_.states);
  }
  bool is_elem(size_t slot) const { return slot >= carries() && slot < carries() + elems(); }
  bool is_captured_input(size_t slot) const {
    return slot >= carries() + elems() &&
           slot < carries() + elems() + static_cast<size_t>(attrs_.captured_inputs);
  }
  const TensorSpec& spec(Value v) const { return body().trace().graph().spec(v); }
  Value value_of(const Tensor& t) { return body().trace().value_of(t, where_); }

  // A parameter of the backward body.
  Value parameter(const TensorSpec& parameter_spec) {
    return value_of(body().trace().parameter(-1, parameter_spec, where_));
  }
  Tensor symbol(Value v) { return body().trace().wrap(v); }

  // --- inside the body's trace -----------------------------------------------------------------------------

  void differentiate() {
    std::vector<Value> targets;
    TensorList arriving;
    std::map<int, int> given;  // output of the node to output of this record
    for (int i = 0; i < g_.num_outputs(); ++i)
      if (g_.has_dout(i)) given[g_.out(i).impl()->symbol.output] = i;
    std::vector<bool> wanted(body().slots.size(), false);
    for (size_t slot = 0; slot < wanted.size(); ++slot) {
      const Value v = body().slots[slot].value;
      if (!v.valid() || !is_floating(spec(v).dtype)) continue;
      if (is_state(slot)) {
        require(!needs(slot), ErrorCode::unsupported, where_,
                "a variable that the body of a loop assigns has no gradient there; read it outside of the "
                "body, or assign it after the loop");
        continue;
      }
      wanted[slot] = is_carry(slot) || ((is_elem(slot) || is_captured_input(slot)) && needs(slot));
    }
    for (size_t i = 0; i < carries(); ++i) {
      if (!is_floating(spec(attrs_.results[i]).dtype) || is_state(i)) continue;
      carried_.push_back(i);
      carry_parameters_.push_back(parameter(spec(attrs_.results[i])));
      const auto it = given.find(static_cast<int>(i));
      carry_inputs_.push_back(it == given.end() ? Tensor() : g_.dout(it->second));
      targets.push_back(attrs_.results[i]);
      arriving.push_back(symbol(carry_parameters_.back()));
    }
    for (size_t k = carries(); k < attrs_.results.size(); ++k) {
      const auto it =
          given.find(static_cast<int>(attrs_.first_stacked() + static_cast<int64_t>(k - carries())));
      if (it == given.end()) continue;
      const Value v = attrs_.results[k];
      const OpDef& op = *body().trace().graph().node(v).op;
      require(k < emitted_results() || !has_bodies(op), ErrorCode::unsupported, where_,
              "second derivatives through a loop or branch inside the body of a loop are not supported");
      elem_parameters_.push_back(parameter(spec(v)));
      elem_inputs_.push_back(g_.dout(it->second));
      targets.push_back(v);
      arriving.push_back(symbol(elem_parameters_.back()));
    }
    gradients_ = body().gradients(targets, arriving, wanted);

    for (size_t i = 0; i < carried_.size(); ++i) {
      const Tensor& found = gradients_[carried_[i]];
      carry_results_.push_back(value_of(found.defined() ? found : fill(spec(carry_parameters_[i]), 0)));
    }
    for (size_t slot = 0; slot < wanted.size(); ++slot) {
      if (!gradients_[slot].defined() || !wanted[slot]) continue;
      if (is_elem(slot)) {
        stacked_slots_.push_back(slot);
        stacked_results_.push_back(value_of(gradients_[slot]));
      } else if (is_captured_input(slot)) {
        sum_over_iterations(slot);
      }
    }
  }

  // Results that the caller asked for; those after them were added for gradients.
  size_t emitted_results() const { return body().outputs().size() + static_cast<size_t>(attrs_.states); }

  bool needs(size_t slot) const {
    return static_cast<int>(slot) < g_.num_inputs() && g_.needs(static_cast<int>(slot));
  }

  // The gradient of what all iterations share is a sum over them. Where an iteration's part is a product
  // or a sum itself, one op on the stacked factors computes it all; the rest is carried along.
  void sum_over_iterations(size_t slot) {
    Tensor rest;
    std::vector<Value> parts = {value_of(gradients_[slot])};
    while (!parts.empty()) {
      const Value v = parts.back();
      parts.pop_back();
      const Node& node = body().trace().graph().node(v);
      if (node.op->traits.adds && spec(node.inputs[0]) == spec(v) && spec(node.inputs[1]) == spec(v) &&
          !body().is_forward(v)) {
        parts.insert(parts.end(), node.inputs.begin(), node.inputs.end());
      } else if (const SumOverStack sum = sum_over_stack(node);
                 sum && attrs_.length > 0 && !body().is_forward(v)) {
        terms_.push_back({slot, sum, node.attrs, node.inputs, spec(v).shape});
      } else {
        const Tensor part = symbol(v);
        rest = rest.defined() ? rest + part : part;
      }
    }
    if (!rest.defined()) return;
    carried_.push_back(slot);
    carry_parameters_.push_back(parameter(rest.spec()));
    carry_inputs_.emplace_back();
    carry_results_.push_back(value_of(symbol(carry_parameters_.back()) + rest));
  }

  // Null where the iterations' parts have to be summed one by one.
  SumOverStack sum_over_stack(const Node& node) const {
    if (!node.op->sum_over_stack) return nullptr;
    std::vector<bool> captured_inputs(body().slots.size(), false);
    for (size_t i = 0; i < captured_inputs.size(); ++i) captured_inputs[i] = is_captured_input(i);
    for (const Value v : node.inputs)
      if (body().depends_only_on(v, captured_inputs)) return nullptr;
    SpecList inputs;
    for (const Value v : node.inputs) inputs.push_back(spec(v));
    return node.op->sum_over_stack(node.attrs, inputs);
  }

  // --- in the trace of the loop ----------------------------------------------------------------------------

  void save_forward_values() {
    const size_t slots = body().slots.size();
    std::vector<bool> saved_slots(slots, false), invariant(slots, false);
    for (size_t i = 0; i < slots; ++i) {
      invariant[i] = is_captured_input(i);
      saved_slots[i] = !is_captured_input(i) && !is_elem(i);  // carries, and the number of the iteration
    }
    for (const Term& term : terms_)
      for (const Value v : term.factors) need_stack(v, saved_slots);
    std::vector<Value> all = carry_results_;
    all.insert(all.end(), stacked_results_.begin(), stacked_results_.end());
    reads_ = body().reads_of(all, saved_slots, [&](Value v) { return body().depends_only_on(v, invariant); });
    for (const Value v : factors_saved_)
      if (std::find(reads_.saved.begin(), reads_.saved.end(), v) == reads_.saved.end())
        reads_.saved.push_back(v);

    SpecList more;
    std::vector<size_t> outputs;  // of the body, by saved value
    for (const Value v : reads_.saved) {
      auto it = std::find(attrs_.results.begin() + attrs_.carries, attrs_.results.end(), v);
      if (it == attrs_.results.end()) {
        attrs_.results.push_back(v);
        more.push_back(stacked(spec(v), attrs_.length));
        it = attrs_.results.end() - 1;
      }
      outputs.push_back(static_cast<size_t>(it - attrs_.results.begin()));
    }
    attrs_.body = body().graph_of(attrs_.results);
    const TensorList added = owner_.extend(g_.out(), attrs_, more);
    // Whoever records this gradient learns where the values come from.
    if (!added.empty()) {
      TensorList inputs;
      for (int i = 0; i < g_.num_inputs(); ++i) inputs.push_back(g_.in(i));
      tell_recorders(kLoop, attrs_, inputs, added);
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      stacks_[key(reads_.saved[i])] =
          output(attrs_.first_stacked() + static_cast<int64_t>(outputs[i]) - attrs_.carries);
  }

  // Where the values of a factor in all iterations will be: an elem, or saved by the forward or the
  // backward pass.
  void need_stack(Value v, const std::vector<bool>& saved_slots) {
    const int slot = body().slot_with(v);
    if (slot >= 0 && is_elem(static_cast<size_t>(slot))) {
      stacks_[key(v)] = g_.in(slot);
    } else if (std::find(elem_parameters_.begin(), elem_parameters_.end(), v) != elem_parameters_.end()) {
      const auto at =
          std::find(elem_parameters_.begin(), elem_parameters_.end(), v) - elem_parameters_.begin();
      stacks_[key(v)] = elem_inputs_[static_cast<size_t>(at)];
    } else if (slot >= 0 ? static_cast<bool>(saved_slots[static_cast<size_t>(slot)])
                         : body().is_forward(v) && !body().trace().graph().node(v).op->view) {
      factors_saved_.push_back(v);
    } else if (std::find(stacked_results_.begin(), stacked_results_.end(), v) == stacked_results_.end()) {
      stacked_results_.push_back(v);
    }
  }

  Tensor output(int64_t index) const { return owner_.wrap({node_, static_cast<int32_t>(index)}); }

  void emit_backward() {
    LoopAttrs backward;
    TensorList inputs;
    std::vector<Value> parameters = carry_parameters_;
    for (size_t i = 0; i < carry_inputs_.size(); ++i)
      inputs.push_back(carry_inputs_[i].defined() ? carry_inputs_[i] : fill(spec(carry_parameters_[i]), 0));
    backward.carries = static_cast<int64_t>(inputs.size());
    const auto add_input = [&](Value v, const Tensor& input) {
      parameters.push_back(v);
      inputs.push_back(input);
    };
    for (size_t i = 0; i < elem_parameters_.size(); ++i) add_input(elem_parameters_[i], elem_inputs_[i]);
    for (const Value v : reads_.saved) add_input(v, stacks_.at(key(v)));
    for (size_t slot = 0; slot < reads_.slots.size(); ++slot)
      if (reads_.slots[slot] && is_elem(slot))
        add_input(body().slots[slot].value, g_.in(static_cast<int>(slot)));
    backward.elems = static_cast<int64_t>(inputs.size()) - backward.carries;
    for (size_t slot = 0; slot < reads_.slots.size(); ++slot)
      if (reads_.slots[slot] && is_captured_input(slot))
        add_input(body().slots[slot].value, g_.in(static_cast<int>(slot)));
    for (const Trace::Outside& outside : reads_.outside) add_input(outside.parameter, outside.value);
    backward.captured_inputs = static_cast<int64_t>(inputs.size()) - backward.carries - backward.elems;
    backward.length = attrs_.length;
    backward.reverse = !attrs_.reverse;
    backward.counted = attrs_.condition || attrs_.counted;
    if (backward.counted)
      inputs.push_back(attrs_.condition ? output(attrs_.carries) : g_.in(g_.num_inputs() - 1));
    parameters.emplace_back();  // the number of the iteration: not read
    std::vector<Value> all = carry_results_;
    all.insert(all.end(), stacked_results_.begin(), stacked_results_.end());
    backward.body =
        std::make_shared<BodyGraph>(extract(body().trace().graph(), all, parameters), parameters.size());
    outputs_ = emit(kLoop, inputs, backward, where_);
    for (size_t i = 0; i < stacked_results_.size(); ++i)
      stacks_[key(stacked_results_[i])] = outputs_[carry_results_.size() + i];
  }

  TensorList results() {
    TensorList result(static_cast<size_t>(g_.num_inputs()));
    for (size_t i = 0; i < carried_.size(); ++i) result[carried_[i]] = outputs_[i];
    for (size_t i = 0; i < stacked_slots_.size(); ++i)
      result[stacked_slots_[i]] = outputs_[carry_results_.size() + i];
    for (const Term& term : terms_) {
      std::vector<TensorArg> stacks;
      for (const Value v : term.factors) stacks.emplace_back(stacks_.at(key(v)), where_);
      const Tensor sum = term.sum(term.attrs, stacks, term.shape);
      result[term.slot] = result[term.slot].defined() ? result[term.slot] + sum : sum;
    }
    return result;
  }

  const GradContext& g_;
  Trace& owner_;
  int32_t node_;
  LoopAttrs attrs_;
  std::source_location where_;

  TensorList gradients_;                 // by slot
  std::vector<size_t> carried_;          // slots whose gradient the backward pass carries
  std::vector<Value> carry_parameters_;  // its carries: parameter, first value (undefined: zeros), next value
  TensorList carry_inputs_;
  std::vector<Value> carry_results_;
  std::vector<Value> elem_parameters_;  // what arrives at stacked results
  TensorList elem_inputs_;
  std::vector<size_t> stacked_slots_;  // elems whose gradient it stacks
  std::vector<Value> stacked_results_;
  std::vector<Term> terms_;
  std::vector<Value> factors_saved_;
  std::map<std::pair<int, int>, Tensor> stacks_;  // a value of the body in all iterations
  TracedBody::Reads reads_;
  TensorList outputs_;  // of the backward loop
};

TensorList grad(const GradContext& g) { return LoopGradient(g).run(); }

}  // namespace

constinit const OpDef kLoop{
    .name = "loop", .min_inputs = 0, .max_inputs = -1, .infer = infer, .grad = grad, .cost = cost};

Graph share_histories(const Graph& graph) {
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int id = static_cast<int>(i);
    Node node = rewriter.mapped(id);
    if (node.op != &kLoop || node.attrs.as<LoopAttrs>().length < 0) {
      rewriter.keep(id);
      continue;
    }
    auto attrs = node.attrs.as<LoopAttrs>();
    Graph body = attrs.body->graph();
    const auto carries = static_cast<size_t>(attrs.carries);
    struct Shared {
      size_t history;
      bool after;  // the value that an iteration leaves; else the one it starts with
    };
    std::vector<std::optional<Shared>> shared(body.outputs.size());
    for (size_t k = carries; k < body.outputs.size(); ++k)
      for (size_t j = 0; j < carries && !shared[k]; ++j) {
        const Node& source = body.node(body.outputs[k]);
        const bool before =
            source.op == &kParameter && source.attrs.as<ParameterAttrs>().index == static_cast<int64_t>(j);
        if (!before && body.outputs[k] != body.outputs[j]) continue;
        auto& all = attrs.histories;
        auto at = std::find(all.begin(), all.end(), static_cast<int64_t>(j));
        if (at == all.end()) at = all.insert(at, static_cast<int64_t>(j));
        shared[k] = Shared{static_cast<size_t>(at - all.begin()), !before};
      }
    if (attrs.histories.empty()) {
      rewriter.keep(id);
      continue;
    }
    std::vector<Value> results;
    SpecList specs(node.outputs.begin(), node.outputs.begin() + attrs.first_stacked());
    for (size_t k = 0; k < body.outputs.size(); ++k) {
      if (shared[k]) continue;
      results.push_back(body.outputs[k]);
      if (k >= carries)
        specs.push_back(node.outputs[static_cast<size_t>(attrs.first_stacked()) + k - carries]);
    }
    const size_t first_history = specs.size();
    for (const int64_t j : attrs.histories)
      specs.push_back(stacked(node.outputs[static_cast<size_t>(j)], attrs.length + 1));
    body.outputs = results;
    attrs.body = std::make_shared<BodyGraph>(std::move(body), attrs.body->num_parameters());
    attrs.traced = nullptr;
    attrs.results.clear();
    node.outputs = specs;
    const bool reverse = attrs.reverse;
    const auto first_stacked = static_cast<size_t>(attrs.first_stacked());
    const std::source_location where = node.where;
    Device* const device = node.device;
    node.attrs = std::move(attrs);
    const Value added = rewriter.add(std::move(node));
    for (size_t k = 0; k < first_stacked; ++k)
      rewriter.map({id, static_cast<int32_t>(k)}, {added.node, static_cast<int32_t>(k)});
    auto next = static_cast<int32_t>(first_stacked);
    for (size_t k = carries; k < shared.size(); ++k) {
      const Value old{id, static_cast<int32_t>(first_stacked + k - carries)};
      if (!shared[k]) {
        rewriter.map(old, {added.node, next++});
        continue;
      }
      const Value history{added.node, static_cast<int32_t>(first_history + shared[k]->history)};
      const TensorSpec& spec = graph.spec(old);
      Node slice = slice_of_rows(history, shared[k]->after != reverse ? 1 : 0, spec, where);
      slice.device = device;
      rewriter.map(old, rewriter.add(std::move(slice)));
    }
  }
  return rewriter.finish();
}

}  // namespace lockstep::compile
