#include "graph/tensor_bytes.h"

#include <algorithm>
#include <cstring>

#include "graph/eager.h"
#include "tensor/tensor_impl.h"

namespace lockstep {

std::string bytes_of(const Tensor& tensor) {
  const Tensor host =
      tensor.device().kind() == DeviceKind::cpu ? tensor : tensor.to(device_by_name("/CPU:0"));
  const Tensor rows = contiguous(host, std::source_location::current());
  return {static_cast<const char*>(rows.impl()->data()), rows.spec().bytes()};
}

Tensor tensor_of(const TensorSpec& spec, const std::string& bytes) {
  Tensor tensor = Tensor::empty(spec.dtype, spec.shape, device_by_name("/CPU:0"));
  std::memcpy(tensor.impl()->data(), bytes.data(), std::min(bytes.size(), spec.bytes()));
  return tensor;
}

}  // namespace lockstep
