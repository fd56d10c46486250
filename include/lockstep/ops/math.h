// Elementwise ops. Shapes broadcast by NumPy's rules; dtypes must be equal (cast() converts).
// All throw Error(shape_mismatch | dtype_mismatch) naming the op, the rule and what was received.
#pragma once

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

Tensor add(const OperandArg& a, const OperandArg& b);
Tensor subtract(const OperandArg& a, const OperandArg& b);
Tensor multiply(const OperandArg& a, const OperandArg& b);
Tensor divide(const OperandArg& a, const OperandArg& b);
Tensor maximum(const OperandArg& a, const OperandArg& b);
Tensor minimum(const OperandArg& a, const OperandArg& b);
Tensor pow(const OperandArg& base, const OperandArg& exponent);
Tensor floormod(const OperandArg& a, const OperandArg& b);  // the sign of b, as in Python
Tensor floordiv(const OperandArg& a, const OperandArg& b);  // rounded down, as in Python; integers by 0: 0
Tensor atan2(const OperandArg& y, const OperandArg& x);     // the angle of the point (x, y), in [-pi, pi]
Tensor squared_difference(const OperandArg& a, const OperandArg& b);
Tensor divide_no_nan(const OperandArg& a, const OperandArg& b);  // 0 where b is 0, and so is the gradient

Tensor operator+(const OperandArg& a, const OperandArg& b);
Tensor operator-(const OperandArg& a, const OperandArg& b);
Tensor operator*(const OperandArg& a, const OperandArg& b);
Tensor operator/(const OperandArg& a, const OperandArg& b);
Tensor operator-(const TensorArg& x);
Tensor operator<(const OperandArg& a, const OperandArg& b);
Tensor operator<=(const OperandArg& a, const OperandArg& b);
Tensor operator>(const OperandArg& a, const OperandArg& b);
Tensor operator>=(const OperandArg& a, const OperandArg& b);
// Element by element, as in TensorFlow: reduce_all(a == b) says whether two tensors are equal.
Tensor operator==(const OperandArg& a, const OperandArg& b);
Tensor operator!=(const OperandArg& a, const OperandArg& b);
// The name stands for another tensor from then on; nothing that was computed from the old one changes.
inline Tensor& operator+=(Tensor& a, const OperandArg& b) { return a = add({a, b.where()}, b); }
inline Tensor& operator-=(Tensor& a, const OperandArg& b) { return a = subtract({a, b.where()}, b); }
inline Tensor& operator*=(Tensor& a, const OperandArg& b) { return a = multiply({a, b.where()}, b); }
inline Tensor& operator/=(Tensor& a, const OperandArg& b) { return a = divide({a, b.where()}, b); }
// The variable gets a new value: assign_add() and its kin.
const Variable& operator+=(const Variable& variable, const OperandArg& delta);
const Variable& operator-=(const Variable& variable, const OperandArg& delta);
const Variable& operator*=(const Variable& variable, const OperandArg& factor);
const Variable& operator/=(const Variable& variable, const OperandArg& divisor);

Tensor identity(const TensorArg& x);
Tensor negative(const TensorArg& x);
Tensor abs(const TensorArg& x);
Tensor sign(const TensorArg& x);
Tensor floor(const TensorArg& x);
Tensor ceil(const TensorArg& x);
Tensor round(const TensorArg& x);  // half to even
Tensor square(const TensorArg& x);
Tensor sqrt(const TensorArg& x);
Tensor rsqrt(const TensorArg& x);
Tensor reciprocal(const TensorArg& x);
Tensor exp(const TensorArg& x);
Tensor expm1(const TensorArg& x);
Tensor log(const TensorArg& x);
Tensor log1p(const TensorArg& x);
Tensor tanh(const TensorArg& x);
Tensor sigmoid(const TensorArg& x);
Tensor erf(const TensorArg& x);
Tensor sin(const TensorArg& x);
Tensor cos(const TensorArg& x);
Tensor tan(const TensorArg& x);
Tensor asin(const TensorArg& x);
Tensor acos(const TensorArg& x);
Tensor atan(const TensorArg& x);
Tensor sinh(const TensorArg& x);
Tensor cosh(const TensorArg& x);
Tensor asinh(const TensorArg& x);
Tensor acosh(const TensorArg& x);
Tensor atanh(const TensorArg& x);
Tensor erfc(const TensorArg& x);  // 1 - erf(x), exact to the last digits where that is tiny
Tensor log2(const TensorArg& x);
Tensor log10(const TensorArg& x);
Tensor truncate(const TensorArg& x);  // towards 0
Tensor softplus(const TensorArg& x);
Tensor relu(const TensorArg& x);
struct GeluOptions {
  bool approximate = false;  // the tanh form
};
Tensor gelu(const TensorArg& x, GeluOptions options = {});

// Booleans.
Tensor less(const OperandArg& a, const OperandArg& b);
Tensor less_equal(const OperandArg& a, const OperandArg& b);
Tensor greater(const OperandArg& a, const OperandArg& b);
Tensor greater_equal(const OperandArg& a, const OperandArg& b);
Tensor equal(const OperandArg& a, const OperandArg& b);
Tensor not_equal(const OperandArg& a, const OperandArg& b);
Tensor logical_and(const TensorArg& a, const TensorArg& b);
Tensor logical_or(const TensorArg& a, const TensorArg& b);
Tensor logical_xor(const TensorArg& a, const TensorArg& b);
Tensor logical_not(const TensorArg& a);
Tensor is_nan(const TensorArg& x);
Tensor is_inf(const TensorArg& x);  // of either sign
Tensor is_finite(const TensorArg& x);

// condition ? a : b, element by element.
Tensor where(const TensorArg& condition, const OperandArg& a, const OperandArg& b);
Tensor clip_by_value(const TensorArg& x, const OperandArg& low, const OperandArg& high);
// Float to integer truncates; to bool: not zero.
Tensor cast(const TensorArg& x, DType dtype);

// x itself; its gradient is cut off.
Tensor stop_gradient(const TensorArg& x);

Tensor zeros(const Shape& shape, DType dtype = DType::float32,
             std::source_location where = std::source_location::current());
Tensor ones(const Shape& shape, DType dtype = DType::float32,
            std::source_location where = std::source_location::current());
Tensor full(const Shape& shape, double value, DType dtype = DType::float32,
            std::source_location where = std::source_location::current());
Tensor zeros_like(const TensorArg& x);
Tensor ones_like(const TensorArg& x);

}  // namespace lockstep
