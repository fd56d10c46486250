#include "lockstep/tensor/from_blob.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "device/host_device.h"
#include "lockstep/base/error.h"
#include "tensor/countable.h"
#include "tensor/tensor_impl.h"

namespace lockstep {

void Storage::keep_copy() {
  if (own_) return;
  void* const copy = backend_of(device_).allocate(bytes_, std::source_location::current());
  if (bytes_) std::memcpy(copy, data(), bytes_);
  use_ = backend_of(device_).ledger().add(bytes_);
  own_ = true;
  data_.store(copy, std::memory_order_release);
}

Tensor from_blob(const void* data, const TensorSpec& spec, std::shared_ptr<const void> owner,
                 std::source_location where) {
  for (const int64_t d : spec.shape)
    require(d >= 0, ErrorCode::invalid_argument, where,
            "from_blob: a tensor's dimensions are not negative, received shape ", spec.shape);
  require_countable(spec, "from_blob", where);
  require(data != nullptr || spec.shape.size() == 0, ErrorCode::invalid_argument, where,
          "from_blob: the memory of ", spec, " is at a null pointer");
  require(reinterpret_cast<uintptr_t>(data) % size_of(spec.dtype) == 0, ErrorCode::invalid_argument, where,
          "from_blob: elements of ", spec.dtype, " lie at multiples of ", size_of(spec.dtype),
          " bytes, the memory given begins at ", data, "; copy it to where it is aligned");
  return make_tensor(std::make_shared<Storage>(host_device(where), data, spec.bytes(), std::move(owner)),
                     spec);
}

void give_back(Tensor&& tensor) {
  if (!tensor.defined() || tensor.symbolic() || !tensor.impl()->storage->borrowed()) return;
  const Tensor last = std::move(tensor);
  // Views have storage in common, and copies of the handle all that is behind it.
  if (last.impl().use_count() == 1 && last.impl()->storage.use_count() == 1) return;
  last.impl()->storage->keep_copy();
}

}  // namespace lockstep
