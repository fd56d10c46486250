#include "backends/cpu/elementwise/vector_arithmetic.h"

#include <bit>
#include <cmath>
#include <limits>

#include "backends/cpu/elementwise/lane_call.h"
#include "backends/cpu/elementwise/scalar_functions.h"

namespace lockstep::cpu::jit {
namespace {

// The value of a float constant; NaN, which no rule below is for, where there is none.
double constant_value(Vec v) {
  const VectorInstruction& definition = v.builder->definition(v);
  if (definition.op != Op::constant) return std::numeric_limits<double>::quiet_NaN();
  if (v.lane == Lane::f64) return std::bit_cast<double>(definition.bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(definition.bits)));
}

Vec divide_i32(Vec a, Vec b) {
  Builder& builder = *a.builder;
  // Every 32-bit quotient is right in float64; the lowest integer by -1 converts to itself.
  Vec parts[2];
  for (uint8_t part = 0; part < 2; ++part) {
    const auto wide = [&](Vec v) {
      return builder.emit(Op::widen_to_f64, Lane::i32, Lane::f64, {v}, {.immediate = part});
    };
    parts[part] = wide(a) / wide(b);
  }
  const Vec quotient = builder.emit(Op::narrow_to_i32, Lane::f64, Lane::i32, {parts[0], parts[1]}, {});
  return select(compare(b, kEqual, builder.i32(0)), builder.i32(0), quotient);
}

Vec divide_i64(Vec a, Vec b) {
  Builder& builder = *a.builder;
  const auto wide = [&](Vec v) { return builder.emit(Op::to_f64, Lane::i64, Lane::f64, {v}, {}); };
  const Vec dividend = wide(a);
  const Vec quotient = builder.emit(Op::to_i64_trunc, Lane::f64, Lane::i64, {dividend / wide(b)}, {});
  // Below 2^53 a quotient that is no integer is further from the next one than rounding carries it.
  const Vec hard = compare(abs(dividend), kNotLess, builder.f64(0x1p53)) | compare(b, kEqual, builder.i64(0));
  return patch(quotient, hard, call_lanes<int64_t, scalar::div<int64_t>>, a, b);
}

}  // namespace

Vec divide_integers(Vec a, Vec b) { return is_wide(a.lane) ? divide_i64(a, b) : divide_i32(a, b); }

Vec mod_integers(Vec a, Vec b) {
  const Vec zero = constant_like(a, 0);
  const Vec rest = a - divide_integers(a, b) * b;
  const Vec wrong_side = and_not(compare(zero, kGreater, rest ^ b), compare(rest, kEqual, zero));
  const Vec result = select(wrong_side, rest + b, rest);
  return select(compare(b, kEqual, zero), zero, result);
}

Vec pow_integers(Vec a, Vec b) {
  const bool wide = is_wide(a.lane);
  const Vec all = a.builder->mask(true, wide ? Lane::mask64 : Lane::mask);
  const auto library =
      wide ? call_lanes<int64_t, scalar::pow<int64_t>> : call_lanes<int32_t, scalar::pow<int32_t>>;
  return patch(a, all, library, a, b);
}

// The machine's own maximum takes b where a is NaN; that is set right unless a known operand makes it
// unnecessary.
Vec extremum(bool largest, Vec a, Vec b) {
  const auto raw = [&](Vec x, Vec y) { return largest ? raw_maximum(x, y) : raw_minimum(x, y); };
  if (!is_float(a.lane) || !std::isnan(constant_value(a))) return raw(a, b);
  const double known = constant_value(b);
  if (known == 0) return select(compare(a, largest ? kNotLessEqual : kNotGreaterEqual, b), a, b);
  if (!std::isnan(known)) return raw(b, a);
  return select(is_nan(a), a, raw(a, b));
}

Vec sign(Vec a) {
  Builder& b = *a.builder;
  if (is_float(a.lane)) {
    const Vec zero = constant_like(a, 0);
    const Vec one_signed = sign_bit(a) | constant_like(a, 1);
    const Vec finite = select(compare(a, kEqual, zero), zero, one_signed);
    return select(is_nan(a), a, finite);
  }
  const int top = is_wide(a.lane) ? 63 : 31;
  const Vec zero = is_wide(a.lane) ? b.i64(0) : b.i32(0);
  return shift_right_signed(a, top) | shift_right(zero - a, top);
}

Vec round_to_bfloat16(Vec x) {
  Builder& b = *x.builder;
  const Vec bits = as(Lane::i32, x);
  const Vec odd = shift_right(bits, 16) & b.i32(1);
  const Vec rounded = bits + (odd + b.i32(0x7fff));
  return select(is_nan(x), bits | b.i32(0x400000), rounded);
}

}  // namespace lockstep::cpu::jit
