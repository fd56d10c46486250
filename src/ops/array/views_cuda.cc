// Views that the memory layout does not allow, and joined tensors: strided copies.
#include "backends/cuda/launch.h"
#include "ops/array/array.h"
#include "ops/array/barrier.h"
#include "ops/array/join.h"
#include "ops/array/strided_copy_cuda.h"
#include "ops/elementwise/ops.h"

namespace lockstep::cuda {
namespace {

class ViewCopy final : public Kernel {
 public:
  ViewCopy(const Shape& shape, const Strides& strides, int64_t offset, DType dtype)
      : copy_(shape, strides, contiguous_strides(shape), dtype),
        offset_(offset * static_cast<int64_t>(size_of(dtype))) {}

  void launch(const LaunchArgs& args) const override {
    copy_.run(static_cast<const char*>(args.inputs[0]) + offset_, args.outputs[0], stream_of(args));
  }

 private:
  StridedCopy copy_;
  int64_t offset_;  // in bytes
};

std::unique_ptr<Kernel> prepare_view(const KernelRequest& request) {
  const OperandLayout& in = request.inputs[0];
  const TensorSpec& out = request.outputs[0].spec;
  if (request.op.view)
    if (const auto view = request.op.view({in.spec, in.strides, out, request.attributes}))
      return std::make_unique<ViewCopy>(out.shape, view->strides, view->offset, out.dtype);
  // A reshape that is no view keeps the row-major order of its input, and so does identity.
  return std::make_unique<ViewCopy>(in.spec.shape, in.strides, 0, out.dtype);
}

class ConcatKernel final : public Kernel {
 public:
  explicit ConcatKernel(const KernelRequest& request) {
    const auto axis = static_cast<int>(request.attrs<ConcatAttrs>().axis);
    const OperandLayout& out = request.outputs[0];
    const auto width = static_cast<int64_t>(size_of(out.spec.dtype));
    int64_t position = 0;
    for (const OperandLayout& in : request.inputs) {
      parts_.push_back({StridedCopy(in.spec.shape, in.strides, out.strides, in.spec.dtype),
                        position * out.strides[axis] * width});
      position += in.spec.shape[axis];
    }
  }

  void launch(const LaunchArgs& args) const override {
    for (size_t i = 0; i < parts_.size(); ++i)
      parts_[i].copy.run(args.inputs[i], static_cast<char*>(args.outputs[0]) + parts_[i].offset,
                         stream_of(args));
  }

 private:
  struct Part {
    StridedCopy copy;
    int64_t offset;  // in bytes
  };
  std::vector<Part> parts_;
};

constexpr KernelDef kCopy{.prepare = prepare_view, .strided_inputs = true};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kReshape, kCopy},
    {DeviceKind::gpu, kTranspose, kCopy},
    {DeviceKind::gpu, kStridedSlice, kCopy},
    {DeviceKind::gpu, kBroadcastTo, kCopy},
    {DeviceKind::gpu, kBarrier, kCopy},
    {DeviceKind::gpu, kIdentity, kCopy},
    {DeviceKind::gpu, kConcat, {.prepare = prepare<ConcatKernel>, .strided_inputs = true}}};

}  // namespace
}  // namespace lockstep::cuda
