// The public functions of the elementwise ops.
#include "lockstep/ops/math.h"

#include <cmath>

#include "graph/emit.h"
#include "ops/elementwise/ops.h"

namespace lockstep {

bool holds_exactly(DType dtype, double value) {
  if (is_floating(dtype)) return true;
  if (value != std::trunc(value)) return false;
  switch (dtype) {
    case DType::boolean: return value == 0 || value == 1;
    case DType::uint8: return value >= 0 && value <= 255;
    case DType::int32: return value >= -0x1p31 && value < 0x1p31;
    default: return value >= -0x1p63 && value < 0x1p63;
  }
}

namespace {

// A number takes the dtype and the device of the tensor beside it.
Tensor number_beside(const Tensor& neighbour, const OperandArg& arg, const OpDef& op) {
  const DType dtype = neighbour.dtype();
  const double value = arg.number();
  require(holds_exactly(dtype, value), ErrorCode::dtype_mismatch, arg.where(), op.name, ": the number ",
          value, " has no exact ", dtype, " value; cast() the tensor to a dtype that holds it first");
  return fill_beside(neighbour, {dtype, {}}, value, arg.where());
}

Tensor binary(const OpDef& op, const OperandArg& a, const OperandArg& b) {
  require(!a.is_number() || !b.is_number(), ErrorCode::invalid_argument, a.where(), op.name,
          ": one side must be a tensor; received two numbers");
  const std::string name(op.name);
  if (a.is_number())
    return emit_one(op, {number_beside(b.tensor(name.c_str()), a, op), b.tensor()}, {}, a.where());
  if (b.is_number())
    return emit_one(op, {a.tensor(), number_beside(a.tensor(name.c_str()), b, op)}, {}, a.where());
  return emit_one(op, {a.tensor(), b.tensor()}, {}, a.where());
}

Tensor unary(const OpDef& op, const TensorArg& x, const Attrs& attrs = {}) {
  return emit_one(op, {x.tensor()}, attrs, x.where());
}

}  // namespace

Tensor add(const OperandArg& a, const OperandArg& b) { return binary(kAdd, a, b); }
Tensor subtract(const OperandArg& a, const OperandArg& b) { return binary(kSub, a, b); }
Tensor multiply(const OperandArg& a, const OperandArg& b) { return binary(kMul, a, b); }
Tensor divide(const OperandArg& a, const OperandArg& b) { return binary(kDiv, a, b); }
Tensor maximum(const OperandArg& a, const OperandArg& b) { return binary(kMaximum, a, b); }
Tensor minimum(const OperandArg& a, const OperandArg& b) { return binary(kMinimum, a, b); }
Tensor pow(const OperandArg& base, const OperandArg& exponent) { return binary(kPow, base, exponent); }
Tensor floormod(const OperandArg& a, const OperandArg& b) { return binary(kMod, a, b); }
Tensor floordiv(const OperandArg& a, const OperandArg& b) { return binary(kFloordiv, a, b); }
Tensor atan2(const OperandArg& y, const OperandArg& x) { return binary(kAtan2, y, x); }
Tensor squared_difference(const OperandArg& a, const OperandArg& b) {
  return unary(kSquare, {binary(kSub, a, b), a.where()});
}
Tensor divide_no_nan(const OperandArg& a, const OperandArg& b) {
  if (b.is_number() && b.number() != 0) return binary(kDiv, a, b);
  if (b.is_number()) return zeros_like(a);
  const Tensor zero = binary(kEqual, b, OperandArg(0, b.where()));
  // The divisor is replaced too: a gradient through x / 0 would be NaN even where it is not chosen.
  const Tensor quotient = binary(kDiv, a, {where(zero, 1, b), b.where()});
  return where(zero, 0, {quotient, a.where()});
}

Tensor operator+(const OperandArg& a, const OperandArg& b) { return binary(kAdd, a, b); }
Tensor operator-(const OperandArg& a, const OperandArg& b) { return binary(kSub, a, b); }
Tensor operator*(const OperandArg& a, const OperandArg& b) { return binary(kMul, a, b); }
Tensor operator/(const OperandArg& a, const OperandArg& b) { return binary(kDiv, a, b); }
Tensor operator-(const TensorArg& x) { return unary(kNeg, x); }
Tensor operator>(const OperandArg& a, const OperandArg& b) { return binary(kGreater, a, b); }
Tensor operator<(const OperandArg& a, const OperandArg& b) { return binary(kLess, a, b); }
Tensor operator>=(const OperandArg& a, const OperandArg& b) { return binary(kGreaterEqual, a, b); }
Tensor operator<=(const OperandArg& a, const OperandArg& b) { return binary(kLessEqual, a, b); }
Tensor operator==(const OperandArg& a, const OperandArg& b) { return equal(a, b); }
Tensor operator!=(const OperandArg& a, const OperandArg& b) { return not_equal(a, b); }

namespace {
const Variable& assigned(const Variable& variable, Tensor (*op)(const OperandArg&, const OperandArg&),
                         const OperandArg& other) {
  const VariableReadScope as_kept;
  variable.assign(op({variable, other.where()}, other), other.where());
  return variable;
}
}  // namespace

const Variable& operator+=(const Variable& variable, const OperandArg& delta) {
  return assigned(variable, add, delta);
}
const Variable& operator-=(const Variable& variable, const OperandArg& delta) {
  return assigned(variable, subtract, delta);
}
const Variable& operator*=(const Variable& variable, const OperandArg& factor) {
  return assigned(variable, multiply, factor);
}
const Variable& operator/=(const Variable& variable, const OperandArg& divisor) {
  return assigned(variable, divide, divisor);
}

Tensor identity(const TensorArg& x) { return unary(kIdentity, x); }
Tensor negative(const TensorArg& x) { return unary(kNeg, x); }
Tensor abs(const TensorArg& x) { return unary(kAbs, x); }
Tensor sign(const TensorArg& x) { return unary(kSign, x); }
Tensor floor(const TensorArg& x) { return unary(kFloor, x); }
Tensor ceil(const TensorArg& x) { return unary(kCeil, x); }
Tensor round(const TensorArg& x) { return unary(kRound, x); }
Tensor square(const TensorArg& x) { return unary(kSquare, x); }
Tensor sqrt(const TensorArg& x) { return unary(kSqrt, x); }
Tensor rsqrt(const TensorArg& x) { return unary(kRsqrt, x); }
Tensor reciprocal(const TensorArg& x) { return unary(kReciprocal, x); }
Tensor exp(const TensorArg& x) { return unary(kExp, x); }
Tensor expm1(const TensorArg& x) { return unary(kExpm1, x); }
Tensor log(const TensorArg& x) { return unary(kLog, x); }
Tensor log1p(const TensorArg& x) { return unary(kLog1p, x); }
Tensor tanh(const TensorArg& x) { return unary(kTanh, x); }
Tensor sigmoid(const TensorArg& x) { return unary(kSigmoid, x); }
Tensor erf(const TensorArg& x) { return unary(kErf, x); }
Tensor sin(const TensorArg& x) { return unary(kSin, x); }
Tensor cos(const TensorArg& x) { return unary(kCos, x); }
Tensor tan(const TensorArg& x) { return unary(kTan, x); }
Tensor asin(const TensorArg& x) { return unary(kAsin, x); }
Tensor acos(const TensorArg& x) { return unary(kAcos, x); }
Tensor atan(const TensorArg& x) { return unary(kAtan, x); }
Tensor sinh(const TensorArg& x) { return unary(kSinh, x); }
Tensor cosh(const TensorArg& x) { return unary(kCosh, x); }
Tensor asinh(const TensorArg& x) { return unary(kAsinh, x); }
Tensor acosh(const TensorArg& x) { return unary(kAcosh, x); }
Tensor atanh(const TensorArg& x) { return unary(kAtanh, x); }
Tensor erfc(const TensorArg& x) { return unary(kErfc, x); }
Tensor log2(const TensorArg& x) { return unary(kLog2, x); }
Tensor log10(const TensorArg& x) { return unary(kLog10, x); }
Tensor truncate(const TensorArg& x) { return unary(kTruncate, x); }
Tensor softplus(const TensorArg& x) { return unary(kSoftplus, x); }
Tensor relu(const TensorArg& x) { return unary(kRelu, x); }
Tensor gelu(const TensorArg& x, GeluOptions options) {
  return unary(kGelu, x, GeluAttrs{options.approximate});
}

Tensor less(const OperandArg& a, const OperandArg& b) { return binary(kLess, a, b); }
Tensor less_equal(const OperandArg& a, const OperandArg& b) { return binary(kLessEqual, a, b); }
Tensor greater(const OperandArg& a, const OperandArg& b) { return binary(kGreater, a, b); }
Tensor greater_equal(const OperandArg& a, const OperandArg& b) { return binary(kGreaterEqual, a, b); }
Tensor equal(const OperandArg& a, const OperandArg& b) { return binary(kEqual, a, b); }
Tensor not_equal(const OperandArg& a, const OperandArg& b) { return binary(kNotEqual, a, b); }
Tensor logical_and(const TensorArg& a, const TensorArg& b) {
  return emit_one(kLogicalAnd, {a.tensor(), b.tensor()}, {}, a.where());
}
Tensor logical_or(const TensorArg& a, const TensorArg& b) {
  return emit_one(kLogicalOr, {a.tensor(), b.tensor()}, {}, a.where());
}
Tensor logical_xor(const TensorArg& a, const TensorArg& b) {
  return emit_one(kLogicalXor, {a.tensor(), b.tensor()}, {}, a.where());
}
Tensor is_nan(const TensorArg& x) { return unary(kIsNan, x); }
Tensor is_inf(const TensorArg& x) { return unary(kIsInf, x); }
Tensor is_finite(const TensorArg& x) { return unary(kIsFinite, x); }
Tensor logical_not(const TensorArg& a) { return unary(kLogicalNot, a); }

Tensor where(const TensorArg& condition, const OperandArg& a, const OperandArg& b) {
  require(!a.is_number() || !b.is_number(), ErrorCode::invalid_argument, condition.where(),
          "where: one of the choices must be a tensor; received two numbers");
  const Tensor ta = a.is_number() ? number_beside(b.tensor("where"), a, kSelect) : a.tensor("where");
  const Tensor tb = b.is_number() ? number_beside(ta, b, kSelect) : b.tensor();
  return emit_one(kSelect, {condition.tensor(), ta, tb}, {}, condition.where());
}

Tensor clip_by_value(const TensorArg& x, const OperandArg& low, const OperandArg& high) {
  return binary(kMinimum, OperandArg(binary(kMaximum, OperandArg(x.tensor(), x.where()), low), x.where()),
                high);
}

Tensor cast(const TensorArg& x, DType dtype) {
  if (x.tensor("cast").dtype() == dtype) return x.tensor();
  return unary(kCast, x, CastAttrs{dtype});
}

Tensor stop_gradient(const TensorArg& x) { return unary(kStopGradient, x); }

Tensor zeros(const Shape& shape, DType dtype, std::source_location where) {
  return fill({dtype, shape}, 0.0, where);
}
Tensor ones(const Shape& shape, DType dtype, std::source_location where) {
  return fill({dtype, shape}, 1.0, where);
}
Tensor full(const Shape& shape, double value, DType dtype, std::source_location where) {
  require(holds_exactly(dtype, value), ErrorCode::dtype_mismatch, where, "full: the number ", value,
          " has no exact ", dtype, " value");
  return fill({dtype, shape}, value, where);
}
Tensor zeros_like(const TensorArg& x) {
  const Tensor& like = x.tensor("zeros_like");
  return fill_beside(like, like.spec(), 0.0, x.where());
}
Tensor ones_like(const TensorArg& x) {
  const Tensor& like = x.tensor("ones_like");
  return fill_beside(like, like.spec(), 1.0, x.where());
}

}  // namespace lockstep
