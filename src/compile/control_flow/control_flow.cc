#include "lockstep/compile/control_flow.h"

#include <algorithm>
#include <numeric>

#include "compile/control_flow/control_flow_ops.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"

namespace lockstep {
namespace {

using compile::CondAttrs;
using compile::kCond;
using compile::kLoop;
using compile::LoopAttrs;
using compile::TracedBody;
using Outside = Trace::Outside;

void check_predicate(const Tensor& pred, const char* op, std::source_location where) {
  require(pred.defined() && pred.spec() == TensorSpec{DType::boolean, {}}, ErrorCode::invalid_argument, where,
          op, ": the condition must be a boolean scalar, received ",
          pred.defined() ? detail::concat(pred.spec()) : "none");
}

void check_defined(std::span<const Tensor> tensors, const char* op, const char* what,
                   std::source_location where) {
  for (size_t i = 0; i < tensors.size(); ++i)
    require(tensors[i].defined(), ErrorCode::invalid_argument, where, op, ": ", what, " ", i, " is none");
}

void check_carry(std::span<const TensorSpec> before, std::span<const Tensor> after, const char* op,
                 std::source_location where) {
  require(before.size() == after.size(), ErrorCode::invalid_argument, where, op, ": the body was given ",
          before.size(), " values to carry and returned ", after.size());
  check_defined(after, op, "the body's result", where);
  for (size_t i = 0; i < before.size(); ++i)
    require(after[i].spec() == before[i],
            after[i].dtype() == before[i].dtype ? ErrorCode::shape_mismatch : ErrorCode::dtype_mismatch,
            where, op, ": carried value ", i, " was ", before[i], " and became ", after[i].spec(),
            "; it must keep its dtype and shape");
}

SpecList specs_of(std::span<const Tensor> tensors) {
  SpecList specs;
  for (const Tensor& t : tensors) specs.push_back(t.spec());
  return specs;
}

bool is_state(Trace& trace, const Outside& outside) { return trace.changed(outside).has_value(); }

// What the op leaves in a variable that its bodies assign, or as the token of their effects.
void set_state(const Outside& outside, const Tensor& value) {
  if (outside.token)
    Trace::current()->set_effect(value);
  else
    outside.variable.assign(value);
}

// Makes the node of a loop whose body has been traced with the explicit carries and elems as parameters;
// returns its outputs but for the states.
TensorList emit_loop(std::shared_ptr<TracedBody> body, const TracedBody* condition, TensorList initial,
                     const TensorList& elems, int64_t length, bool reverse, std::source_location where) {
  LoopAttrs attrs;
  Trace& trace = body->trace();
  const size_t carries = initial.size();
  const std::vector<Outside> outside = trace.outside();
  const auto& parameters = body->parameters();
  std::vector<Outside> states;
  TensorList captured_inputs;
  std::vector<TracedBody::Slot> captured_slots;
  for (size_t i = 0; i < carries; ++i) body->slots.push_back(body->slot_of(parameters[i]));
  attrs.results.assign(body->outputs().begin(),
                       body->outputs().begin() + static_cast<std::ptrdiff_t>(carries));
  for (const Outside& o : outside) {
    if (is_state(trace, o)) {
      states.push_back(o);
      body->slots.push_back({o.inside, o.parameter});
      attrs.results.push_back(*trace.changed(o));
      initial.push_back(o.value);
    } else {
      captured_inputs.push_back(o.value);
      captured_slots.push_back({o.inside, o.parameter});
    }
  }
  attrs.states = static_cast<int64_t>(states.size());
  attrs.carries = static_cast<int64_t>(initial.size());
  attrs.elems = static_cast<int64_t>(elems.size());
  attrs.captured_inputs = static_cast<int64_t>(captured_inputs.size());
  attrs.length = length;
  attrs.reverse = reverse;
  for (size_t i = 0; i < elems.size(); ++i) body->slots.push_back(body->slot_of(parameters[carries + i]));
  body->slots.insert(body->slots.end(), captured_slots.begin(), captured_slots.end());
  body->slots.push_back({{}, trace.loop_index().value_or(Value{})});
  attrs.results.insert(attrs.results.end(), body->outputs().begin() + static_cast<std::ptrdiff_t>(carries),
                       body->outputs().end());
  attrs.body = body->graph_of(attrs.results);
  attrs.traced = std::move(body);

  TensorList inputs = initial;
  inputs.insert(inputs.end(), elems.begin(), elems.end());
  inputs.insert(inputs.end(), captured_inputs.begin(), captured_inputs.end());
  if (condition) {
    attrs.condition = condition->graph_of(condition->outputs());
    for (const Outside& o : const_cast<TracedBody*>(condition)->trace().outside()) inputs.push_back(o.value);
  }
  TensorList outputs = emit(kLoop, inputs, attrs, where);
  for (size_t i = 0; i < states.size(); ++i) set_state(states[i], outputs[carries + i]);
  outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(carries),
                outputs.begin() + static_cast<std::ptrdiff_t>(attrs.first_stacked()));
  return outputs;
}

Tensor slice_of(const Tensor& elems, int64_t i, std::source_location where) {
  Dims begin = Dims::filled(elems.rank(), 0);
  Dims size = elems.shape();
  begin[0] = i;
  size[0] = 1;
  Shape shape = elems.shape();
  shape.erase(0);
  return reshape(TensorArg(slice(TensorArg(elems, where), begin, size), where), shape);
}

Tensor stack(const TensorList& slices, std::source_location where) {
  TensorList rows;
  for (const Tensor& slice : slices) rows.push_back(expand_dims(TensorArg(slice, where), 0));
  return concat(rows, 0, where);
}

}  // namespace

