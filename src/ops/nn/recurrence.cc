#include "ops/nn/recurrence.h"

#include <algorithm>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

void check_spec(const InferContext& c, int input, const char* name, const TensorSpec& wanted) {
  if (input < 0) return;
  const TensorSpec& received = c.inputs[static_cast<size_t>(input)];
  c.check(received.dtype == wanted.dtype, ErrorCode::dtype_mismatch, name, " must be ", wanted, ", received ",
          received);
  c.check(received.shape == wanted.shape, ErrorCode::shape_mismatch, name, " must be ", wanted, ", received ",
          received);
}

void check_count(const InferContext& c, int count) {
  c.check(static_cast<int>(c.inputs.size()) == count, ErrorCode::invalid_argument, "takes ", count,
          " inputs, received ", c.inputs.size());
}

SpecList infer(const InferContext& c) {
  const auto& attrs = c.attrs<RecurrenceAttrs>();
  check_count(c, attrs.inputs());
  const Shape& x = c.shape(0);
  const DType dtype = c.dtype(0);
  c.check(is_floating(dtype), ErrorCode::dtype_mismatch, "takes floating-point tensors, received ",
          c.inputs[0], "; cast() it first");
  c.check(x.rank() == 3 && x[0] > 0, ErrorCode::shape_mismatch,
          "x is (time, batch, gates * units) of one step or more, received ", x);
  c.check(x[2] > 0 && x[2] % attrs.gates() == 0, ErrorCode::shape_mismatch, "the last dimension of x is ",
          attrs.gates(), " gates of the same units, received ", x);
  const int64_t time = x[0], batch = x[1], units = x[2] / attrs.gates();
  const TensorSpec state{dtype, {batch, units}}, states{dtype, {time, batch, units}};
  check_spec(c, 1, "the recurrent kernel", {dtype, {units, x[2]}});
  check_spec(c, 2, "the first state", state);
  check_spec(c, attrs.cell_input(), "the first cell state", state);
  check_spec(c, attrs.bias_input(), "the bias", {dtype, {x[2]}});
  check_spec(c, attrs.mask_input(), "the mask", {DType::boolean, {time, batch}});
  SpecList outputs = {states, state};
  if (attrs.lstm()) outputs.insert(outputs.end(), {states, state});
  if (attrs.kept_parts() > 0) outputs.push_back({dtype, {time, batch, attrs.kept_parts() * units}});
  return outputs;
}

SpecList infer_grad(const InferContext& c) {
  const auto& attrs = c.attrs<RecurrenceAttrs>();
  check_count(c, attrs.grad_inputs());
  const Shape &kernel = c.shape(0), &s = c.shape(2);
  const DType dtype = c.dtype(0);
  c.check(is_floating(dtype), ErrorCode::dtype_mismatch, "takes floating-point tensors, received ",
          c.inputs[0], "; cast() it first");
  c.check(s.rank() == 3 && s[0] > 0 && s[2] > 0, ErrorCode::shape_mismatch,
          "the states are (time, batch, units) of one step or more, received ", s);
  const int64_t time = s[0], batch = s[1], units = s[2];
  const TensorSpec state{dtype, {batch, units}}, states{dtype, s};
  const TensorSpec kept{dtype, {time, batch, attrs.kept_parts() * units}};
  const TensorSpec gates{dtype, {time, batch, attrs.gates() * units}};
  check_spec(c, 0, "the recurrent kernel", {dtype, {units, gates.shape[2]}});
  c.check(kernel.rank() == 2, ErrorCode::shape_mismatch, "the recurrent kernel is a matrix, received ",
          kernel);
  check_spec(c, 1, "the first state", state);
  check_spec(c, 2, "the states", states);
  check_spec(c, attrs.kept_input(), "what was kept", kept);
  check_spec(c, attrs.mask_input(), "the mask", {DType::boolean, {time, batch}});
  check_spec(c, attrs.dsteps_input(), "the gradient of the steps", states);
  check_spec(c, attrs.dlast_input(), "the gradient of the last state", state);
  check_spec(c, attrs.dcells_input(), "the gradient of the cell states", states);
  check_spec(c, attrs.dlast_cell_input(), "the gradient of the last cell state", state);
  check_spec(c, attrs.dkept_input(), "the gradient of what was kept", kept);
  SpecList outputs = {gates};
  if (attrs.gru()) outputs.push_back(gates);
  outputs.push_back(state);
  if (attrs.lstm()) outputs.push_back(state);
  return outputs;
}

Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  const auto& attrs = c.attrs<RecurrenceAttrs>();
  const bool forward = &c.op == &kRecurrence;
  const Shape& states = forward ? outputs[0].shape : c.shape(2);
  Cost cost{.flops = 2 * states.size() * states[2] * attrs.gates()};
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : outputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  return cost;
}

