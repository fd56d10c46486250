// Ops are data: a name, a shape rule, a gradient, a cost, and traits that graph passes go by. Kernels
// (graph/kernel.h) and rewrites (graph/rewrite.h) register against ops per kind of device, in the op's own
// folder; nothing else in the engine knows any op by name.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "graph/attrs.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

struct OpDef;

namespace elementwise {
class Expander;
}
class TensorArg;

using SpecList = std::vector<TensorSpec>;

// What a shape rule sees: specs, never elements.
struct InferContext {
  const OpDef& op;
  std::span<const TensorSpec> inputs;
  const Attrs& attributes;
  std::source_location where;

  const Shape& shape(int i) const { return inputs[static_cast<size_t>(i)].shape; }
  DType dtype(int i) const { return inputs[static_cast<size_t>(i)].dtype; }
  template <class T>
  const T& attrs() const {
    return attributes.as<T>();
  }
  // check(cond, code, "inner dimensions differ in ", a): the op's name and the call site are added.
  template <class... Parts>
  void check(bool condition, ErrorCode code, const Parts&... parts) const;
};

// What a gradient rule sees. Its results line up with the inputs; an undefined Tensor means that no
// gradient flows there.
class GradContext {
 public:
  GradContext(const OpDef& op, const Attrs& attributes, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs, std::span<const Tensor> output_gradients,
              const std::vector<bool>& needed)
      : op_(op),
        attributes_(attributes),
        inputs_(inputs),
        outputs_(outputs),
        douts_(output_gradients),
        needed_(needed) {}

  const OpDef& op() const { return op_; }
  const Tensor& in(int i = 0) const { return inputs_[static_cast<size_t>(i)]; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  const Tensor& out(int i = 0) const { return outputs_[static_cast<size_t>(i)]; }
  // The gradient that arrives at output i; zeros where none does.
  Tensor dout(int i = 0) const;
  bool has_dout(int i) const { return douts_[static_cast<size_t>(i)].defined(); }
  // False where nobody asked for this input's gradient, so computing it would be waste.
  bool needs(int i) const { return needed_[static_cast<size_t>(i)]; }
  template <class T>
  const T& attrs() const {
    return attributes_.as<T>();
  }
  const Attrs& attributes() const { return attributes_; }

 private:
  const OpDef& op_;
  const Attrs& attributes_;
  std::span<const Tensor> inputs_;
  std::span<const Tensor> outputs_;
  std::span<const Tensor> douts_;
  const std::vector<bool>& needed_;
};

struct Cost {
  int64_t flops = 0;
  int64_t bytes = 0;  // read and written, each element once
};

// A view rule says how the output reads the input's storage, or nothing where a copy is needed.
struct ViewContext {
  const TensorSpec& input;
  const Strides& strides;
  const TensorSpec& output;
  const Attrs& attributes;
};
struct ViewLayout {
  Strides strides;
  int64_t offset = 0;  // in elements, added to the input's
};

// What a matrix product or a convolution can do to its result before it is stored.
enum class Epilogue : uint8_t { none, relu, tanh, sigmoid, gelu_erf, gelu_tanh };

// What passes may know of an op's meaning without knowing the op.
struct OpTraits {
  bool adds = false;      // the sum of its two inputs, broadcast
  bool converts = false;  // its input's elements in another dtype
  bool forwards = false;  // its input's value: it means something to gradients alone
  // Its results may be written over inputs of their shape, as those of elementwise ops may.
  bool updates_in_place = false;
  // For ops of two inputs: where one is this constant, the result is the other one.
  std::optional<double> neutral = {};
};

// The sum of an op's results over the iterations of a loop, given each of its inputs in all iterations,
// stacked along a new first dimension. `result`: the shape of one iteration's.
using SumOverStack = Tensor (*)(const Attrs&, std::span<const TensorArg> stacks, const Shape& result);

struct OpDef {
  std::string_view name;
  int min_inputs = 1;
  int max_inputs = 1;  // -1: any number

  SpecList (*infer)(const InferContext&) = nullptr;
  TensorList (*grad)(const GradContext&) = nullptr;  // null: not differentiable, gradients stop here
  Cost (*cost)(const InferContext&, std::span<const TensorSpec> outputs) = nullptr;  // null: bytes only

  // Elementwise ops: their meaning as scalar instructions (ops/elementwise).
  void (*expand)(elementwise::Expander&) = nullptr;
  // Ops that can be a view of their first input.
  std::optional<ViewLayout> (*view)(const ViewContext&) = nullptr;

  // Ops that can add a bias (one value per column, as one more input) and apply an activation: the
  // same attributes with these switched on.
  Attrs (*with_epilogue)(const Attrs&, bool bias, Epilogue) = nullptr;
  // An activation that other ops can apply as their epilogue.
  Epilogue (*as_epilogue)(const Attrs&) = nullptr;
  // Ops that can add a tensor like their first result to it, as one more input behind the others: the
  // attributes that say so, or nothing where these exclude it.
  std::optional<Attrs> (*with_addend)(const Attrs&) = nullptr;
  // Ops whose results a loop need not sum one by one; null for inputs (of one iteration) where it must.
  SumOverStack (*sum_over_stack)(const Attrs&, std::span<const TensorSpec> inputs) = nullptr;

  OpTraits traits = {};

  // Ops with more to them than their inputs and attributes must not be merged or moved.
  bool pure = true;
};

template <class... Parts>
void InferContext::check(bool condition, ErrorCode code, const Parts&... parts) const {
  if (!condition) [[unlikely]]
    fail(code, where, op.name, ": ", parts...);
}

Cost op_cost(const OpDef& op, std::span<const TensorSpec> inputs, std::span<const TensorSpec> outputs,
             const Attrs& attrs);

// Every op that takes part in the engine is registered once, at static initialisation.
class RegisterOp {
 public:
  explicit RegisterOp(const OpDef& op);
};
std::span<const OpDef* const> registered_ops();
const OpDef* find_op(std::string_view name);

}  // namespace lockstep
