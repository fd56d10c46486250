// What tapes see of a custom-gradient function: one op, never emitted, that leads from its inputs to its
// outputs.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "graph/op.h"
#include "lockstep/autodiff/gradient_tape.h"

namespace lockstep {

extern const OpDef kCustomGradient;

using GradFunction = std::function<TensorList(std::span<const Tensor>)>;
using CustomGradientFunction = std::function<CustomGradient(std::span<const Tensor>)>;

struct CustomGradientAttrs {
  std::shared_ptr<GradFunction> grad;
  std::shared_ptr<const CustomGradientFunction> again;  // null: it cannot be called a second time
  bool operator==(const CustomGradientAttrs&) const = default;
  void visit(auto&& v) const { v("grad", reinterpret_cast<uintptr_t>(grad.get())); }
};

}  // namespace lockstep