// --- gradients ---------------------------------------------------------------------------------------------

Tensor input_or_none(const GradContext& g, int input) { return input < 0 ? Tensor() : g.in(input); }

// Steps [from, from + count) of all examples as rows of one matrix.
Tensor rows_of(const Tensor& x, int64_t from, int64_t count) {
  return reshape(slice(x, {from, 0, 0}, {count, -1, -1}), {count * x.shape()[1], x.shape()[2]});
}

// The sum over all steps of before^T after, where `before` at the first step is `first` and else `states` one
// step earlier: two products, however many steps there are.
Tensor kernel_gradient(const Tensor& first, const Tensor& states, const Tensor& after, bool reverse) {
  const int64_t time = after.shape()[0];
  const MatmulOptions transposed{.transpose_a = true};
  const Tensor start = matmul(first, rows_of(after, reverse ? time - 1 : 0, 1), transposed);
  if (time == 1) return start;
  return start + matmul(rows_of(states, reverse ? 1 : 0, time - 1), rows_of(after, reverse ? 0 : 1, time - 1),
                        transposed);
}

TensorList grad(const GradContext& g) {
  RecurrenceAttrs attrs = g.attrs<RecurrenceAttrs>();
  const int cells = attrs.cells_output(), kept = attrs.kept_output();
  attrs.steps = g.has_dout(0), attrs.last = g.has_dout(1);
  attrs.cells = cells >= 0 && g.has_dout(cells), attrs.last_cell = cells >= 0 && g.has_dout(cells + 1);
  attrs.kept = kept >= 0 && g.has_dout(kept);
  TensorList inputs = {g.in(1), g.in(attrs.lstm() ? attrs.cell_input() : 2), g.out(attrs.lstm() ? cells : 0)};
  if (kept >= 0) inputs.push_back(g.out(kept));
  if (attrs.mask) inputs.push_back(g.in(attrs.mask_input()));
  for (int i = 0; i < attrs.outputs(); ++i)
    if (g.has_dout(i)) inputs.push_back(g.dout(i));
  const TensorList made = emit(kRecurrenceGrad, inputs, attrs, std::source_location::current());
  const auto result = [&](int i) { return made[static_cast<size_t>(i)]; };

  TensorList gradients(static_cast<size_t>(g.num_inputs()));
  const auto set = [&](int i, const auto& make) {
    if (i >= 0 && g.needs(i)) gradients[static_cast<size_t>(i)] = make();
  };
  set(0, [&] { return result(attrs.dx_output()); });
  set(1, [&] { return kernel_gradient(g.in(2), g.out(0), result(0), attrs.reverse); });
  set(2, [&] { return result(attrs.dfirst_output()); });
  set(attrs.cell_input(), [&] { return result(attrs.dfirst_cell_output()); });
  set(attrs.bias_input(), [&] { return reduce_sum(result(0), {.axis = {0, 1}}); });
  return gradients;
}

