#include "ops/nn/recurrence.h"

#include <algorithm>
#include <cmath>

#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The sizes of one use, and its walk through the steps.
struct Walk {
  RecurrenceAttrs attrs;
  int64_t time = 0, batch = 0, units = 0;

  int64_t gates() const { return attrs.gates() * units; }
  int64_t kept() const { return attrs.kept_parts() * units; }
  // Small enough that a rounding error does not grow from step to step.
  Input kernel() const {
    const double bound = std::min(0.5, 1.5 / std::sqrt(static_cast<double>(units)));
    return within({units, gates()}, -bound, bound);
  }
  Shape state() const { return {batch, units}; }
  Shape states() const { return {time, batch, units}; }
  // The step that comes i-th.
  int64_t at(int64_t i) const { return attrs.reverse ? time - 1 - i : i; }
};

Walk forward_walk(const RecurrenceAttrs& attrs, const Arrays& in) {
  const Shape& x = in[0].shape;
  return {attrs, x[0], x[1], x[2] / attrs.gates()};
}

const Array& input(const Arrays& in, int i) { return in[static_cast<size_t>(i)]; }

Arrays forward_reference(const RecurrenceAttrs& attrs, const Arrays& in) {
  const Walk w = forward_walk(attrs, in);
  const int64_t units = w.units;
  Array h = in[2], c = attrs.lstm() ? in[3] : Array(w.state());
  Array hs(w.states()), cs(w.states()), kept({w.time, w.batch, w.kept()});
  for (int64_t i = 0; i < w.time; ++i) {
    const int64_t t = w.at(i);
    const Array before = h;
    for (int64_t n = 0; n < w.batch; ++n)
      for (int64_t u = 0; u < units; ++u) {
        const bool counts = !attrs.mask || input(in, attrs.mask_input()).at({t, n}) != 0;
        double x[4], p[4], k[4];
        for (int64_t g = 0; g < attrs.gates(); ++g) {
          x[g] = in[0].at({t, n, g * units + u});
          p[g] = attrs.gru() ? in[3].at({g * units + u}) : 0;
          for (int64_t j = 0; j < units; ++j) p[g] += before.at({n, j}) * in[1].at({j, g * units + u});
        }
        if (counts && attrs.lstm()) {
          k[0] = sigmoid(x[0] + p[0]), k[1] = sigmoid(x[1] + p[1]), k[2] = std::tanh(x[2] + p[2]),
          k[3] = sigmoid(x[3] + p[3]);
          c.at({n, u}) = k[1] * c.at({n, u}) + k[0] * k[2];
          h.at({n, u}) = k[3] * std::tanh(c.at({n, u}));
        } else if (counts && attrs.gru()) {
          k[0] = sigmoid(x[0] + p[0]), k[1] = sigmoid(x[1] + p[1]), k[2] = std::tanh(x[2] + k[1] * p[2]),
          k[3] = p[2];
          h.at({n, u}) = k[0] * before.at({n, u}) + (1 - k[0]) * k[2];
        } else if (counts) {
          h.at({n, u}) = std::tanh(x[0] + p[0]);
        }
        for (int64_t q = 0; q < attrs.kept_parts(); ++q) kept.at({t, n, q * units + u}) = counts ? k[q] : 0;
        hs.at({t, n, u}) = h.at({n, u});
        cs.at({t, n, u}) = c.at({n, u});
      }
  }
  if (attrs.lstm()) return {hs, h, cs, c, kept};
  if (attrs.gru()) return {hs, h, kept};
  return {hs, h};
}

