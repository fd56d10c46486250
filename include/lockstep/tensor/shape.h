// Shapes and strides: short lists of integers held inline, so that copying one never allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <source_location>
#include <span>

#include "lockstep/base/call_site.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep {

inline constexpr int kMaxRank = 8;

// At most kMaxRank integers. Negative positions count from the end, as in Python.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values, std::source_location where = std::source_location::current());
  explicit Dims(std::span<const int64_t> values,
                std::source_location where = std::source_location::current());
  static Dims filled(int rank, int64_t value, std::source_location where = std::source_location::current());

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  // Throws Error(invalid_argument) where the position does not exist.
  int64_t operator[](Located<int> position) const { return values_[checked(position)]; }
  int64_t& operator[](Located<int> position) { return values_[checked(position)]; }

  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }
  std::span<const int64_t> span() const { return {begin(), static_cast<size_t>(rank_)}; }

  void push_back(int64_t value, std::source_location where = std::source_location::current());
  void insert(int position, int64_t value, std::source_location where = std::source_location::current());
  void erase(int position);

  bool operator==(const Dims& other) const;

 private:
  size_t checked(Located<int> position) const {
    const int index = position.value < 0 ? position.value + rank_ : position.value;
    if (index < 0 || index >= rank_) [[unlikely]]
      refuse(position);
    return static_cast<size_t>(index);
  }
  [[noreturn]] void refuse(Located<int> position) const;

  int rank_ = 0;
  std::array<int64_t, kMaxRank> values_{};
};

// "(2, 3)", "(5,)", "()"
std::ostream& operator<<(std::ostream& out, const Dims& dims);

using Strides = Dims;  // in elements

class Shape : public Dims {
 public:
  // Written out: nvcc 13 cannot inherit constructors whose default argument is
  // std::source_location::current().
  Shape() = default;
  Shape(std::initializer_list<int64_t> values, std::source_location where = std::source_location::current())
      : Dims(values, where) {}
  explicit Shape(std::span<const int64_t> values,
                 std::source_location where = std::source_location::current())
      : Dims(values, where) {}
  Shape(const Dims& dims) : Dims(dims) {}  // NOLINT(google-explicit-constructor): the same values

  // Number of elements; 1 for a scalar. The largest int64 where there are more: no tensor has such a shape.
  int64_t size() const;
  Shape first(int n) const;
  Shape drop_last(int n) const;
};

Strides contiguous_strides(const Shape& shape);
bool is_contiguous(const Shape& shape, const Strides& strides);

// The shape that both broadcast to by NumPy's rules; throws Error(shape_mismatch) naming `op`.
Shape broadcast(const Shape& a, const Shape& b, const char* op,
                std::source_location where = std::source_location::current());

// Strides that read a tensor of `shape` and `strides` as if it had the larger shape `target`.
Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target);

// -1 becomes rank-1; throws Error(invalid_argument) naming `op` where there is no such axis.
int normalize_axis(int64_t axis, int rank, const char* op,
                   std::source_location where = std::source_location::current());

struct TensorSpec {
  DType dtype = DType::float32;
  Shape shape;

  size_t bytes() const { return static_cast<size_t>(shape.size()) * size_of(dtype); }
  bool operator==(const TensorSpec&) const = default;
};

// "float32(2, 3)"
std::ostream& operator<<(std::ostream& out, const TensorSpec& spec);

}  // namespace lockstep