// The gradient of the gradient, written out step by step: it walks through the gradient's steps in their
// order to find what arrived at the states, and back. A name with v in front is what arrives at the name
// without.
class GradOfGrad {
 public:
  explicit GradOfGrad(const GradContext& g)
      : g_(g),
        attrs_(g.attrs<RecurrenceAttrs>()),
        time_(g.in(2).shape()[0]),
        kernel_(g.in(0)),
        states_(unstack(g.in(2))),
        kept_(steps_of(attrs_.kept_input())),
        dp_(unstack(g.out(0))),
        vstates_(static_cast<size_t>(time_) + 1),
        vkept_(kept_.size()),
        vdkept_(kept_.size()),
        dh_(static_cast<size_t>(time_)),
        dc_(static_cast<size_t>(time_)) {
    if (attrs_.mask) masks_ = unstack(expand_dims(g.in(attrs_.mask_input()), -1));
  }

  TensorList run() {
    walk_gradient();
    walk_back();
    return results();
  }

 private:
  TensorList steps_of(int input) const { return input < 0 ? TensorList() : unstack(g_.in(input)); }
  // The step that comes i-th.
  size_t at(int64_t i) const { return static_cast<size_t>(attrs_.reverse ? time_ - 1 - i : i); }
  // The state before step i; of vstates_ the last element stands for the first state.
  const Tensor& before(int64_t i) const { return i > 0 ? states_[at(i - 1)] : g_.in(1); }
  Tensor& vbefore(int64_t i) { return vstates_[i > 0 ? at(i - 1) : static_cast<size_t>(time_)]; }
  Tensor counted(size_t t, const Tensor& value, const Tensor& otherwise) const {
    return masks_.empty() ? value : where(masks_[t], value, otherwise);
  }
  Tensor counted(size_t t, const Tensor& value) const {
    return masks_.empty() ? value : where(masks_[t], value, 0.0);
  }
  static void add(Tensor& sum, const Tensor& term) { sum = sum.defined() ? sum + term : term; }

  // What arrived at each h, and at each c of an lstm, where the steps' masks are true.
  void walk_gradient() {
    const TensorList dsteps = steps_of(attrs_.dsteps_input()), dcells = steps_of(attrs_.dcells_input());
    Tensor dh = input_or_none(g_, attrs_.dlast_input()), dc = input_or_none(g_, attrs_.dlast_cell_input());
    const Tensor zeros = zeros_like(g_.in(1));
    if (!dh.defined()) dh = zeros;
    if (!dc.defined()) dc = zeros;
    for (int64_t i = time_ - 1; i >= 0; --i) {
      const size_t t = at(i);
      if (!dsteps.empty()) dh = dh + dsteps[t];
      dh_[t] = dh;
      Tensor direct = zeros;
      if (attrs_.lstm()) {
        if (!dcells.empty()) dc = dc + dcells[t];
        const TensorList k = split(kept_[t], 4, -1);
        const Tensor a = tanh(states_[t]);
        dc_[t] = dc + dh * k[3] * (1.0 - a * a);
        dc = counted(t, dc_[t] * k[1], dc);
      } else if (attrs_.gru()) {
        direct = dh * split(kept_[t], 4, -1)[0];
      }
      dh = counted(t, direct, dh) + matmul(dp_[t], kernel_, {.transpose_b = true});
    }
  }

  void walk_back() {
    Tensor vh = g_.dout(attrs_.dfirst_output());
    Tensor vc = attrs_.lstm() ? g_.dout(attrs_.dfirst_cell_output()) : Tensor();
    const TensorList vdp = unstack(g_.dout(0));
    const TensorList vdx = attrs_.gru() ? unstack(g_.dout(attrs_.dx_output())) : TensorList();
    for (int64_t i = 0; i < time_; ++i) {
      const size_t t = at(i);
      vproducts_.push_back(vh);
      products_.push_back(dp_[t]);
      const Tensor v = vdp[t] + matmul(vh, kernel_);
      Tensor vdh, vdc;
      if (attrs_.lstm())
        lstm(i, v, vc, vdh, vdc);
      else if (attrs_.gru())
        gru(i, v, vdx[t], vh, vdh);
      else
        simple(i, v, vdh);
      vh = counted(t, vdh, vh);
      vdsteps_.push_back(vh);
      if (attrs_.lstm()) {
        vc = counted(t, vdc, vc);
        vdcells_.push_back(vc);
      }
    }
    vdlast_ = vh, vdlast_cell_ = vc;
  }