// --- cond --------------------------------------------------------------------------------------------------

namespace {

TensorList traced_cond(const Tensor& pred, const Branch& then_fn, const Branch& else_fn,
                       std::source_location where) {
  CondAttrs attrs;
  const std::array<const Branch*, 2> functions = {&then_fn, &else_fn};
  for (size_t b = 0; b < 2; ++b)
    attrs.traced[b] = std::make_shared<TracedBody>(
        Trace::BodyKind::branch, SpecList{}, [&](std::span<const Tensor>) { return (*functions[b])(); },
        "cond", where);
  const auto results = [&](size_t b) {
    SpecList specs;
    for (const Value v : attrs.traced[b]->outputs())
      specs.push_back(attrs.traced[b]->trace().graph().spec(v));
    return specs;
  };
  const SpecList specs = results(0), others = results(1);
  require(specs.size() == others.size(), ErrorCode::invalid_argument, where, "cond: then_fn returned ",
          specs.size(), " tensors, else_fn returned ", others.size());
  for (size_t i = 0; i < specs.size(); ++i)
    require(specs[i] == others[i],
            specs[i].dtype == others[i].dtype ? ErrorCode::shape_mismatch : ErrorCode::dtype_mismatch, where,
            "cond: result ", i, " of then_fn is ", specs[i], ", that of else_fn is ", others[i]);

  // One input for everything that either branch uses.
  Trace& trace = *Trace::current();
  std::vector<Outside> all;
  std::vector<std::array<TracedBody::Slot, 2>> slots;
  const auto same = [&](const Outside& a, const Outside& b) {
    if (a.token || b.token) return a.token && b.token;
    if (a.variable.defined() || b.variable.defined())
      return a.variable.defined() && b.variable.defined() && a.variable.id() == b.variable.id();
    return trace.value_of(a.value, where) == trace.value_of(b.value, where);
  };
  for (size_t b = 0; b < 2; ++b)
    for (const Outside& o : attrs.traced[b]->trace().outside()) {
      const auto at = static_cast<size_t>(
          std::find_if(all.begin(), all.end(), [&](const Outside& known) { return same(known, o); }) -
          all.begin());
      if (at == all.size()) {
        all.push_back(o);
        slots.emplace_back();
      }
      // A tensor may come in under several handles, and a constant of the outer trace twice.
      if (slots[at][b].value.valid()) {
        all.push_back(o);
        slots.emplace_back();
        slots.back()[b] = {o.inside, o.parameter};
      } else {
        slots[at][b] = {o.inside, o.parameter};
      }
    }
  for (size_t b = 0; b < 2; ++b) attrs.results[b] = attrs.traced[b]->outputs();
  std::vector<Outside> states;
  for (size_t i = 0; i < all.size(); ++i) {
    std::array<std::optional<Value>, 2> changed;
    for (size_t b = 0; b < 2; ++b)
      for (const Outside& o : attrs.traced[b]->trace().outside())
        if (same(o, all[i]) && (o.token || o.variable.defined()))
          changed[b] = attrs.traced[b]->trace().changed(o);
    if (!changed[0] && !changed[1]) continue;
    states.push_back(all[i]);
    for (size_t b = 0; b < 2; ++b) {
      if (!slots[i][b].value.valid())
        slots[i][b] =
            attrs.traced[b]->slot_of(attrs.traced[b]->trace().parameter(-1, all[i].value.spec(), where));
      attrs.results[b].push_back(changed[b].value_or(slots[i][b].value));
    }
  }
  attrs.states = static_cast<int64_t>(states.size());
  attrs.emitted = static_cast<int64_t>(attrs.results[0].size());
  TensorList inputs = {pred};
  for (const Outside& o : all) inputs.push_back(o.value);
  for (size_t b = 0; b < 2; ++b) {
    for (const auto& slot : slots) attrs.traced[b]->slots.push_back(slot[b]);
    attrs.bodies[b] = attrs.traced[b]->graph_of(attrs.results[b]);
  }
  TensorList outputs = emit(kCond, inputs, attrs, where);
  for (size_t i = 0; i < states.size(); ++i) set_state(states[i], outputs[specs.size() + i]);
  outputs.resize(specs.size());
  return outputs;
}

}  // namespace

