// A tensor at its place among zeros or another number, on the CPU: the gradient of a slice, and pad.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/parallel.h"
#include "graph/kernel.h"
#include "ops/array/join.h"
#include "ops/array/strided_copy_cpu.h"
#include "ops/array/strided_slice_grad.h"

namespace lockstep {
namespace {

class PlaceInFill final : public Kernel {
 public:
  PlaceInFill(const KernelRequest& request, const Dims& begin, const Dims& stride, double value = 0)
      : copy_(request.shape(0), request.inputs[0].strides, target_strides(request.outputs[0], stride),
              request.dtype(0)),
        bytes_(static_cast<int64_t>(request.outputs[0].spec.bytes())),
        whole_(request.outputs[0].spec.shape == request.shape(0)),
        dtype_(request.dtype(0)),
        value_(value),
        threads_(request.threads) {
    const auto width = static_cast<int64_t>(size_of(request.dtype(0)));
    if (request.shape(0).size() > 0)
      for (int i = 0; i < begin.rank(); ++i) offset_ += begin[i] * request.outputs[0].strides[i] * width;
  }

  void launch(const LaunchArgs& args) const override {
    auto* out = static_cast<char*>(args.outputs[0]);
    if (!whole_) fill(out);
    copy_.run(args.inputs[0], out + offset_, threads_);
  }

 private:
  void fill(char* out) const {
    constexpr int64_t kGrain = 256 << 10;
    parallel_for(bytes_, kGrain, threads_, [&](int64_t begin, int64_t end) {
      if (std::bit_cast<uint64_t>(value_) == 0)
        std::memset(out + begin, 0, static_cast<size_t>(end - begin));
      else
        dispatch(dtype_, [&]<class T>() {
          T element;
          if constexpr (sizeof(T) == 2)
            element = static_cast<T>(static_cast<float>(value_));
          else
            element = static_cast<T>(value_);
          std::fill(reinterpret_cast<T*>(out + begin), reinterpret_cast<T*>(out + end), element);
        });
    });
  }

  static Strides target_strides(const OperandLayout& out, const Dims& stride) {
    Strides strides = out.strides;
    for (int i = 0; i < stride.rank(); ++i) strides[i] *= stride[i];
    return strides;
  }

  cpu::StridedCopy copy_;
  int64_t bytes_;
  int64_t offset_ = 0;  // in bytes
  bool whole_;          // nothing is left to be filled
  DType dtype_;
  double value_;
  int threads_;
};

std::unique_ptr<Kernel> prepare_slice_grad(const KernelRequest& request) {
  const auto& slice = request.attrs<StridedSliceGradAttrs>().slice;
  return std::make_unique<PlaceInFill>(request, slice.begin, slice.stride);
}

std::unique_ptr<Kernel> prepare_pad(const KernelRequest& request) {
  const auto& [before, after, value] = request.attrs<PadAttrs>();
  return std::make_unique<PlaceInFill>(request, before, Dims::filled(before.rank(), 1), value);
}

const RegisterKernel registered[] = {
    {DeviceKind::cpu, kStridedSliceGrad, {.prepare = prepare_slice_grad, .strided_inputs = true}},
    {DeviceKind::cpu, kPad, {.prepare = prepare_pad, .strided_inputs = true}}};

}  // namespace
}  // namespace lockstep