  // dp = dh (1 - h h)
  void simple(int64_t i, const Tensor& v, Tensor& vdh) {
    const size_t t = at(i);
    const Tensor& h = states_[t];
    vdh = v * (1.0 - h * h);
    add(vstates_[t], counted(t, v * dh_[t] * h * -2.0));
  }

  // dc' = dc + dh o (1 - a a), a = tanh(c);  di = dc' g, df = dc' c_before, dg = dc' i, do = dh a;
  // dp = (di i (1 - i), df f (1 - f), dg (1 - g g), do o (1 - o));  dc_before = dc' f
  void lstm(int64_t n, const Tensor& v, const Tensor& vc, Tensor& vdh, Tensor& vdc) {
    const size_t t = at(n);
    const TensorList k = split(kept_[t], 4, -1), vp = split(v, 4, -1);
    const TensorList more =
        attrs_.kept ? split(steps(attrs_.dkept_input(), t), 4, -1) : TensorList(4, zeros_like(k[0]));
    const Tensor &i = k[0], &f = k[1], &g = k[2], &o = k[3], &c_before = before(n);
    const Tensor &dh = dh_[t], &dc = dc_[t], a = tanh(states_[t]), slope = 1.0 - a * a;
    const Tensor vdi = vp[0] * (i * (1.0 - i)), vdf = vp[1] * (f * (1.0 - f)), vdg = vp[2] * (1.0 - g * g),
                 vdo = vp[3] * (o * (1.0 - o));
    vdc = vc * f + vdi * g + vdf * c_before + vdg * i;
    vdh = vdo * a + vdc * o * slope;
    const Tensor vi = vp[0] * (dc * g + more[0]) * (1.0 - 2.0 * i) + vdg * dc;
    const Tensor vf = vp[1] * (dc * c_before + more[1]) * (1.0 - 2.0 * f) + vc * dc;
    const Tensor vg = vp[2] * (dc * i + more[2]) * (-2.0 * g) + vdi * dc;
    const Tensor vo = vp[3] * (dh * a + more[3]) * (1.0 - 2.0 * o) + vdc * dh * slope;
    vkept_[t] = counted(t, concat(TensorList{vi, vf, vg, vo}, -1));
    vdkept_[t] = counted(t, concat(TensorList{vdi, vdf, vdg, vdo}, -1));
    add(vstates_[t], counted(t, (vdo * dh + vdc * dh * o * a * -2.0) * slope));
    add(vbefore(n), counted(t, vdf * dc));
  }

  // dz = dh (h_before - n), a = dh (1 - z) (1 - n n), dr = a q, dq = a r;
  // dx = (dz z (1 - z), dr r (1 - r), a), dp = (the same, the same, dq);  directly to h_before: dh z
  void gru(int64_t i, const Tensor& v, const Tensor& vx, const Tensor& vh, Tensor& vdh) {
    const size_t t = at(i);
    const TensorList k = split(kept_[t], 4, -1), vp = split(v, 3, -1), vdx = split(vx, 3, -1);
    const TensorList more =
        attrs_.kept ? split(steps(attrs_.dkept_input(), t), 4, -1) : TensorList(4, zeros_like(k[0]));
    const Tensor &z = k[0], &r = k[1], &n = k[2], &q = k[3], &h_before = before(i), &dh = dh_[t];
    const Tensor dn = dh * (1.0 - z) + more[2], a = dn * (1.0 - n * n);
    const Tensor dz = dh * (h_before - n) + more[0], dr = a * q + more[1];
    const Tensor vz_gate = vp[0] + vdx[0], vr_gate = vp[1] + vdx[1], &vdq = vp[2];
    const Tensor vdz = vz_gate * (z * (1.0 - z)), vdr = vr_gate * (r * (1.0 - r));
    const Tensor va = vdx[2] + vdq * r + vdr * q, vdn = va * (1.0 - n * n);
    vdh = vh * z + vdn * (1.0 - z) + vdz * (h_before - n);
    const Tensor vz = vh * dh + vz_gate * dz * (1.0 - 2.0 * z) - vdn * dh;
    const Tensor vr = vr_gate * dr * (1.0 - 2.0 * r) + vdq * a;
    const Tensor vn = va * dn * (-2.0 * n) - vdz * dh;
    vkept_[t] = counted(t, concat(TensorList{vz, vr, vn, vdr * a}, -1));
    vdkept_[t] = counted(t, concat(TensorList{vdz, vdr, vdn, vdq}, -1));
    add(vbefore(i), counted(t, vdz * dh));
  }

