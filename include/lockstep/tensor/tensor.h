// Tensor: a handle to an array of one element type on one device, or to a value of a traced program.
//
// Copying a Tensor copies the handle. The elements of a tensor never change through its handle:
// what is updated in place are Variables. A tensor is contiguous or a strided view of another's
// storage (slices and transposes); which one never matters to a caller of ops.
//
// Inside a traced function tensors are symbolic: they have a dtype and a shape but no elements.
// Reading elements then is an error. Handles may be used from any thread; one handle object must
// not be written from two.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace lockstep {

struct TensorImpl;

// The elements of a tensor in host memory, in row-major order: a span that keeps them alive.
template <class T>
class Elements : public std::span<const T> {
 public:
  Elements(std::span<const T> elements, std::shared_ptr<const void> owner)
      : std::span<const T>(elements), owner_(std::move(owner)) {}

 private:
  std::shared_ptr<const void> owner_;
};

class Tensor {
 public:
  // No tensor at all: defined() is false. Stands for "none", for example an unconnected gradient.
  Tensor() = default;
  explicit Tensor(std::shared_ptr<const TensorImpl> impl) : impl_(std::move(impl)) {}

  // A tensor on the current device with a copy of these elements in row-major order.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape,
                     std::source_location where = std::source_location::current()) {
    return from_bytes(dtype_of<T>, shape, values.data(), values.size(), where);
  }
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape,
                     std::source_location where = std::source_location::current()) {
    return from_bytes(dtype_of<T>, shape, values.data(), values.size(), where);
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape,
                     std::source_location where = std::source_location::current()) {
    return from_bytes(dtype_of<T>, shape, values.begin(), values.size(), where);
  }
  static Tensor from(const std::vector<bool>& values, const Shape& shape,
                     std::source_location where = std::source_location::current());
  template <class T>
  static Tensor scalar(T value, std::source_location where = std::source_location::current()) {
    return from_bytes(dtype_of<T>, {}, &value, 1, where);
  }
  // Elements not set: every one must be written before it is read.
  static Tensor empty(DType dtype, const Shape& shape, Device& device = current_device(),
                      std::source_location where = std::source_location::current());
  static Tensor full(DType dtype, const Shape& shape, double value, Device& device = current_device(),
                     std::source_location where = std::source_location::current());

  bool defined() const { return impl_ != nullptr; }
  // True inside a traced function.
  bool symbolic() const;

  const TensorSpec& spec(std::source_location where = std::source_location::current()) const;
  const Shape& shape(std::source_location where = std::source_location::current()) const {
    return spec(where).shape;
  }
  DType dtype(std::source_location where = std::source_location::current()) const {
    return spec(where).dtype;
  }
  int rank(std::source_location where = std::source_location::current()) const { return shape(where).rank(); }
  int64_t size(std::source_location where = std::source_location::current()) const {
    return shape(where).size();
  }
  Device& device(std::source_location where = std::source_location::current()) const;

  // x[i] along the first dimension, which the result does not have; x[-1] is the last. Differentiable.
  Tensor operator[](Located<int64_t> index) const;

  // The one element of a tensor of size 1.
  template <class T>
  T item(std::source_location where = std::source_location::current()) const {
    T value{};
    read(dtype_of<T>, &value, 1, where);
    return value;
  }
  // All elements in row-major order. T must be the tensor's element type.
  template <class T>
  std::vector<T> to_vector(std::source_location where = std::source_location::current()) const {
    std::vector<T> values(static_cast<size_t>(size(where)));
    read(dtype_of<T>, values.data(), values.size(), where);
    return values;
  }
  // All elements as a span: in place where they are contiguous in host memory that is not lent
  // (lockstep/tensor/from_blob.h), else a copy.
  // x.numpy<int32_t>()[5]
  template <class T = float>
  Elements<T> numpy(std::source_location where = std::source_location::current()) const {
    if (shown_in_place()) return {data<T>(where), impl_};
    const auto count = static_cast<size_t>(size(where));
    const std::shared_ptr<T[]> copy(new T[count]());
    read(dtype_of<T>, copy.get(), count, where);
    return {std::span<const T>(copy.get(), count), copy};
  }
  // The elements in place: host memory only, contiguous only; throws otherwise.
  template <class T>
  std::span<const T> data(std::source_location where = std::source_location::current()) const {
    return {static_cast<const T*>(contiguous_data(dtype_of<T>, where)), static_cast<size_t>(size(where))};
  }

  // A copy on another device (this tensor where it is there already).
  Tensor to(Device& device, std::source_location where = std::source_location::current()) const;

  // "tf.Tensor([[1. 2.]\n [3. 4.]], shape=(2, 2), dtype=float32)"
  std::string to_string() const;

  const std::shared_ptr<const TensorImpl>& impl() const { return impl_; }

 private:
  static Tensor from_bytes(DType dtype, const Shape& shape, const void* values, size_t count,
                           std::source_location where);
  bool shown_in_place() const;
  void read(DType dtype, void* target, size_t count, std::source_location where) const;
  const void* contiguous_data(DType dtype, std::source_location where) const;

  std::shared_ptr<const TensorImpl> impl_;
};

template <>
std::vector<bool> Tensor::to_vector<bool>(std::source_location where) const;

using TensorList = std::vector<Tensor>;

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace lockstep
