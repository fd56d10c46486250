// Every elementwise op on the CPU, fused or alone: its program, compiled to machine code.
#include "backends/cpu/elementwise/kernel.h"
#include "ops/elementwise/operands.h"

namespace lockstep {
namespace {

class ElementwiseLaunch final : public Kernel {
 public:
  explicit ElementwiseLaunch(const KernelRequest& request)
      : operands_(request),
        kernel_(cpu::prepare_elementwise(
            elementwise::expand(request.op, request.attributes, operands_.input_dtypes()),
            request.outputs[0].spec.shape, operands_.input_strides(), operands_.output_strides(),
            request.threads)) {}

  bool in_place(int input, int output) const override { return operands_.in_place(input, output); }
  void launch(const LaunchArgs& args) const override { kernel_->run(args.inputs); }

 private:
  elementwise::Operands operands_;
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
