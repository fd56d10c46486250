// The steps of a recurrent cell over a whole sequence as one op, for layers that use it, and for rules and
// kernels that name it.
#pragma once

#include <cstdint>

#include "graph/op.h"
#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

// With p = h_before kernel, s() the sigmoid, and gates in Keras' order:
//   simple:  h = tanh(x + p)
//   lstm:    i, f, o = s(x + p), g = tanh(x + p);  c = f c_before + i g;  h = o tanh(c);        gates i, f, g, o
//   gru:     q = p + bias;  z, r = s(x + q), n = tanh(x + r q);  h = n + z (h_before - n);      gates z, r, n
// Where a mask is false, a step leaves the states of that example as they were.
enum class RecurrentKind : uint8_t { simple, lstm, gru };

struct RecurrenceOptions {
  Tensor bias = {};  // (3 units): of a gru alone, which has one
  Tensor mask = {};  // (time, batch) booleans; undefined: all steps count
  bool reverse = false;
};
struct RecurrenceResult {
  Tensor steps;     // h after every step, (time, batch, units)
  TensorList last;  // h after the last step, and c of an lstm, (batch, units)
};
// x: what the sequence adds to all gates, (time, batch, gates units). kernel: (units, gates units). first: h
// before the first step, and c of an lstm. 16-bit floats are computed in float32, states too, and rounded
// when they are stored. A row's bits do not depend on the other rows.
RecurrenceResult recurrence(RecurrentKind kind, const TensorArg& x, const TensorArg& kernel,
                            const TensorList& first, const RecurrenceOptions& options = {});

// (x, kernel, h0, c0 of an lstm, bias of a gru, mask?) -> (h [time, batch, units], last h [batch, units],
// of an lstm: c [time, batch, units], last c; of an lstm and a gru: kept [time, batch, 4 units]).
//
// kept is what the gradient reads: the gates, and of a gru the candidate's q; zeros where the mask is false.
extern const OpDef kRecurrence;

// (kernel, s0, s [time, batch, units], kept of an lstm and a gru, mask?, and the gradients that attributes
// name, in their order) -> (dp [time, batch, gates units], of a gru: dx like dp, dh0, of an lstm: dc0). s is
// the state that the gradient reads, c of an lstm, else h. dp arrives at the product, and, but for a gru, at
// x too.
extern const OpDef kRecurrenceGrad;

struct RecurrenceAttrs {
  RecurrentKind kind = RecurrentKind::simple;
  bool reverse = false, mask = false;
  // Attributes of the gradient: which results a gradient arrived at.
  bool steps = false, last = false, cells = false, last_cell = false, kept = false;

  bool operator==(const RecurrenceAttrs&) const = default;
  void visit(auto&& v) const {
    v("kind", kind), v("reverse", reverse), v("mask", mask), v("steps", steps), v("last", last);
    v("cells", cells), v("last_cell", last_cell), v("kept", kept);
  }

  bool lstm() const { return kind == RecurrentKind::lstm; }
  bool gru() const { return kind == RecurrentKind::gru; }
  int gates() const { return lstm() ? 4 : gru() ? 3 : 1; }
  int kept_parts() const { return kind == RecurrentKind::simple ? 0 : 4; }

  // Numbers of inputs and outputs; -1: there is none.
  int cell_input() const { return lstm() ? 3 : -1; }
  int bias_input() const { return gru() ? 3 : -1; }
  int mask_input() const { return mask ? (kept_parts() > 0 ? 4 : 3) : -1; }
  int inputs() const { return 3 + (kept_parts() > 0) + mask; }
  int cells_output() const { return lstm() ? 2 : -1; }
  int kept_output() const { return lstm() ? 4 : gru() ? 2 : -1; }
  int outputs() const { return lstm() ? 5 : gru() ? 3 : 2; }

  // Inputs of the gradient.
  int kept_input() const { return kept_parts() > 0 ? 3 : -1; }
  int dsteps_input() const { return steps ? inputs() : -1; }
  int dlast_input() const { return last ? inputs() + steps : -1; }
  int dcells_input() const { return cells ? inputs() + steps + last : -1; }
  int dlast_cell_input() const { return last_cell ? inputs() + steps + last + cells : -1; }
  int dkept_input() const { return kept ? inputs() + steps + last + cells + last_cell : -1; }
  int grad_inputs() const { return inputs() + steps + last + cells + last_cell + kept; }
  int dx_output() const { return gru() ? 1 : 0; }
  int dfirst_output() const { return gru() ? 2 : 1; }
  int dfirst_cell_output() const { return lstm() ? 2 : -1; }
};

}  // namespace lockstep
