#include "lockstep/tensor/tensor_like.h"

#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// `number` as an element of type T; what T does not have is refused.
template <class T, class Number>
T element_of(Number number, std::source_location where) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return T(static_cast<float>(number));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(number);
  } else {
    const auto wide = static_cast<double>(number);
    // 2^63 is the first double beyond int64_t.
    const bool in_range = std::is_same_v<Number, int64_t> || (wide >= -0x1p63 && wide < 0x1p63);
    const int64_t whole = in_range ? static_cast<int64_t>(number) : 0;
    require(in_range && static_cast<Number>(whole) == number && whole >= std::numeric_limits<T>::min() &&
                whole <= std::numeric_limits<T>::max(),
            ErrorCode::dtype_mismatch, where, number, " is no number of dtype ", dtype_of<T>);
    return static_cast<T>(whole);
  }
}

template <class Number>
Tensor tensor_of(const std::vector<Number>& numbers, DType dtype, const Shape& shape,
                 std::source_location where) {
  return dispatch(dtype, [&]<class T>() {
    std::vector<T> elements;
    elements.reserve(numbers.size());
    for (const Number number : numbers) elements.push_back(element_of<T>(number, where));
    return Tensor::from(elements, shape, where);
  });
}

}  // namespace

void TensorLike::require_even(const Shape& first, const Shape& other) const {
  require(first == other, ErrorCode::shape_mismatch, where_,
          "numbers in braces: all parts must be of one shape, received one of ", first, " and one of ",
          other);
}

Tensor TensorLike::tensor(std::optional<DType> dtype) && {
  return numbers_ ? std::as_const(*this).tensor(dtype) : std::move(tensor_);
}

Tensor TensorLike::tensor(std::optional<DType> dtype) const& {
  if (!numbers_) return tensor_;
  return integers_.empty() ? tensor_of(floats_, dtype.value_or(dtype_), shape_, where_)
                           : tensor_of(integers_, dtype.value_or(dtype_), shape_, where_);
}

}  // namespace lockstep
