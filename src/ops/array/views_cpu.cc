// Views that the memory layout does not allow are copies in row-major order, on the CPU as strided copies.
#include "graph/kernel.h"
#include "ops/array/array.h"
#include "ops/array/barrier.h"
#include "ops/array/strided_copy_cpu.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

class ViewCopy final : public Kernel {
 public:
  ViewCopy(const Shape& shape, const Strides& strides, int64_t offset, const KernelRequest& request)
      : copy_(shape, strides, contiguous_strides(shape), request.dtype(0)),
        offset_(offset * static_cast<int64_t>(size_of(request.dtype(0)))),
        threads_(request.threads) {}

  void launch(const LaunchArgs& args) const override {
    copy_.run(static_cast<const char*>(args.inputs[0]) + offset_, args.outputs[0], threads_);
  }

 private:
  cpu::StridedCopy copy_;
  int64_t offset_;  // in bytes
  int threads_;
};

std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  const OperandLayout& in = request.inputs[0];
  const TensorSpec& out = request.outputs[0].spec;
  if (request.op.view)
    if (const auto view = request.op.view({in.spec, in.strides, out, request.attributes}))
      return std::make_unique<ViewCopy>(out.shape, view->strides, view->offset, request);
  // A reshape that is no view keeps the row-major order of its input, and so does identity.
  return std::make_unique<ViewCopy>(in.spec.shape, in.strides, 0, request);
}

constexpr KernelDef kCopy{.prepare = prepare, .strided_inputs = true};

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kReshape, kCopy},      {DeviceKind::cpu, kTranspose, kCopy},
    {DeviceKind::cpu, kStridedSlice, kCopy}, {DeviceKind::cpu, kBroadcastTo, kCopy},
    {DeviceKind::cpu, kBarrier, kCopy},      {DeviceKind::cpu, kIdentity, kCopy}};

}  // namespace
}  // namespace lockstep