TensorList cond(const TensorArg& pred, const Branch& then_fn, const Branch& else_fn) {
  check_predicate(pred.tensor(), "cond", pred.where());
  if (Trace::current()) return traced_cond(pred.tensor(), then_fn, else_fn, pred.where());
  return pred.tensor().item<bool>(pred.where()) ? then_fn() : else_fn();
}

// --- loops -------------------------------------------------------------------------------------------------

TensorList while_loop(const std::function<Tensor(std::span<const Tensor>)>& cond_fn,
                      const std::function<TensorList(std::span<const Tensor>)>& body_fn, TensorList initial,
                      const WhileOptions& options, std::source_location where) {
  constexpr const char* kName = "while_loop";
  check_defined(initial, kName, "initial value", where);
  const SpecList specs = specs_of(initial);
  const int64_t bound = std::max<int64_t>(options.maximum_iterations, -1);
  if (!Trace::current()) {
    const auto goes_on = [&] {
      const Tensor pred = cond_fn(initial);
      check_predicate(pred, kName, where);
      return pred.item<bool>(where);
    };
    for (int64_t i = 0; (bound < 0 || i < bound) && goes_on(); ++i) {
      initial = body_fn(initial);
      check_carry(specs, initial, kName, where);
    }
    return initial;
  }
  auto body = std::make_shared<TracedBody>(
      Trace::BodyKind::loop, specs,
      [&](std::span<const Tensor> values) {
        TensorList next = body_fn(values);
        check_carry(specs, next, kName, where);
        return next;
      },
      kName, where);
  TracedBody condition(
      Trace::BodyKind::branch, specs,
      [&](std::span<const Tensor> values) {
        const Tensor pred = cond_fn(values);
        check_predicate(pred, kName, where);
        return TensorList{pred};
      },
      kName, where);
  for (const Tensor& parameter : condition.parameters())
    condition.slots.push_back(condition.slot_of(parameter));
  // The body's states are carries too: the condition sees what the last iteration left.
  for (const Outside& o : body->trace().outside())
    if (is_state(body->trace(), o)) {
      TracedBody::Slot slot;
      for (const Outside& seen : condition.trace().outside())
        if (seen.token == o.token && seen.variable.defined() && o.variable.defined() &&
            seen.variable.id() == o.variable.id())
          slot = {seen.inside, seen.parameter};
      condition.slots.push_back(slot);
    }
  for (const Outside& o : condition.trace().outside()) {
    require(!is_state(condition.trace(), o), ErrorCode::unsupported, where,
            "while_loop: cond_fn assigned a variable or printed; do so in body_fn");
    // What is a carry already must not be a parameter twice.
    condition.slots.push_back(
        condition.slot_with(o.parameter) >= 0 ? TracedBody::Slot{} : TracedBody::Slot{o.inside, o.parameter});
  }
  return emit_loop(std::move(body), &condition, std::move(initial), {}, bound, false, where);
}

