#include "lockstep/tensor/shape.h"

#include <algorithm>
#include <limits>
#include <ostream>

#include "lockstep/base/error.h"

namespace lockstep {

Dims::Dims(std::initializer_list<int64_t> values, std::source_location where)
    : Dims(std::span<const int64_t>(values.begin(), values.size()), where) {}

Dims::Dims(std::span<const int64_t> values, std::source_location where) {
  require(values.size() <= kMaxRank, ErrorCode::invalid_argument, where, "a shape has at most ", kMaxRank,
          " dimensions, received ", values.size());
  rank_ = static_cast<int>(values.size());
  std::copy(values.begin(), values.end(), values_.begin());
}

Dims Dims::filled(int rank, int64_t value, std::source_location where) {
  Dims result;
  for (int i = 0; i < rank; ++i) result.push_back(value, where);
  return result;
}

void Dims::refuse(Located<int> position) const {
  fail(ErrorCode::invalid_argument, position.where, "position ", position.value, " is outside ", *this);
}

void Dims::push_back(int64_t value, std::source_location where) { insert(rank_, value, where); }

void Dims::insert(int position, int64_t value, std::source_location where) {
  require(rank_ < kMaxRank, ErrorCode::invalid_argument, where, "a shape has at most ", kMaxRank,
          " dimensions; adding one to ", *this);
  std::copy_backward(values_.begin() + position, values_.begin() + rank_, values_.begin() + rank_ + 1);
  values_[static_cast<size_t>(position)] = value;
  ++rank_;
}

void Dims::erase(int position) {
  std::copy(values_.begin() + position + 1, values_.begin() + rank_, values_.begin() + position);
  --rank_;
}

bool Dims::operator==(const Dims& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  out << '(';
  for (int i = 0; i < dims.rank(); ++i) out << (i ? ", " : "") << dims[i];
  return out << (dims.rank() == 1 ? ",)" : ")");
}

int64_t Shape::size() const {
  int64_t product = 1;
  bool beyond = false;
  for (const int64_t d : *this) {
    if (d == 0) return 0;
    beyond |= __builtin_mul_overflow(product, d, &product);
  }
  return beyond ? std::numeric_limits<int64_t>::max() : product;
}

Shape Shape::first(int n) const { return Shape(span().first(static_cast<size_t>(n))); }

Shape Shape::drop_last(int n) const { return first(rank() - n); }

Strides contiguous_strides(const Shape& shape) {
  Strides strides = Strides::filled(shape.rank(), 1);
  for (int i = shape.rank() - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * std::max<int64_t>(shape[i + 1], 1);
  return strides;
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  int64_t expected = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

Shape broadcast(const Shape& a, const Shape& b, const char* op, std::source_location where) {
  const int rank = std::max(a.rank(), b.rank());
  Shape result = Shape(Dims::filled(rank, 1));
  for (int i = 1; i <= rank; ++i) {
    const int64_t da = i <= a.rank() ? a[-i] : 1;
    const int64_t db = i <= b.rank() ? b[-i] : 1;
    require(da == db || da == 1 || db == 1, ErrorCode::shape_mismatch, where, op, ": shapes ", a, " and ", b,
            " do not broadcast: dimension ", -i, " is ", da, " in one and ", db,
            " in the other; equal sizes or 1 are needed");
    result[-i] = da == 1 ? db : da;
  }
  return result;
}

Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target) {
  Strides result = Strides::filled(target.rank(), 0);
  for (int i = 1; i <= shape.rank(); ++i)
    if (shape[-i] != 1 || target[-i] == 1) result[-i] = strides[-i];
  return result;
}

int normalize_axis(int64_t axis, int rank, const char* op, std::source_location where) {
  require(
      axis >= -rank && axis < rank, ErrorCode::invalid_argument, where, op, ": axis ", axis,
      " does not exist in a tensor of rank ", rank,
      rank == 0 ? " (a scalar has no axes)" : detail::concat("; axes run from ", -rank, " to ", rank - 1));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::ostream& operator<<(std::ostream& out, const TensorSpec& spec) {
  return out << spec.dtype << spec.shape;
}

}  // namespace lockstep
