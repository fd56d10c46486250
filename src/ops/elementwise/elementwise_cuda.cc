// Every elementwise op on NVIDIA GPUs, fused or alone: its program, compiled for the card.
#include "backends/cuda/check.h"
#include "backends/cuda/elementwise_kernel.h"
#include "graph/kernel.h"
#include "ops/elementwise/expander.h"

namespace lockstep {
namespace {

class ElementwiseLaunch final : public Kernel {
 public:
  explicit ElementwiseLaunch(const KernelRequest& request) {
    const Shape& shape = request.outputs[0].spec.shape;
    std::vector<DType> inputs;
    for (const OperandLayout& input : request.inputs) {
      inputs.push_back(input.spec.dtype);
      strides_.push_back(broadcast_strides(input.spec.shape, input.strides, shape));
      widths_.push_back(size_of(input.spec.dtype));
    }
    inputs_ = inputs.size();
    for (const OperandLayout& output : request.outputs) {
      strides_.push_back(output.strides);
      widths_.push_back(size_of(output.spec.dtype));
    }
    kernel_ = std::make_unique<cuda::ElementwiseKernel>(
        elementwise::expand(request.op, request.attributes, inputs), shape, strides_);
  }

  bool in_place(int input, int output) const override {
    const auto i = static_cast<size_t>(input);
    const auto o = inputs_ + static_cast<size_t>(output);
    return widths_[i] == widths_[o] && strides_[i] == strides_[o];
  }

  void launch(const LaunchArgs& args) const override { kernel_->launch(args.inputs, args.stream); }

 private:
  size_t inputs_ = 0;
  std::vector<Strides> strides_;
  std::vector<size_t> widths_;
  std::unique_ptr<cuda::ElementwiseKernel> kernel_;
};

std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<ElementwiseLaunch>(request);
}

const RegisterElementwiseKernel registered(DeviceKind::gpu, {.prepare = prepare,
                                                             .strided_inputs = true,
                                                             .thread_invariant = true});

}  // namespace
}  // namespace lockstep