ScanResult scan(const std::function<ScanResult(std::span<const Tensor> carry, std::span<const Tensor> x)>& fn,
                TensorList initial, TensorList elems, const ScanOptions& options,
                std::source_location where) {
  constexpr const char* kName = "scan";
  check_defined(initial, kName, "initial value", where);
  check_defined(elems, kName, "elems", where);
  require(!elems.empty() || options.length >= 0, ErrorCode::invalid_argument, where,
          "scan: without elems the number of iterations must be given: {.length = n}");
  const int64_t length = elems.empty() ? options.length : elems[0].rank() > 0 ? elems[0].shape()[0] : -1;
  for (const Tensor& elem : elems)
    require(elem.rank() > 0 && elem.shape()[0] == length && (options.length < 0 || options.length == length),
            ErrorCode::shape_mismatch, where,
            "scan: elems must have one slice for each iteration in their "
            "first dimension, received ",
            elem.spec(), " where ", options.length >= 0 ? options.length : length, " are expected");
  const SpecList specs = specs_of(initial);
  const size_t carries = initial.size();
  size_t num_ys = 0;
  const auto step = [&](std::span<const Tensor> carry, std::span<const Tensor> x) {
    ScanResult result = fn(carry, x);
    check_carry(specs, result.carry, kName, where);
    check_defined(result.ys, kName, "y", where);
    num_ys = result.ys.size();
    return result;
  };
  if (Trace::current() || length == 0) {
    // Nothing runs in a loop of no iterations, but the results have dtypes and shapes.
    std::optional<Trace> alone;
    if (!Trace::current()) alone.emplace();
    SpecList parameters = specs;
    for (const Tensor& elem : elems) {
      Shape shape = elem.shape();
      shape.erase(0);
      parameters.push_back({elem.dtype(), shape});
    }
    auto body = std::make_shared<TracedBody>(
        Trace::BodyKind::loop, parameters,
        [&](std::span<const Tensor> values) {
          ScanResult result = step(values.first(carries), values.subspan(carries));
          result.carry.insert(result.carry.end(), result.ys.begin(), result.ys.end());
          return result.carry;
        },
        kName, where);
    if (alone) {
      ScanResult empty{.carry = initial, .ys = {}};
      for (size_t i = 0; i < num_ys; ++i) {
        TensorSpec spec = body->trace().graph().spec(body->outputs()[carries + i]);
        spec.shape.insert(0, 0);
        empty.ys.push_back(Tensor::empty(spec.dtype, spec.shape));
      }
      return empty;
    }
    TensorList outputs =
        emit_loop(std::move(body), nullptr, std::move(initial), elems, length, options.reverse, where);
    ScanResult result;
    result.carry.assign(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(carries));
    result.ys.assign(outputs.begin() + static_cast<std::ptrdiff_t>(carries), outputs.end());
    return result;
  }
  std::vector<TensorList> slices;  // by y
  for (int64_t k = 0; k < length; ++k) {
    const int64_t position = options.reverse ? length - 1 - k : k;
    TensorList x;
    for (const Tensor& elem : elems) x.push_back(slice_of(elem, position, where));
    ScanResult result = step(initial, x);
    initial = std::move(result.carry);
    slices.resize(result.ys.size());
    for (size_t i = 0; i < result.ys.size(); ++i) slices[i].push_back(result.ys[i]);
  }
  ScanResult result{.carry = std::move(initial), .ys = {}};
  for (TensorList& of_one : slices) {
    if (options.reverse) std::reverse(of_one.begin(), of_one.end());
    result.ys.push_back(stack(of_one, where));
  }
  return result;
}

TensorList fori_loop(int64_t lower, int64_t upper,
                     const std::function<TensorList(const Tensor& i, std::span<const Tensor>)>& fn,
                     TensorList initial, std::source_location where) {
  std::vector<int64_t> numbers(static_cast<size_t>(std::max<int64_t>(upper - lower, 0)));
  std::iota(numbers.begin(), numbers.end(), lower);
  const Tensor all = Tensor::from(numbers, {static_cast<int64_t>(numbers.size())}, where);
  return scan([&](std::span<const Tensor> values,
                  std::span<const Tensor> i) { return ScanResult{.carry = fn(i[0], values), .ys = {}}; },
              std::move(initial), {all}, {}, where)
      .carry;
}

TensorList map_fn(const std::function<TensorList(std::span<const Tensor>)>& fn, const TensorList& elems,
                  std::source_location where) {
  return scan([&](std::span<const Tensor>,
                  std::span<const Tensor> x) { return ScanResult{.carry = {}, .ys = fn(x)}; },
              {}, elems, {}, where)
      .ys;
}

Tensor foldl(const std::function<Tensor(const Tensor& sum, const Tensor& x)>& fn, const Tensor& initial,
             const Tensor& elems, std::source_location where) {
  return scan([&](std::span<const Tensor> sum,
                  std::span<const Tensor> x) { return ScanResult{.carry = {fn(sum[0], x[0])}, .ys = {}}; },
              {initial}, {elems}, {}, where)
      .carry.front();
}

}  // namespace lockstep
