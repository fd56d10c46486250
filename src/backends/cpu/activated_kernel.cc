#include "backends/cpu/activated_kernel.h"

#include "backends/cpu/elementwise/kernel.h"
#include "ops/elementwise/epilogue.h"

namespace lockstep::cpu {
namespace {

class ActivatedKernel final : public Kernel {
 public:
  ActivatedKernel(std::unique_ptr<Kernel> kernel, Epilogue epilogue, const OperandLayout& result, int threads)
      : kernel_(std::move(kernel)),
        activation_(prepare_elementwise(elementwise::activation_program(epilogue, result.spec.dtype),
                                        result.spec.shape, {&result.strides, 1}, {&result.strides, 1},
                                        threads)) {}

  size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  bool in_place(int input, int output) const override { return kernel_->in_place(input, output); }
  void launch(const LaunchArgs& args) const override {
    kernel_->launch(args);
    void* const operands[] = {args.outputs[0], args.outputs[0]};
    activation_->run(operands);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<ElementwiseKernel> activation_;
};

}  // namespace

std::unique_ptr<Kernel> with_activation(std::unique_ptr<Kernel> kernel, Epilogue epilogue,
                                        const KernelRequest& request) {
  if (epilogue == Epilogue::none) return kernel;
  return std::make_unique<ActivatedKernel>(std::move(kernel), epilogue, request.outputs[0], request.threads);
}

}  // namespace lockstep::cpu
