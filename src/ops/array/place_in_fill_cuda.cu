// A tensor at its place among zeros or another number: the gradient of a slice, and pad. One pass over the
// result.
#include <bit>
#include <cstring>

#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "ops/array/join.h"
#include "ops/array/strided_slice_grad.h"

namespace lockstep::cuda {
namespace {

// Innermost dimension first.
struct Places {
  int rank = 0;
  Divider size[kMaxRank];  // of the result
  int64_t begin[kMaxRank], step[kMaxRank], count[kMaxRank], stride[kMaxRank];
};

template <class Unit>
__global__ void place(const Unit* in, Unit* out, Unit fill, Places places, int64_t elements) {
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    int64_t index = i;
    int64_t offset = 0;
    bool inside = true;
#pragma unroll 1
    for (int d = 0; d < places.rank; ++d) {
      const int64_t rest = places.size[d].quotient(index);
      const int64_t distance = index - rest * places.size[d].divisor() - places.begin[d];
      const int64_t at = places.step[d] == 1 ? distance : distance / places.step[d];
      inside = inside && at >= 0 && at < places.count[d] && at * places.step[d] == distance;
      offset += at * places.stride[d];
      index = rest;
    }
    out[i] = inside ? in[offset] : fill;
  }
}

uint64_t bits_of(double value, DType dtype) {
  return dispatch(dtype, [&]<class T>() -> uint64_t {
    T element;
    if constexpr (sizeof(T) == 2)
      element = static_cast<T>(static_cast<float>(value));
    else
      element = static_cast<T>(value);
    if constexpr (sizeof(T) == 8)
      return std::bit_cast<uint64_t>(element);
    else if constexpr (sizeof(T) == 4)
      return std::bit_cast<uint32_t>(element);
    else if constexpr (sizeof(T) == 2)
      return std::bit_cast<uint16_t>(element);
    else
      return std::bit_cast<uint8_t>(element);
  });
}

class PlaceInFill final : public Kernel {
 public:
  PlaceInFill(const KernelRequest& request, const Dims& begin, const Dims& step, double value)
      : in_(request.inputs[0]),
        out_(request.outputs[0].spec.shape),
        begin_(begin),
        step_(step),
        fill_(bits_of(value, request.dtype(0))) {}

  void launch(const LaunchArgs& args) const override {
    const int64_t elements = out_.size();
    if (elements == 0) return;
    const int64_t width = unit(args);
    Places places;
    for (int d = out_.rank() - 1; d >= 0; --d) {
      const int64_t share = d == out_.rank() - 1 ? width : 1;
      places.size[places.rank] = Divider(out_[d] / share);
      places.begin[places.rank] = begin_[d] / share;
      places.step[places.rank] = step_[d];
      places.count[places.rank] = in_.spec.shape[d] / share;
      places.stride[places.rank] = share > 1 ? 1 : in_.strides[d] / width;
      ++places.rank;
    }
    dispatch_bytes(size_of(in_.spec.dtype) * static_cast<size_t>(width), [&]<class Unit>() {
      place<<<blocks_for(elements / width), kThreads, 0, stream_of(args)>>>(
          static_cast<const Unit*>(args.inputs[0]), static_cast<Unit*>(args.outputs[0]), filled<Unit>(),
          places, elements / width);
    });
    launched();
  }

 private:
  // Neighbouring elements that are moved together: those of 16 bytes where rows of the last dimension are
  // whole and aligned, else one.
  int64_t unit(const LaunchArgs& args) const {
    const int last = out_.rank() - 1;
    const auto width = static_cast<int64_t>(16 / size_of(in_.spec.dtype));
    const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
    if (last < 0 || begin_[last] % width != 0 || step_[last] != 1 || in_.spec.shape[last] % width != 0 ||
        out_[last] % width != 0 || in_.strides[last] != 1 || !aligned(args.inputs[0]) ||
        !aligned(args.outputs[0]))
      return 1;
    for (int d = 0; d < last; ++d)
      if (in_.strides[d] % width != 0) return 1;
    return width;
  }

  template <class Unit>
  Unit filled() const {
    Unit all;
    for (size_t i = 0; i < sizeof all; i += size_of(in_.spec.dtype))
      std::memcpy(reinterpret_cast<char*>(&all) + i, &fill_, size_of(in_.spec.dtype));
    return all;
  }

  OperandLayout in_;
  Shape out_;
  Dims begin_, step_;
  uint64_t fill_;
};

std::unique_ptr<Kernel> prepare_slice_grad(const KernelRequest& request) {
  const auto& slice = request.attrs<StridedSliceGradAttrs>().slice;
  return std::make_unique<PlaceInFill>(request, slice.begin, slice.stride, 0);
}

std::unique_ptr<Kernel> prepare_pad(const KernelRequest& request) {
  const auto& [before, after, value] = request.attrs<PadAttrs>();
  return std::make_unique<PlaceInFill>(request, before, Dims::filled(before.rank(), 1), value);
}

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kStridedSliceGrad, {.prepare = prepare_slice_grad, .strided_inputs = true}},
    {DeviceKind::gpu, kPad, {.prepare = prepare_pad, .strided_inputs = true}}};

}  // namespace
}  // namespace lockstep::cuda
