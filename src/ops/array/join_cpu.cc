// concat on the CPU: each part is copied to its place.
#include "graph/kernel.h"
#include "ops/array/join.h"
#include "ops/array/strided_copy_cpu.h"

namespace lockstep {
namespace {

class ConcatKernel final : public Kernel {
 public:
  explicit ConcatKernel(const KernelRequest& request) : threads_(request.threads) {
    const auto axis = static_cast<int>(request.attrs<ConcatAttrs>().axis);
    const OperandLayout& out = request.outputs[0];
    const auto width = static_cast<int64_t>(size_of(out.spec.dtype));
    int64_t position = 0;
    for (const OperandLayout& in : request.inputs) {
      parts_.push_back({cpu::StridedCopy(in.spec.shape, in.strides, out.strides, in.spec.dtype),
                        position * out.strides[axis] * width});
      position += in.spec.shape[axis];
    }
  }

  void launch(const LaunchArgs& args) const override {
    for (size_t i = 0; i < parts_.size(); ++i)
      parts_[i].copy.run(args.inputs[i], static_cast<char*>(args.outputs[0]) + parts_[i].offset, threads_);
  }

 private:
  struct Part {
    cpu::StridedCopy copy;
    int64_t offset;  // in bytes
  };
  std::vector<Part> parts_;
  int threads_;
};

const RegisterKernel registered(DeviceKind::cpu, kConcat,
                                {.prepare = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
                                   return std::make_unique<ConcatKernel>(request);
                                 },
                                 .strided_inputs = true});

}  // namespace
}  // namespace lockstep