  Tensor steps(int input, size_t t) const {
    return squeeze(slice(g_.in(input), {static_cast<int64_t>(t), 0, 0}, {1, -1, -1}), {0});
  }

  TensorList results() const {
    const Tensor zeros = zeros_like(g_.in(1));
    const auto or_zeros = [&](const Tensor& x) { return x.defined() ? x : zeros; };
    const auto in_time_order = [&](TensorList by_step) {
      if (attrs_.reverse) std::reverse(by_step.begin(), by_step.end());
      return stack(by_step);
    };
    TensorList all(static_cast<size_t>(g_.num_inputs()));
    const auto set = [&](int i, const auto& make) {
      if (i >= 0 && g_.needs(i)) all[static_cast<size_t>(i)] = make();
    };
    set(0, [&] { return matmul(concat(vproducts_, 0), concat(products_, 0), {.transpose_a = true}); });
    set(1, [&] { return or_zeros(vstates_.back()); });
    set(2, [&] {
      TensorList each;
      for (size_t t = 0; t + 1 < vstates_.size(); ++t) each.push_back(or_zeros(vstates_[t]));
      return stack(each);
    });
    set(attrs_.kept_input(), [&] { return stack(vkept_); });
    set(attrs_.dsteps_input(), [&] { return in_time_order(vdsteps_); });
    set(attrs_.dlast_input(), [&] { return vdlast_; });
    set(attrs_.dcells_input(), [&] { return in_time_order(vdcells_); });
    set(attrs_.dlast_cell_input(), [&] { return vdlast_cell_; });
    set(attrs_.dkept_input(), [&] { return stack(vdkept_); });
    return all;
  }

  const GradContext& g_;
  const RecurrenceAttrs& attrs_;
  int64_t time_;
  Tensor kernel_;
  TensorList states_, kept_, dp_, masks_;
  TensorList vstates_, vkept_, vdkept_, dh_, dc_;
  TensorList vproducts_, products_, vdsteps_, vdcells_;  // in the order of the steps
  Tensor vdlast_, vdlast_cell_;
};

TensorList grad_grad(const GradContext& g) { return GradOfGrad(g).run(); }

}  // namespace

constinit const OpDef kRecurrence{
    .name = "recurrence", .min_inputs = 3, .max_inputs = 5, .infer = infer, .grad = grad, .cost = cost};
constinit const OpDef kRecurrenceGrad{.name = "recurrence_grad",
                                      .min_inputs = 3,
                                      .max_inputs = 10,
                                      .infer = infer_grad,
                                      .grad = grad_grad,
                                      .cost = cost};

namespace {
const RegisterOp registered[] = {RegisterOp(kRecurrence), RegisterOp(kRecurrenceGrad)};
}

RecurrenceResult recurrence(RecurrentKind kind, const TensorArg& x, const TensorArg& kernel,
                            const TensorList& first, const RecurrenceOptions& options) {
  const RecurrenceAttrs attrs{.kind = kind, .reverse = options.reverse, .mask = options.mask.defined()};
  TensorList inputs = {x.tensor("recurrence"), kernel.tensor("recurrence")};
  inputs.insert(inputs.end(), first.begin(), first.end());
  if (options.bias.defined()) inputs.push_back(options.bias);
  if (attrs.mask) inputs.push_back(options.mask);
  const TensorList made = emit(kRecurrence, inputs, attrs, x.where());
  RecurrenceResult result{.steps = made[0], .last = {made[1]}};
  if (attrs.lstm()) result.last.push_back(made[3]);
  return result;
}

}  // namespace lockstep
