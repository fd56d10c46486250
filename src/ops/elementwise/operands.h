// The operands of an elementwise kernel, as every kind of device prepares them.
#pragma once

#include <span>
#include <vector>

#include "graph/kernel.h"
#include "ops/elementwise/expander.h"

namespace lockstep::elementwise {

class Operands {
 public:
  explicit Operands(const KernelRequest& request) : inputs_(request.inputs.size()) {
    const Shape& shape = request.outputs[0].spec.shape;
    for (const OperandLayout& input : request.inputs) {
      dtypes_.push_back(input.spec.dtype);
      strides_.push_back(broadcast_strides(input.spec.shape, input.strides, shape));
    }
    for (const OperandLayout& output : request.outputs) {
      dtypes_.push_back(output.spec.dtype);
      strides_.push_back(output.strides);
    }
  }

  // Strides of the inputs as they are read over the outputs' shape, then of the outputs; in elements.
  std::span<const Strides> strides() const { return strides_; }
  std::span<const Strides> input_strides() const { return strides().first(inputs_); }
  std::span<const Strides> output_strides() const { return strides().subspan(inputs_); }
  std::span<const DType> input_dtypes() const { return std::span(dtypes_).first(inputs_); }

  // Whether the output may lie over the input: every element is where the one is that it is made of.
  bool in_place(int input, int output) const {
    const auto i = static_cast<size_t>(input), o = inputs_ + static_cast<size_t>(output);
    return size_of(dtypes_[i]) == size_of(dtypes_[o]) && strides_[i] == strides_[o];
  }

 private:
  size_t inputs_;
  std::vector<DType> dtypes_;
  std::vector<Strides> strides_;
};

}  // namespace lockstep::elementwise
