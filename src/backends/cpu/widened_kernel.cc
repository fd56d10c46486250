#include "backends/cpu/widened_kernel.h"

#include <vector>

#include "backends/cpu/elementwise/kernel.h"
#include "ops/elementwise/expander.h"

namespace lockstep::cpu {
namespace {

using elementwise::Opcode;
using elementwise::ScalarProgram;

ScalarProgram cast_program(DType from, DType to) {
  ScalarProgram program;
  program.inputs.push_back(from);
  const int16_t input = append(program, {.op = Opcode::input, .dtype = from, .index = 0});
  program.outputs.push_back(append(program, {.op = Opcode::cast, .dtype = to, .args = {input, -1, -1}}));
  return program;
}

std::vector<OperandLayout> widened(std::span<const OperandLayout> layouts) {
  std::vector<OperandLayout> wide(layouts.begin(), layouts.end());
  for (OperandLayout& layout : wide) {
    layout.spec.dtype = DType::float32;
    layout.strides = contiguous_strides(layout.spec.shape);
  }
  return wide;
}

class WidenedKernel final : public Kernel {
 public:
  WidenedKernel(const KernelRequest& request, std::unique_ptr<Kernel> (*prepare)(const KernelRequest&)) {
    const std::vector<OperandLayout> inputs = widened(request.inputs), outputs = widened(request.outputs);
    kernel_ = prepare({.op = request.op,
                       .attributes = request.attributes,
                       .inputs = inputs,
                       .outputs = outputs,
                       .device = request.device,
                       .threads = request.threads,
                       .where = request.where});
    for (size_t i = 0; i < inputs.size(); ++i)
      casts_.push_back(cast(request.inputs[i], inputs[i], request.threads));
    inputs_ = inputs.size();
    for (size_t i = 0; i < outputs.size(); ++i)
      casts_.push_back(cast(outputs[i], request.outputs[i], request.threads));
    operands_.resize(casts_.size());
  }

  size_t workspace_bytes() const override { return bytes_ + kernel_->workspace_bytes(); }

  void launch(const LaunchArgs& args) const override {
    char* const memory = static_cast<char*>(args.workspace);
    for (size_t i = 0; i < casts_.size(); ++i) operands_[i] = memory + casts_[i].offset;
    for (size_t i = 0; i < inputs_; ++i) {
      void* const pair[] = {args.inputs[i], operands_[i]};
      casts_[i].kernel->run(pair);
    }
    kernel_->launch({.inputs = operands_.data(),
                     .outputs = operands_.data() + inputs_,
                     .workspace = memory + bytes_,
                     .stream = args.stream});
    for (size_t i = inputs_; i < casts_.size(); ++i) {
      void* const pair[] = {operands_[i], args.outputs[i - inputs_]};
      casts_[i].kernel->run(pair);
    }
  }

 private:
  struct Cast {
    std::unique_ptr<ElementwiseKernel> kernel;
    size_t offset;  // of the operand in float32, in the workspace
  };

  Cast cast(const OperandLayout& from, const OperandLayout& to, int threads) {
    const size_t offset = bytes_;
    constexpr size_t kAlignment = 64;
    bytes_ += (static_cast<size_t>(to.spec.shape.size()) * sizeof(float) + kAlignment - 1) / kAlignment *
              kAlignment;
    return {prepare_elementwise(cast_program(from.spec.dtype, to.spec.dtype), to.spec.shape,
                                {&from.strides, 1}, {&to.strides, 1}, threads),
            offset};
  }

  std::unique_ptr<Kernel> kernel_;
  std::vector<Cast> casts_;  // of the inputs, then of the outputs
  size_t inputs_ = 0;
  size_t bytes_ = 0;
  mutable std::vector<void*> operands_;  // of one launch
};

}  // namespace

std::unique_ptr<Kernel> prepare_in_float32(const KernelRequest& request,
                                           std::unique_ptr<Kernel> (*prepare)(const KernelRequest&)) {
  return std::make_unique<WidenedKernel>(request, prepare);
}

}  // namespace lockstep::cpu
