// The nodes behind cond, while_loop and scan: each holds its bodies as graphs.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "compile/control_flow/body.h"
#include "graph/op.h"

namespace lockstep::compile {

// Settings of nodes are compared by what their bodies compute: what they were traced from, and what is kept
// for gradients, is no part of the body.
inline bool same_body(const std::shared_ptr<const BodyGraph>& a, const std::shared_ptr<const BodyGraph>& b) {
  return a == b || (a && b && *a == *b);
}

// Runs its body `length` times, or while its condition holds, `length` times at most.
//
//   inputs:  first values of the carries, elems, what body and condition use from outside, and (counted)
//            the number of iterations, int64
//   outputs: last values of the carries, (with a condition) the number of iterations, stacked results,
//            histories
//   body:      carries, one slice of each elem, what it uses from outside, the number of the iteration;
//              returns the carries' next values, then one slice of each stacked result
//   condition: carries, what it uses from outside; returns a boolean scalar
//
// Elems and stacked results have one slice for each of the `length` iterations; slices of iterations
// that do not happen are zeros. In reverse the last iteration's slice comes first.
extern const OpDef kLoop;

struct LoopAttrs {
  std::shared_ptr<const BodyGraph> body;
  std::shared_ptr<const BodyGraph> condition;  // may be null
  int64_t carries = 0;
  int64_t elems = 0;
  int64_t captured_inputs = 0;  // what the body uses from outside; the rest is the condition's
  int64_t length = 0;           // -1: no bound
  bool reverse = false;
  bool counted = false;
  // Carries of which every value is kept, the first and the last included: (length + 1) slices in the
  // order of the elems. Set by the compiler.
  std::vector<int64_t> histories;

  // For gradients: what was traced, and the values in it that the body returns. Null: traced again.
  std::shared_ptr<TracedBody> traced;
  std::vector<Value> results;
  int64_t states = 0;  // the last of the carries: variables that the body assigns, and effects

  bool operator==(const LoopAttrs& other) const {
    return same_body(body, other.body) && same_body(condition, other.condition) && carries == other.carries &&
           elems == other.elems && captured_inputs == other.captured_inputs && length == other.length &&
           reverse == other.reverse && counted == other.counted && histories == other.histories;
  }
  void visit(auto&& v) const {
    v("body", body->hash()), v("condition", condition ? condition->hash() : 0), v("carries", carries);
    v("elems", elems), v("captured_inputs", captured_inputs), v("length", length), v("reverse", reverse);
    v("counted", counted), v("histories", histories);
  }

  int64_t first_stacked() const { return carries + (condition ? 1 : 0); }
  int64_t num_stacked() const { return static_cast<int64_t>(body->graph().outputs.size()) - carries; }
};

// Runs one of two bodies.
//
//   inputs:  a boolean scalar, and what either body uses from outside
//   outputs: what the chosen body returns; zeros where it leaves a result out
extern const OpDef kCond;

struct CondAttrs {
  std::array<std::shared_ptr<const BodyGraph>, 2> bodies;  // of true, of false

  std::array<std::shared_ptr<TracedBody>, 2> traced;
  std::array<std::vector<Value>, 2> results;
  int64_t states = 0;   // the last of the outputs when it was emitted
  int64_t emitted = 0;  // outputs when it was emitted

  bool operator==(const CondAttrs& other) const {
    return same_body(bodies[0], other.bodies[0]) && same_body(bodies[1], other.bodies[1]);
  }
  void visit(auto&& v) const { v("then", bodies[0]->hash()), v("else", bodies[1]->hash()); }
};

// Whether nodes of the op hold bodies: those above.
inline bool has_bodies(const OpDef& op) { return &op == &kLoop || &op == &kCond; }

// Results that are a carry's value, before or after an iteration, become slices of its history: the body
// writes them once.
Graph share_histories(const Graph& graph);

}  // namespace lockstep::compile
