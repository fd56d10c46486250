// How a row of the table of elementwise ops is written: name, what it takes, meaning, gradient.
//
//   constinit const OpDef kTanh = floating("tanh", one<Opcode::tanh>,
//       [](const GradContext& g) -> TensorList { return {g.dout() * (1.0 - g.out() * g.out())}; });
#pragma once

#include <type_traits>

#include "ops/elementwise/expander.h"
#include "ops/elementwise/ops.h"

namespace lockstep::elementwise {

// Shape rules: operands of one dtype that broadcast, and what the dtype may be.
SpecList infer_number(const InferContext& c);      // not booleans
SpecList infer_floating(const InferContext& c);    // floats only
SpecList infer_logical(const InferContext& c);     // booleans, to booleans
SpecList infer_float_test(const InferContext& c);  // floats, to booleans

using Infer = SpecList (*)(const InferContext&);
using Expand = void (*)(Expander&);
using Grad = TensorList (*)(const GradContext&);

constexpr OpDef row(std::string_view name, int inputs, Infer infer, Expand expand, Grad grad) {
  return {.name = name,
          .min_inputs = inputs,
          .max_inputs = inputs,
          .infer = infer,
          .grad = grad,
          .cost = cost_elementwise,
          .expand = expand};
}
// One operand, floats only.
constexpr OpDef floating(std::string_view name, Expand expand, Grad grad) {
  return row(name, 1, infer_floating, expand, grad);
}
// One operand, any number.
constexpr OpDef number(std::string_view name, Expand expand, Grad grad) {
  return row(name, 1, infer_number, expand, grad);
}
// Two operands, any numbers.
constexpr OpDef arithmetic(std::string_view name, Expand expand, Grad grad) {
  return row(name, 2, infer_number, expand, grad);
}

// The op that is this one instruction.
template <Opcode op>
void one(Expander& e) {
  if constexpr (op >= Opcode::add && op <= Opcode::mod)
    e.out(binary(op, e.in(0), e.in(1)));
  else
    e.out(unary(op, e.in(0)));
}

// The op that is f(x), f(x, y) or f(x, attrs). 16-bit floats are computed in float32 with its constants,
// which 16 bits would round, and the result is rounded once.
template <auto f>
void widened(Expander& e) {
  const DType dtype = e.in(0).dtype();
  const bool narrow = is_floating(dtype) && size_of(dtype) == 2;
  const auto in = [&](int i) { return narrow ? e.apply(Opcode::cast, DType::float32, e.in(i)) : e.in(i); };
  Scalar y;
  if constexpr (std::is_invocable_v<decltype(f), Scalar>)
    y = f(in(0));
  else if constexpr (std::is_invocable_v<decltype(f), Scalar, Scalar>)
    y = f(in(0), in(1));
  else
    y = f(in(0), e);
  e.out(narrow ? e.apply(Opcode::cast, dtype, y) : y);
}

// The gradients of two operands, each summed over what was broadcast; an undefined one stays so.
TensorList to_inputs(const GradContext& g, const Tensor& da, const Tensor& db);

}  // namespace lockstep::elementwise
