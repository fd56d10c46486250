// Every elementwise op on the CPU, fused or alone: its program, compiled to machine code.
#include "backends/cpu/elementwise/kernel.h"
#include "graph/kernel.h"
#include "ops/elementwise/expander.h"

namespace lockstep {
namespace {

class ElementwiseLaunch final : public Kernel {
 public:
  explicit ElementwiseLaunch(const KernelRequest& request) {
    const Shape& shape = request.outputs[0].spec.shape;
    std::vector<DType> dtypes;
    for (const OperandLayout& input : request.inputs) {
      dtypes.push_back(input.spec.dtype);
      input_strides_.push_back(broadcast_strides(input.spec.shape, input.strides, shape));
      input_widths_.push_back(size_of(input.spec.dtype));
    }
    for (const OperandLayout& output : request.outputs) {
      output_strides_.push_back(output.strides);
      output_widths_.push_back(size_of(output.spec.dtype));
    }
    kernel_ = cpu::prepare_elementwise(elementwise::expand(request.op, request.attributes, dtypes), shape,
                                       input_strides_, output_strides_, request.threads);
  }

  bool in_place(int input, int output) const override {
    const auto i = static_cast<size_t>(input);
    const auto o = static_cast<size_t>(output);
    return input_widths_[i] == output_widths_[o] && input_strides_[i] == output_strides_[o];
  }

  void launch(const LaunchArgs& args) const override { kernel_->run(args.inputs); }

 private:
  std::vector<Strides> input_strides_, output_strides_;
  std::vector<size_t> input_widths_, output_widths_;
  std::unique_ptr<cpu::ElementwiseKernel> kernel_;
};

std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<ElementwiseLaunch>(request);
}

const RegisterElementwiseKernel registered(DeviceKind::cpu, {.prepare = prepare,
                                                             .strided_inputs = true,
                                                             .thread_invariant = true});

}  // namespace
}  // namespace lockstep