Arrays backward_reference(const RecurrenceAttrs& attrs, const Arrays& in) {
  const Shape& s = in[2].shape;
  const Walk w{attrs, s[0], s[1], s[2]};
  const int64_t units = w.units;
  const auto gradient = [&](int i, const Dims& at) { return i < 0 ? 0.0 : input(in, i).at(at); };
  Array dp({w.time, w.batch, w.gates()}), dx = dp, dh(w.state()), dc(w.state());
  each_index(w.state(), [&](const Dims& at) {
    dh.at(at) = gradient(attrs.dlast_input(), at);
    dc.at(at) = gradient(attrs.dlast_cell_input(), at);
  });
  for (int64_t i = w.time - 1; i >= 0; --i) {
    const int64_t t = w.at(i);
    each_index(w.state(), [&](const Dims& at) {
      const int64_t n = at[0], u = at[1];
      double& d = dh.at(at);
      double& e = dc.at(at);
      d += gradient(attrs.dsteps_input(), {t, n, u});
      e += gradient(attrs.dcells_input(), {t, n, u});
      if (attrs.mask && input(in, attrs.mask_input()).at({t, n}) == 0) return;
      double k[4] = {}, more[4] = {}, p[4], x[4];
      for (int64_t q = 0; q < attrs.kept_parts(); ++q) {
        k[q] = in[3].at({t, n, q * units + u});
        more[q] = gradient(attrs.dkept_input(), {t, n, q * units + u});
      }
      const double state = in[2].at({t, n, u});
      const double before = i > 0 ? in[2].at({w.at(i - 1), n, u}) : in[1].at(at);
      if (attrs.lstm()) {
        const double a = std::tanh(state);
        e += d * k[3] * (1 - a * a);
        p[0] = (e * k[2] + more[0]) * k[0] * (1 - k[0]);
        p[1] = (e * before + more[1]) * k[1] * (1 - k[1]);
        p[2] = (e * k[0] + more[2]) * (1 - k[2] * k[2]);
        p[3] = (d * a + more[3]) * k[3] * (1 - k[3]);
        e *= k[1];
        d = 0;
      } else if (attrs.gru()) {
        x[2] = (d * (1 - k[0]) + more[2]) * (1 - k[2] * k[2]);
        p[0] = x[0] = (d * (before - k[2]) + more[0]) * k[0] * (1 - k[0]);
        p[1] = x[1] = (x[2] * k[3] + more[1]) * k[1] * (1 - k[1]);
        p[2] = x[2] * k[1] + more[3];
        d *= k[0];
      } else {
        p[0] = d * (1 - state * state);
        d = 0;
      }
      for (int64_t g = 0; g < attrs.gates(); ++g) {
        dp.at({t, n, g * units + u}) = p[g];
        if (attrs.gru()) dx.at({t, n, g * units + u}) = x[g];
      }
    });
    each_index(w.state(), [&](const Dims& at) {
      for (int64_t j = 0; j < w.gates(); ++j) dh.at(at) += dp.at({t, at[0], j}) * in[0].at({at[1], j});
    });
  }
  if (attrs.lstm()) return {dp, dh, dc};
  if (attrs.gru()) return {dp, dx, dh};
  return {dp, dh};
}

OpCase forward_case(const CaseName& suffix, const Walk& w) {
  const RecurrenceAttrs& attrs = w.attrs;
  OpCase c{.name = "recurrence" + suffix,
           .op = "recurrence",
           .inputs = {normal({w.time, w.batch, w.gates()}), w.kernel(), within(w.state(), -0.9, 0.9)},
           .attrs = attrs,
           .reference = [attrs](const Arrays& in) { return forward_reference(attrs, in); },
           .tolerance = Tolerance::summed,
           .slack = 2,
           .results = std::vector<DTypeRule>(static_cast<size_t>(attrs.outputs()), same),
           .same_bits_on_threads = true};
  if (attrs.lstm()) c.inputs.push_back(normal(w.state()));
  if (attrs.gru()) c.inputs.push_back(normal({w.gates()}));
  if (attrs.mask) c.inputs.push_back(booleans({w.time, w.batch}));
  return c;
}

OpCase backward_case(const CaseName& suffix, const Walk& w) {
  const RecurrenceAttrs& attrs = w.attrs;
  OpCase c{.name = "recurrence_grad" + suffix,
           .op = "recurrence_grad",
           .inputs = {w.kernel(), within(w.state(), -0.9, 0.9), within(w.states(), -0.9, 0.9)},
           .attrs = attrs,
           .reference = [attrs](const Arrays& in) { return backward_reference(attrs, in); },
           .tolerance = Tolerance::summed,
           .slack = 2,
           .results = std::vector<DTypeRule>(attrs.kind == RecurrentKind::simple ? 2 : 3, same),
           .derivatives = 1,
           .same_bits_on_threads = true};
  const Shape kept{w.time, w.batch, w.kept()};
  if (attrs.kept_parts() > 0) c.inputs.push_back(within(kept, 0.1, 0.9));
  if (attrs.mask) c.inputs.push_back(booleans({w.time, w.batch}));
  if (attrs.steps) c.inputs.push_back(normal(w.states()));
  if (attrs.last) c.inputs.push_back(normal(w.state()));
  if (attrs.cells) c.inputs.push_back(normal(w.states()));
  if (attrs.last_cell) c.inputs.push_back(normal(w.state()));
  if (attrs.kept) c.inputs.push_back(normal(kept));
  return c;
}

// The shapes of the inputs in other sizes.
std::vector<Shape> shapes_of(const OpCase& c) {
  std::vector<Shape> shapes;
  for (const Input& input : c.inputs) shapes.push_back(input.shape);
  return shapes;
}

