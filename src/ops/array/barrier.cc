#include "ops/array/barrier.h"

#include <vector>

#include "graph/emit.h"

namespace lockstep {

// A view, so that it takes neither time nor memory. The gates are inputs like any other, which is all that
// the order of execution goes by; and as it has more than one input, no pass takes it for a mere view of a
// constant or a weight.
constinit const OpDef kBarrier{
    .name = "barrier",
    .min_inputs = 2,
    .max_inputs = -1,
    .infer = [](const InferContext& c) -> SpecList { return {c.inputs[0]}; },
    .grad = [](const GradContext& g) -> TensorList {
      TensorList gradients(static_cast<size_t>(g.num_inputs()));
      gradients[0] = g.dout();
      return gradients;
    },
    .view = [](const ViewContext& c) -> std::optional<ViewLayout> { return ViewLayout{c.strides}; }};

namespace {
const RegisterOp registered(kBarrier);
}

Tensor barrier(const Tensor& x, std::span<const Tensor> gates, std::source_location where) {
  TensorList inputs = {x};
  inputs.insert(inputs.end(), gates.begin(), gates.end());
  const BesideScope there(x);
  return emit_one(kBarrier, inputs, {}, where);
}

}  // namespace lockstep
