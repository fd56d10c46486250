#include "lockstep/tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include "device/copy.h"
#include "lockstep/base/error.h"
#include "observe/thread_times.h"
#include "tensor/countable.h"
#include "tensor/tensor_impl.h"

namespace lockstep {

uint64_t TensorImpl::next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

bool sole_owner(const Tensor& tensor) {
  if (tensor.impl().use_count() != 1 || tensor.impl()->storage.use_count() != 1 ||
      tensor.impl()->storage->borrowed())
    return false;
  // The counts are read without an order of their own.
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

Tensor make_tensor(std::shared_ptr<Storage> storage, const TensorSpec& spec) {
  auto impl = std::make_shared<TensorImpl>();
  impl->spec = spec;
  impl->strides = contiguous_strides(spec.shape);
  impl->storage = std::move(storage);
  return Tensor(std::move(impl));
}

Tensor make_view(const TensorImpl& base, const TensorSpec& spec, const Strides& strides, int64_t offset) {
  auto impl = std::make_shared<TensorImpl>();
  impl->spec = spec;
  impl->strides = strides;
  impl->offset = offset;
  impl->storage = base.storage;
  return Tensor(std::move(impl));
}

Tensor make_symbolic(const TensorSpec& spec, Symbol symbol) {
  auto impl = std::make_shared<TensorImpl>();
  impl->spec = spec;
  impl->symbol = symbol;
  return Tensor(std::move(impl));
}

namespace {

template <size_t Width>
void copy_dim(int dim, const Shape& shape, const char* source, const Strides& ss, char* target,
              const Strides& ts) {
  if (dim == shape.rank()) {
    std::memcpy(target, source, Width);
    return;
  }
  for (int64_t i = 0; i < shape[dim]; ++i)
    copy_dim<Width>(dim + 1, shape, source + i * ss[dim] * static_cast<int64_t>(Width), ss,
                    target + i * ts[dim] * static_cast<int64_t>(Width), ts);
}

// The elements in row-major order. Of a view of memory that only its device can read, all that lies between
// the first and the last element is fetched.
void copy_elements_to_host(const TensorImpl& impl, void* target) {
  DeviceBackend& device = backend_of(impl.storage->device());
  std::optional<observe::ThreadTimeScope> waits;
  if (device.compute_stream().asynchronous()) {
    ++observe::thread_times().value_reads;
    waits.emplace(observe::Category::compute);
  }
  const Shape& shape = impl.spec.shape;
  if (shape.size() == 0 || is_contiguous(shape, impl.strides) || !device.has_memory()) {
    device.copy_to_host(target, impl.data(), impl.spec.bytes());
    return;
  }
  const void* source = impl.data();
  std::vector<char> fetched;
  if (device.kind() != DeviceKind::cpu) {
    int64_t low = 0, high = 0;
    for (int d = 0; d < shape.rank(); ++d) {
      const int64_t reach = (shape[d] - 1) * impl.strides[d];
      (reach < 0 ? low : high) += reach;
    }
    const auto width = static_cast<int64_t>(size_of(impl.spec.dtype));
    fetched.resize(static_cast<size_t>((high - low + 1) * width));
    device.copy_to_host(fetched.data(), static_cast<const char*>(impl.data()) + low * width, fetched.size());
    source = fetched.data() - low * width;
  }
  copy_strided(impl.spec.dtype, shape, source, impl.strides, target, contiguous_strides(shape));
}

const TensorImpl& defined_impl(const std::shared_ptr<const TensorImpl>& impl, std::source_location where) {
  require(impl != nullptr, ErrorCode::failed_precondition, where,
          "this tensor is none: it was default-constructed, or is an unconnected gradient; check defined() "
          "first");
  return *impl;
}

}  // namespace

void copy_strided(DType dtype, const Shape& shape, const void* source, const Strides& source_strides,
                  void* target, const Strides& target_strides) {
  if (shape.size() == 0) return;
  if (is_contiguous(shape, source_strides) && is_contiguous(shape, target_strides)) {
    std::memcpy(target, source, static_cast<size_t>(shape.size()) * size_of(dtype));
    return;
  }
  const auto* s = static_cast<const char*>(source);
  auto* t = static_cast<char*>(target);
  switch (size_of(dtype)) {
    case 1: return copy_dim<1>(0, shape, s, source_strides, t, target_strides);
    case 2: return copy_dim<2>(0, shape, s, source_strides, t, target_strides);
    case 4: return copy_dim<4>(0, shape, s, source_strides, t, target_strides);
    default: return copy_dim<8>(0, shape, s, source_strides, t, target_strides);
  }
}

void require_countable(const TensorSpec& spec, std::string_view what, std::source_location where) {
  auto bytes = static_cast<int64_t>(size_of(spec.dtype));
  for (const int64_t d : spec.shape)
    require(!__builtin_mul_overflow(bytes, std::max<int64_t>(d, 1), &bytes), ErrorCode::out_of_memory, where,
            what, what.empty() ? "" : ": ", "a tensor of shape ", spec.shape,
            " has more bytes than can be counted");
}

Tensor Tensor::empty(DType dtype, const Shape& shape, Device& device, std::source_location where) {
  for (const int64_t d : shape)
    require(d >= 0, ErrorCode::invalid_argument, where,
            "a tensor's dimensions are not negative, received shape ", shape);
  const TensorSpec spec{dtype, shape};
  require_countable(spec, "", where);
  return make_tensor(std::make_shared<Storage>(device, spec.bytes(), where), spec);
}

Tensor Tensor::full(DType dtype, const Shape& shape, double value, Device& device,
                    std::source_location where) {
  Tensor result = empty(dtype, shape, device, where);
  if (!backend_of(device).has_memory()) return result;
  if (device.kind() == DeviceKind::cpu) {
    fill_elements(dtype, result.size(), value, result.impl()->data());
  } else {
    uint64_t element = 0;  // room for one of any type
    fill_elements(dtype, 1, value, &element);
    backend_of(device).compute_stream().fill(result.impl()->data(), element, size_of(dtype),
                                             static_cast<size_t>(result.size()));
  }
  return result;
}

void fill_elements(DType dtype, int64_t count, double value, void* data) {
  dispatch(dtype, [&]<class T>() {
    T element;
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
      element = T(static_cast<float>(value));
    else
      element = static_cast<T>(value);
    std::fill_n(static_cast<T*>(data), count, element);
  });
}

Tensor Tensor::from_bytes(DType dtype, const Shape& shape, const void* values, size_t count,
                          std::source_location where) {
  require(static_cast<int64_t>(count) == shape.size(), ErrorCode::shape_mismatch, where, "a tensor of shape ",
          shape, " has ", shape.size(), " elements, received ", count);
  Tensor result = empty(dtype, shape, current_device(where), where);
  backend_of(result.device()).copy_from_host(result.impl()->data(), values, count * size_of(dtype));
  return result;
}

Tensor Tensor::from(const std::vector<bool>& values, const Shape& shape, std::source_location where) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  return from_bytes(DType::boolean, shape, bytes.data(), bytes.size(), where);
}

bool Tensor::symbolic() const { return impl_ && impl_->symbol.trace != 0; }

const TensorSpec& Tensor::spec(std::source_location where) const { return defined_impl(impl_, where).spec; }

bool Tensor::shown_in_place() const {
  return impl_ && impl_->storage && impl_->storage->device().kind() == DeviceKind::cpu &&
         is_contiguous(impl_->spec.shape, impl_->strides) && !impl_->storage->lent();
}

Device& Tensor::device(std::source_location where) const {
  const TensorImpl& impl = defined_impl(impl_, where);
  require(impl.storage != nullptr, ErrorCode::failed_precondition, where,
          "a tensor of a traced function has no device yet");
  return impl.storage->device();
}

void Tensor::read(DType dtype, void* target, size_t count, std::source_location where) const {
  const TensorImpl& impl = defined_impl(impl_, where);
  require(impl.storage != nullptr, ErrorCode::failed_precondition, where, "a value of ", impl.spec,
          " was read while tracing: inside a traced function tensors have no elements. Return the tensor "
          "from the "
          "function and read it outside, or use ops (where, cond) instead of C++ control flow on values");
  require(dtype == impl.spec.dtype, ErrorCode::dtype_mismatch, where, "the tensor is ", impl.spec,
          " but was read as ", dtype, "; cast() it first");
  require(static_cast<int64_t>(count) == impl.spec.shape.size(), ErrorCode::shape_mismatch, where,
          "item() reads a tensor of one element, this one is ", impl.spec, "; use to_vector()");
  copy_elements_to_host(impl, target);
}

template <>
std::vector<bool> Tensor::to_vector<bool>(std::source_location where) const {
  std::vector<uint8_t> bytes(static_cast<size_t>(size(where)));
  read(DType::boolean, bytes.data(), bytes.size(), where);
  return {bytes.begin(), bytes.end()};
}

const void* Tensor::contiguous_data(DType dtype, std::source_location where) const {
  const TensorImpl& impl = defined_impl(impl_, where);
  require(impl.storage != nullptr, ErrorCode::failed_precondition, where,
          "data() of a tensor inside a traced function: it has no elements; read it outside the function");
  require(dtype == impl.spec.dtype, ErrorCode::dtype_mismatch, where, "the tensor is ", impl.spec,
          " but data() was asked for ", dtype);
  require(is_contiguous(impl.spec.shape, impl.strides), ErrorCode::failed_precondition, where,
          "data() of a strided view of ", impl.spec, "; use to_vector(), which copies in row-major order");
  require(impl.storage->device().kind() == DeviceKind::cpu, ErrorCode::failed_precondition, where,
          "data() of a tensor on ", impl.storage->device().name(),
          ", whose elements the CPU cannot read in place; use to_vector()");
  return impl.data();
}

Tensor Tensor::to(Device& target, std::source_location where) const {
  const TensorImpl& impl = defined_impl(impl_, where);
  require(impl.storage != nullptr, ErrorCode::failed_precondition, where,
          "to() inside a traced function: placement is decided when the function is compiled");
  Device& source = impl.storage->device();
  if (&source == &target) return *this;
  Tensor result = empty(impl.spec.dtype, impl.spec.shape, target, where);
  const size_t bytes = impl.spec.bytes();
  if (is_contiguous(impl.spec.shape, impl.strides) || !backend_of(source).has_memory() ||
      !backend_of(target).has_memory()) {
    copy_across(source, impl.data(), target, result.impl()->data(), bytes);
    return result;
  }
  if (target.kind() == DeviceKind::cpu) {
    copy_elements_to_host(impl, result.impl()->data());
  } else {
    std::vector<char> laid_out(bytes);
    copy_elements_to_host(impl, laid_out.data());
    backend_of(target).copy_from_host(result.impl()->data(), laid_out.data(), bytes);
  }
  backend_of(source).count_copy(0, static_cast<int64_t>(bytes));
  backend_of(target).count_copy(static_cast<int64_t>(bytes), 0);
  return result;
}

}  // namespace lockstep