OpCases cases() {
  OpCases all;
  struct Kind {
    RecurrentKind kind;
    const char* name;
  };
  for (const auto& [kind, name] : {Kind{RecurrentKind::simple, "_simple"},
                                   {RecurrentKind::lstm, "_lstm"},
                                   {RecurrentKind::gru, "_gru"}}) {
    const bool lstm = kind == RecurrentKind::lstm, keeps = kind != RecurrentKind::simple;
    const RecurrenceAttrs plain{.kind = kind};
    const RecurrenceAttrs masked{.kind = kind, .reverse = true, .mask = true};
    const auto with_gradients = [&](RecurrenceAttrs attrs, bool every) {
      attrs.last = true;
      attrs.steps = every, attrs.cells = every && lstm, attrs.last_cell = lstm, attrs.kept = every && keeps;
      return attrs;
    };
    const auto edges = [&](auto make, const RecurrenceAttrs& attrs) {
      return std::vector<std::vector<Shape>>{shapes_of(make("", Walk{attrs, 2, 0, 3})),
                                             shapes_of(make("", Walk{attrs, 1, 1, 1}))};
    };
    all.push_back(with_edges(forward_case(name, {plain, 3, 2, 3}), edges(forward_case, plain)));
    all.push_back(forward_case(std::string(name) + "_masked", {masked, 4, 3, 2}));
    const RecurrenceAttrs last = with_gradients(plain, false), every = with_gradients(masked, true);
    all.push_back(with_edges(backward_case(name, {last, 3, 2, 3}), edges(backward_case, last)));
    all.push_back(backward_case(std::string(name) + "_masked", {every, 4, 3, 2}));
    // Several threads and blocks, whose last rows and units fill no vector; and more units than blocks that
    // share their memory can hold.
    for (const Walk& sizes : {Walk{masked, 5, 21, 43}, Walk{masked, 3, 70, 130}, Walk{plain, 2, 3, 600}}) {
      const std::string suffix = std::string(name) + "_" + std::to_string(sizes.units) + "_units";
      all.push_back(threads_only(forward_case(suffix, sizes)));
      Walk back = sizes;
      back.attrs = with_gradients(sizes.attrs, sizes.units < 600);
      all.push_back(threads_only(backward_case(suffix, back)));
    }
  }
  return all;
}

BadCalls bad_calls() {
  using enum ErrorCode;
  const auto call = [](const Shape& x, const Shape& kernel, const TensorList& first,
                       const RecurrenceOptions& options = {}) {
    return [=] { recurrence(RecurrentKind::lstm, sample(x), sample(kernel), first, options); };
  };
  const TensorList first = {sample({2, 4}), sample({2, 4})};
  return {
      {"recurrence_rank", shape_mismatch, {"recurrence: ", "(2, 16)"}, call({2, 16}, {4, 16}, first)},
      {"recurrence_without_steps",
       shape_mismatch,
       {"recurrence: ", "one step"},
       call({0, 2, 16}, {4, 16}, first)},
      {"recurrence_gates",
       shape_mismatch,
       {"recurrence: ", "4 gates", "(3, 2, 15)"},
       call({3, 2, 15}, {4, 15}, first)},
      {"recurrence_kernel",
       shape_mismatch,
       {"recurrence: ", "kernel", "(16, 4)"},
       call({3, 2, 16}, {16, 4}, first)},
      {"recurrence_state",
       shape_mismatch,
       {"recurrence: ", "cell state", "(3, 4)"},
       call({3, 2, 16}, {4, 16}, {sample({2, 4}), sample({3, 4})})},
      {"recurrence_states",
       invalid_argument,
       {"recurrence: ", "takes 4 inputs"},
       call({3, 2, 16}, {4, 16}, {sample({2, 4})})},
      {"recurrence_dtypes",
       dtype_mismatch,
       {"recurrence: ", "first state", "float64(2, 4)"},
       call({3, 2, 16}, {4, 16}, {sample({2, 4}, DType::float64), sample({2, 4})})},
      {"recurrence_mask",
       shape_mismatch,
       {"recurrence: ", "mask", "(2, 3)"},
       call({3, 2, 16}, {4, 16}, first, {.mask = sample({2, 3}, DType::boolean)})},
      {"recurrence_of_integers",
       dtype_mismatch,
       {"recurrence: ", "floating"},
       [] {
         recurrence(RecurrentKind::simple, sample({1, 2, 3}, DType::int32), sample({3, 3}, DType::int32),
                    {sample({2, 3}, DType::int32)});
       }},
  };
}

}  // namespace

const Family kRecurrenceFamily{cases, bad_calls};

}  // namespace lockstep::testing
