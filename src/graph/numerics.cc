#include "graph/numerics.h"

#include <cmath>
#include <limits>

#include "device/device_backend.h"

namespace lockstep {
namespace {

template <class F>
void each_offset(const Shape& shape, const Strides& strides, int axis, int64_t offset, F&& f) {
  if (axis == shape.rank()) return f(offset);
  for (int64_t i = 0; i < shape[axis]; ++i)
    each_offset(shape, strides, axis + 1, offset + i * strides[axis], f);
}

template <class T>
NonFinite count(const OperandLayout& layout, const void* data) {
  NonFinite found{.min = std::numeric_limits<double>::infinity(),
                  .max = -std::numeric_limits<double>::infinity()};
  const auto* elements = static_cast<const T*>(data);
  const auto look = [&](int64_t offset) {
    double value = 0;
    if constexpr (std::is_same_v<T, double>)
      value = elements[offset];
    else
      value = static_cast<float>(elements[offset]);
    if (std::isnan(value)) {
      ++found.nans;
    } else if (std::isinf(value)) {
      ++found.infs;
    } else {
      ++found.finite;
      found.min = std::min(found.min, value);
      found.max = std::max(found.max, value);
    }
  };
  if (layout.contiguous())
    for (int64_t i = 0; i < layout.spec.shape.size(); ++i) look(i);
  else
    each_offset(layout.spec.shape, layout.strides, 0, 0, look);
  return found;
}

}  // namespace

NonFinite count_non_finite(const OperandLayout& layout, const void* data) {
  switch (layout.spec.dtype) {
    case DType::float64: return count<double>(layout, data);
    case DType::float32: return count<float>(layout, data);
    case DType::bfloat16: return count<BFloat16>(layout, data);
    default: return count<Float16>(layout, data);
  }
}

namespace {

// The elements of an operand where the CPU can read them. Data points to the element at index 0, which need
// not be the one with the lowest address.
class OnHost {
 public:
  OnHost(const Device& device, const OperandLayout& layout, const void* data) : data_(data) {
    if (device.kind() == DeviceKind::cpu || layout.spec.shape.size() == 0) return;
    int64_t low = 0, high = 0;
    for (int d = 0; d < layout.spec.shape.rank(); ++d) {
      const int64_t reach = (layout.spec.shape[d] - 1) * layout.strides[d];
      (reach < 0 ? low : high) += reach;
    }
    const auto width = static_cast<int64_t>(size_of(layout.spec.dtype));
    bytes_.resize(static_cast<size_t>((high - low + 1) * width));
    backend_of(device).copy_to_host(bytes_.data(), static_cast<const char*>(data) + low * width,
                                    bytes_.size());
    data_ = bytes_.data() - low * width;
  }
  const void* data() const { return data_; }

 private:
  std::vector<char> bytes_;
  const void* data_;
};

}  // namespace

void check_numerics(const Device& device, std::string_view op, std::span<const OperandLayout> inputs,
                    std::span<const OperandLayout> outputs, void* const* pointers,
                    std::source_location where) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!is_floating(outputs[o].spec.dtype)) continue;
    const NonFinite found =
        count_non_finite(outputs[o], OnHost(device, outputs[o], pointers[inputs.size() + o]).data());
    if (found.nans == 0 && found.infs == 0) continue;
    std::string ranges;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ranges += detail::concat(i ? ", input " : "; input ", i, " ", inputs[i].spec);
      bool overwritten = false;
      for (size_t k = 0; k < outputs.size(); ++k)
        overwritten = overwritten || pointers[inputs.size() + k] == pointers[i];
      if (overwritten) {
        ranges += " overwritten by the result";
      } else if (is_floating(inputs[i].spec.dtype)) {
        const NonFinite in = count_non_finite(inputs[i], OnHost(device, inputs[i], pointers[i]).data());
        if (in.finite > 0) ranges += detail::concat(" in [", in.min, ", ", in.max, "]");
        if (in.nans + in.infs > 0) ranges += detail::concat(" with ", in.nans, " NaN, ", in.infs, " Inf");
      }
    }
    const LaunchPlace place = launch_place();
    fail(ErrorCode::invalid_argument, where, op, ": output ", o, " ", outputs[o].spec, " has ", found.nans,
         " NaN and ", found.infs, " Inf among ", outputs[o].spec.shape.size(), " elements",
         place.replica >= 0 ? detail::concat(" in replica ", place.replica) : "", ranges);
  }
}

}  // namespace lockstep
