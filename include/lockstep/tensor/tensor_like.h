// What becomes a tensor where one is wanted: a tensor, a variable, a number, or numbers in braces.
//
//   tf::constant({{1.0, 2.0}, {3.0, 4.0}})    tf::Variable v(1.0F);    v.assign({5, 6});
//
// As in TensorFlow, numbers in braces are float32 (1.0, which C++ takes for a double) or int32 (1) where
// nobody says another dtype; numbers of type int64_t, uint8_t and bool keep theirs, and so does all that a
// std::vector holds.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

template <class T>
concept Number = std::is_arithmetic_v<T>;

class TensorLike {
 public:
  // NOLINTBEGIN(google-explicit-constructor): conversion at the call is the purpose
  TensorLike(Tensor tensor, std::source_location where = std::source_location::current())
      : tensor_(std::move(tensor)), where_(where) {}
  // A variable, read here.
  template <class V>
  requires requires(const V& variable, std::source_location where) {
    { variable.value(where) } -> std::same_as<Tensor>;
  }
  TensorLike(const V& variable, std::source_location where = std::source_location::current())
      : tensor_(variable.value(where)), where_(where) {}
  template <Number T>
  TensorLike(T number, std::source_location where = std::source_location::current())
      : numbers_(true), dtype_(literal_dtype<T>()), where_(where) {
    add(number);
  }
  template <Number T>
  TensorLike(std::initializer_list<T> numbers, std::source_location where = std::source_location::current())
      : numbers_(true), dtype_(literal_dtype<T>()), where_(where) {
    add(numbers);
  }
  template <Number T>
  TensorLike(std::initializer_list<std::initializer_list<T>> rows,
             std::source_location where = std::source_location::current())
      : numbers_(true), dtype_(literal_dtype<T>()), where_(where) {
    add(rows);
  }
  template <Number T>
  TensorLike(std::initializer_list<std::initializer_list<std::initializer_list<T>>> blocks,
             std::source_location where = std::source_location::current())
      : numbers_(true), dtype_(literal_dtype<T>()), where_(where) {
    add(blocks);
  }
  template <Number T>
  TensorLike(const std::vector<T>& numbers, std::source_location where = std::source_location::current())
      : numbers_(true),
        dtype_(std::is_same_v<T, double> ? DType::float64 : literal_dtype<T>()),
        where_(where) {
    add(numbers);
  }
  // NOLINTEND(google-explicit-constructor)

  // Whether it was a tensor or a variable, and not numbers.
  bool is_tensor() const { return !numbers_; }
  // What is a tensor is returned as it is. Numbers become one of this dtype, nullopt: as described above. A
  // number that the dtype does not have (0.5 of int32) throws Error(dtype_mismatch).
  Tensor tensor(std::optional<DType> dtype = {}) const&;
  // The same for one that is not used any more: a tensor that nobody else holds stays the only handle of its
  // memory.
  Tensor tensor(std::optional<DType> dtype = {}) &&;
  std::source_location where() const { return where_; }

 private:
  template <class T>
  static constexpr DType literal_dtype() {
    if constexpr (std::is_same_v<T, bool>)
      return DType::boolean;
    else if constexpr (std::is_floating_point_v<T>)
      return DType::float32;
    else if constexpr (std::is_same_v<T, uint8_t>)
      return DType::uint8;
    else
      return sizeof(T) < sizeof(int64_t) && std::is_signed_v<T> ? DType::int32 : DType::int64;
  }

  // Adds a number, or all that a list holds, whose parts must be of one shape. Returns the shape.
  template <class T>
  Shape add(const T& given) {
    if constexpr (std::is_floating_point_v<T>) {
      floats_.push_back(static_cast<double>(given));
      return {};
    } else if constexpr (std::is_integral_v<T>) {
      integers_.push_back(static_cast<int64_t>(given));
      return {};
    } else {
      Shape part;
      int64_t parts = 0;
      for (const auto& item : given) {
        const Shape shape = add(item);
        if (parts++ > 0) require_even(part, shape);
        part = shape;
      }
      part.insert(0, parts);
      return shape_ = part;
    }
  }
  void require_even(const Shape& first, const Shape& other) const;

  Tensor tensor_;
  // Else numbers, of which one of these has all.
  bool numbers_ = false;
  DType dtype_ = DType::float32;
  Shape shape_;
  std::vector<double> floats_;
  std::vector<int64_t> integers_;
  std::source_location where_;
};

// The elements as a tensor of this dtype (nullopt: that of the values) and, where it is given, of this shape,
// which a single number fills. A tensor of another dtype is cast.
Tensor constant(const TensorLike& value, std::optional<DType> dtype = {}, std::optional<Shape> shape = {});
// The same, but a tensor of another dtype is an error, as in TensorFlow.
Tensor convert_to_tensor(const TensorLike& value, std::optional<DType> dtype = {});

}  // namespace lockstep
