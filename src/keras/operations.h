// The operations of keras.ops that there are, by Keras' modules.
#pragma once

#include <span>

#include "keras/operands.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {

struct Operation {
  const char* class_name;
  const char* module;  // behind keras.src.ops.
  Tensor (*run)(const Operands&);
  TensorList (*run_all)(const Operands&) = nullptr;  // in place of run: several results
};

// Those of keras.src.ops.numpy, and those of its other modules: nn, core, math, linalg, image.
std::span<const Operation> numpy_operations();
std::span<const Operation> other_operations();

// --- for their files ---------------------------------------------------------------------------------------

template <Tensor (*F)(const TensorArg&)>
Tensor unary(const Operands& o) {
  return F(o.tensor(0));
}

template <Tensor (*F)(const TensorArg&)>
Tensor float_unary(const Operands& o) {
  return F(floating(o.tensor(0)));
}

template <Tensor (*F)(const TensorArg&, const ReduceOptions&)>
Tensor float_reduction(const Operands& o) {
  return F(floating(o.tensor(0)), o.reduction());
}

}  // namespace lockstep::keras
