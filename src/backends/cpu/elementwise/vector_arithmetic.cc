#include "backends/cpu/elementwise/vector_arithmetic.h"

#include <bit>
#include <cmath>
#include <limits>

namespace lockstep::cpu::jit {
namespace {

// The value of a float constant; NaN, which no rule below is for, where there is none.
double constant_value(Vec v) {
  const VectorInstruction& definition = v.builder->definition(v);
  if (definition.op != Op::constant) return std::numeric_limits<double>::quiet_NaN();
  if (v.lane == Lane::f64) return std::bit_cast<double>(definition.bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(definition.bits)));
}

}  // namespace

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

Vec mod_i32(Vec a, Vec b) {
  Builder& builder = *a.builder;
  const Vec zero = builder.i32(0);
  const Vec rest = a - divide_i32(a, b) * b;
  const Vec wrong_side = and_not(compare(zero, kGreater, rest ^ b), compare(rest, kEqual, zero));
  const Vec result = select(wrong_side, rest + b, rest);
  return select(compare(b, kEqual, zero), zero, result);
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
