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
  lent_.store(false, std::memory_order_release);
  lender_.reset();
}

namespace {

Tensor over(const char* who, const void* data, const TensorSpec& spec, std::shared_ptr<const void> owner,
            bool lent, std::source_location where) {
  for (const int64_t d : spec.shape)
    require(d >= 0, ErrorCode::invalid_argument, where, who,
            ": a tensor's dimensions are not negative, received shape ", spec.shape);
  require_countable(spec, who, where);
  require(data != nullptr || spec.shape.size() == 0, ErrorCode::invalid_argument, where, who,
          ": the memory of ", spec, " is at a null pointer");
  require(reinterpret_cast<uintptr_t>(data) % size_of(spec.dtype) == 0, ErrorCode::invalid_argument, where,
          who, ": elements of ", spec.dtype, " lie at multiples of ", size_of(spec.dtype),
          " bytes, the memory given begins at ", data, "; copy it to where it is aligned");
  return make_tensor(
      std::make_shared<Storage>(host_device(where), data, spec.bytes(), std::move(owner), lent), spec);
}

}  // namespace

Tensor from_blob(const void* data, const TensorSpec& spec, std::shared_ptr<const void> owner,
                 std::source_location where) {
  return over("from_blob", data, spec, std::move(owner), false, where);
}

Tensor lend(const void* data, const TensorSpec& spec, std::shared_ptr<const void> owner,
            std::source_location where) {
  return over("lend", data, spec, std::move(owner), true, where);
}

Tensor owned(const Tensor& tensor, Device& device, std::source_location where) {
  if (&tensor.device(where) != &device || !tensor.impl()->storage->lent()) return tensor.to(device, where);
  const TensorImpl& impl = *tensor.impl();
  Tensor copy = Tensor::empty(impl.spec.dtype, impl.spec.shape, device, where);
  copy_strided(impl.spec.dtype, impl.spec.shape, impl.data(), impl.strides, copy.impl()->data(),
               contiguous_strides(impl.spec.shape));
  return copy;
}

void give_back(Tensor&& tensor) {
  if (!tensor.defined() || tensor.symbolic() || !tensor.impl()->storage->borrowed()) return;
  // Views have storage in common, and copies of the handle all that is behind it.
  if (tensor.impl().use_count() != 1 || tensor.impl()->storage.use_count() != 1)
    tensor.impl()->storage->keep_copy();
  tensor = {};
}

}  // namespace lockstep
