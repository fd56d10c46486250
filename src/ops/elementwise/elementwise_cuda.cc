// Every elementwise op on NVIDIA GPUs, fused or alone: its program, compiled for the GPU.
#include "backends/cuda/elementwise_kernel.h"
#include "backends/cuda/stream.h"
#include "ops/elementwise/operands.h"

namespace lockstep {
namespace {

class ElementwiseLaunch final : public Kernel {
 public:
  explicit ElementwiseLaunch(const KernelRequest& request)
      : operands_(request),
        kernel_(elementwise::expand(request.op, request.attributes, operands_.input_dtypes()),
                request.outputs[0].spec.shape, operands_.strides()) {}

  bool in_place(int input, int output) const override { return operands_.in_place(input, output); }
  void launch(const LaunchArgs& args) const override {
    kernel_.launch(args.inputs, cuda::cuda_stream(args.stream));
  }

 private:
  elementwise::Operands operands_;
  cuda::ElementwiseKernel kernel_;
};

std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<ElementwiseLaunch>(request);
}

const RegisterElementwiseKernel registered(DeviceKind::gpu, {.prepare = prepare,
                                                             .strided_inputs = true,
                                                             .thread_invariant = true});

}  // namespace
}  // namespace lockstep
