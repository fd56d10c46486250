#include "backends/cpu/elementwise/vector_math.h"

#include <cmath>
#include <limits>
#include <span>

#include "backends/cpu/elementwise/lane_call.h"
#include "backends/cpu/elementwise/scalar_functions.h"

// Polynomials are minimax fits, made for this file, of the function named beside them over the
// interval that its range reduction leaves; coefficients stand lowest power first. Signed zeros are
// why some functions work on |x| or return x itself near 0.
namespace lockstep::cpu::jit {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// ln 2 in two pieces; n times the first is exact enough that x - n ln 2 loses nothing.
constexpr float kLn2High = 0x1.62e430p-1f;
constexpr float kLn2Low = -0x1.05c610p-29f;
constexpr float kLog2E = 0x1.715476p+0f;

// c[0] + c[1] x + ..., by Horner's rule.
Vec polynomial(Vec x, std::span<const float> c) {
  Vec sum = x.builder->f32(c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = fma(sum, x, x.builder->f32(c[i]));
  return sum;
}

Vec polynomial(Vec x, std::span<const double> c) {
  Vec sum = x.builder->f64(c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = fma(sum, x, x.builder->f64(c[i]));
  return sum;
}

// x * 2^n for integral n in [-252, 254], rounded once. Without the instruction for it, two factors:
// the product with the first is exact, since |x| is near 1.
Vec scale(Vec x, Vec n) {
  Builder& b = *x.builder;
  if (b.isa() == Isa::avx512) return b.emit(Op::scale, Lane::f32, Lane::f32, {x, n}, {});
  const Vec integer = b.emit(Op::to_i32, Lane::f32, Lane::i32, {n}, {});
  const Vec half = shift_right_signed(integer, 1);
  const auto power = [&](Vec exponent) { return as(Lane::f32, shift_left(exponent + b.i32(127), 23)); };
  return x * power(half) * power(integer - half);
}

// x = 2^exponent * significand with the significand in [0.75, 1.5), for positive finite x.
struct Split {
  Vec exponent;
  Vec significand;
};

Split split(Vec x) {
  Builder& b = *x.builder;
  if (b.isa() == Isa::avx512) {
    const Vec significand = b.emit(Op::significand, Lane::f32, Lane::f32, {x}, {});
    const auto exponent = [&](Vec v) { return b.emit(Op::exponent, Lane::f32, Lane::f32, {v}, {}); };
    return {exponent(x) - exponent(significand), significand};
  }
  const Vec subnormal = compare(x, kLess, b.f32(std::numeric_limits<float>::min()));
  const Vec normal = as(Lane::i32, select(subnormal, x * b.f32(0x1p24f), x));
  const Vec exponent = shift_right_signed(normal - b.i32(std::bit_cast<int32_t>(0.75f)), 23);
  const Vec significand = as(Lane::f32, normal - shift_left(exponent, 23));
  const Vec offset = select(subnormal, b.f32(-24), b.f32(0));
  return {b.emit(Op::to_f32, Lane::i32, Lane::f32, {exponent}, {}) + offset, significand};
}

// x = n ln 2 + r with |r| <= ln 2 / 2.
struct Reduced {
  Vec n;
  Vec r;
};

Reduced reduce_by_ln2(Vec x) {
  Builder& b = *x.builder;
  const Vec n = round(x * b.f32(kLog2E), kNearest);
  return {n, fnma(n, b.f32(kLn2Low), fnma(n, b.f32(kLn2High), x))};
}

// Brings x into [low, high] and lets NaN pass.
Vec clamp(Vec x, float low, float high) {
  Builder& b = *x.builder;
  return raw_maximum(b.f32(low), raw_minimum(b.f32(high), x));
}

// (e^r - 1 - r) / r^2, for expm1: its error counts relative to r.
constexpr float kExpm1[] = {0.5f,           0.166666672f,   0.041666355f,
                            0.00833327323f, 0.00139410188f, 0.000199141869f};

Vec expm1_reduced(Vec r) { return fma(r * r, polynomial(r, kExpm1), r); }

// log(1 + f) + exponent * ln 2 for 1 + f in [0.75, 1.5).
Vec log_reduced(Vec exponent, Vec f) {
  Builder& b = *f.builder;
  // (log(1 + f) - f + f^2 / 2) / f^3
  constexpr float kLog[] = {0.333334506f, -0.250000954f, 0.199908614f, -0.16647312f,
                            0.144783929f, -0.131611899f, 0.104630254f, -0.0450748689f};
  const Vec curve = fma(polynomial(f, kLog), f, b.f32(-0.5f));
  const Vec small = fma(curve, f * f, exponent * b.f32(kLn2Low));
  return fma(exponent, b.f32(kLn2High), f + small);
}

// a where `valid` holds; elsewhere the limits of a logarithm with its pole at `pole`: -inf there, NaN
// below, else x itself (zeros of log1p, infinity, NaN).
Vec with_log_limits(Vec valid, Vec a, Vec x, float pole) {
  Builder& b = *x.builder;
  const Vec below = select(compare(x, kLess, b.f32(pole)), b.f32(kNaN), x);
  const Vec limit = select(compare(x, kEqual, b.f32(pole)), b.f32(-kInfinity), below);
  return select(valid, a, limit);
}

Vec sin_reduced(Vec r, Vec square) {
  constexpr float kSin[] = {-0.166666552f, 0.00833217334f, -0.000195166562f};  // (sin r - r) / r^3
  return fma(polynomial(square, kSin) * square, r, r);
}

Vec cos_reduced(Vec square) {
  Builder& b = *square.builder;
  constexpr float kCos[] = {0.0416666456f, -0.00138873619f, 2.44377316e-05f};  // (cos r - 1 + r^2/2) / r^4
  return fma(fma(polynomial(square, kCos), square, b.f32(-0.5f)), square, b.f32(1));
}

// sin(x + quarter * pi/2), |x| given; huge and non-finite arguments go to `library`.
Vec sin_of_quarters(Vec magnitude, int quarter, Vec result_sign, LaneFunction library, Vec x) {
  Builder& b = *x.builder;
  // In float64: the remainder of an argument close to a multiple of pi/2 keeps all its bits.
  Vec n[2];
  Vec r[2];
  for (uint8_t part = 0; part < 2; ++part) {
    const Vec wide = b.emit(Op::widen, Lane::f32, Lane::f64, {magnitude}, {.immediate = part});
    n[part] = round(wide * b.f64(0x1.45f306dc9c883p-1), kNearest);
    r[part] = fnma(n[part], b.f64(0x1.921fb54442d18p+0), wide);
    r[part] = fnma(n[part], b.f64(0x1.1a62633145c07p-54), r[part]);
  }
  const Vec remainder = b.emit(Op::narrow, Lane::f64, Lane::f32, {r[0], r[1]}, {});
  Vec quadrant = b.emit(Op::narrow_to_i32, Lane::f64, Lane::i32, {n[0], n[1]}, {});
  if (quarter != 0) quadrant = quadrant + b.i32(quarter);

  const Vec square = remainder * remainder;
  const Vec is_cosine = compare(quadrant & b.i32(1), kEqual, b.i32(1));
  const Vec value = select(is_cosine, cos_reduced(square), sin_reduced(remainder, square));
  const Vec flip = as(Lane::f32, shift_left(quadrant & b.i32(2), 30));
  const Vec result = value ^ (result_sign.id < 0 ? flip : flip ^ result_sign);
  const Vec hard = compare(magnitude, kNotLess, b.f32(0x1p30f));
  return patch(result, hard, library, x, x);
}

// 2^(y log2 x) of float64 lanes, for x > 0; accurate to 32 bits.
Vec pow_wide(Vec x, Vec y) {
  Builder& b = *x.builder;
  constexpr int64_t kOne = 0x3ff0000000000000;
  constexpr int64_t kThreeQuarters = 0x3fe8000000000000;
  const Vec bits = as(Lane::i64, x);
  const Vec biased = shift_right(bits + b.i64(kOne - kThreeQuarters), 52);
  const Vec significand = as(Lane::f64, bits + b.i64(kOne) - shift_left(biased, 52));
  // An integer below 2^52 becomes a float when it is put under the bits of 2^52.
  const Vec exponent = as(Lane::f64, biased | b.i64(0x4330000000000000)) - b.f64(0x1p52 + 1023);

  // log2(1 + f) / f
  constexpr double kLog2[] = {1.4426950409106478,   -0.72134752083155251, 0.48089833264090986,
                              -0.36067365346600416, 0.28854042801328056,  -0.24045841761118764,
                              0.20605685878864147,  -0.18000364908053174, 0.16050305979057991,
                              -0.14920808481313982, 0.13879313430959034,  -0.10204097359106126,
                              0.037989853347661744};
  const Vec f = significand - b.f64(1);
  const Vec power = y * fma(f, polynomial(f, kLog2), exponent);

  const Vec clamped = raw_maximum(b.f64(-200), raw_minimum(b.f64(200), power));
  const Vec n = round(clamped, kNearest);
  // (2^r - 1) / r
  constexpr double kExp2[] = {0.69314720655869078,   0.2402265135375358,    0.055503271233724484,
                              0.0096180028793119328, 0.0013400537431463122, 0.00015476594139103675};
  const Vec r = clamped - n;
  const Vec fraction = fma(polynomial(r, kExp2), r, b.f64(1));
  const Vec two_to_n = shift_left(as(Lane::i64, n + b.f64(0x1.8p52 + 1023)), 52);
  return fraction * as(Lane::f64, two_to_n);
}

}  // namespace

Vec exp(Vec x) {
  Builder& b = *x.builder;
  const auto [n, r] = reduce_by_ln2(clamp(x, -104, 89));
  // (e^r - 1 - r) / r^2, its error counting relative to e^r.
  constexpr float kExp[] = {0.5f, 0.166665182f, 0.041666206f, 0.00836889632f, 0.00139504974f};
  const Vec slope = fma(polynomial(r, kExp), r, b.f32(1));
  return scale(fma(slope, r, b.f32(1)), n);
}

Vec expm1(Vec x) {
  Builder& b = *x.builder;
  const auto [n, r] = reduce_by_ln2(clamp(x, -18, 89));
  const Vec half_power = scale(b.f32(0.5f), n);  // 2^n itself can overflow where the result does not
  const Vec half = fma(expm1_reduced(r), half_power, half_power - b.f32(0.5f));
  return select(compare(abs(x), kLess, b.f32(0x1p-25f)), x, half + half);
}

Vec log(Vec x) {
  Builder& b = *x.builder;
  const auto [exponent, significand] = split(x);
  const Vec valid = compare(x, kGreater, b.f32(0)) & compare(x, kLess, b.f32(kInfinity));
  return with_log_limits(valid, log_reduced(exponent, significand - b.f32(1)), x, 0);
}

Vec log1p(Vec x) {
  Builder& b = *x.builder;
  const Vec exponent = split(x + b.f32(1)).exponent;
  // From x, not from the rounded sum: (1 + x) 2^-exponent - 1.
  const Vec down = scale(b.f32(1), negate(exponent));
  const Vec f = fma(x, down, down - b.f32(1));
  const Vec valid =
      compare(x, kGreater, b.f32(-1)) & compare(x, kLess, b.f32(kInfinity)) & compare(x, kNotEqual, b.f32(0));
  return with_log_limits(valid, log_reduced(exponent, f), x, -1);
}

// t / (t + 2) for t = e^2|x| - 1.
Vec tanh(Vec x) {
  Builder& b = *x.builder;
  const Vec magnitude = raw_minimum(b.f32(10), abs(x));
  const auto [n, r] = reduce_by_ln2(magnitude + magnitude);
  const Vec power = scale(b.f32(1), n);
  const Vec t = fma(expm1_reduced(r), power, power - b.f32(1));
  return t / (t + b.f32(2)) | sign_bit(x);
}

Vec erf(Vec x) {
  Builder& b = *x.builder;
  constexpr float kBorder = 0.9f;
  // Below the border: erf(x) / x - 1, in x^2.
  constexpr float kSmall[] = {0.128379151f,   -0.376125276f,  0.112821639f,
                              -0.0267795455f, 0.00501274131f, -0.00060938258f};
  const Vec small = fma(x, polynomial(x * x, kSmall), x);
  // Above it: log2(erfc(t)), and (2^r - 1) / r.
  constexpr float kLarge[] = {-0.000240159265f, -1.62706733f,    -0.918962419f, -0.150204107f,
                              0.032193955f,     -0.00442254404f, 0.00028596801f};
  constexpr float kExp2[] = {0.693147242f, 0.24022232f, 0.0555030741f, 0.00967209041f, 0.00134075596f};
  const Vec magnitude = abs(x);
  const Vec logarithm = polynomial(raw_minimum(b.f32(3.94f), magnitude), kLarge);
  const Vec n = round(logarithm, kNearest);
  const Vec r = logarithm - n;
  const Vec large = b.f32(1) - scale(fma(polynomial(r, kExp2), r, b.f32(1)), n);
  return select(compare(magnitude, kLess, b.f32(kBorder)), small, large | sign_bit(x));
}

Vec sin(Vec x) {
  return sin_of_quarters(abs(x), 0, sign_bit(x), call_lanes<float, [](float v) { return std::sin(v); }>, x);
}

Vec cos(Vec x) {
  return sin_of_quarters(abs(x), 1, Vec{}, call_lanes<float, [](float v) { return std::cos(v); }>, x);
}

Vec pow(Vec x, Vec y) {
  Builder& b = *x.builder;
  const Vec magnitude = abs(x);
  Vec parts[2];
  for (uint8_t part = 0; part < 2; ++part) {
    const auto wide = [&](Vec v) {
      return b.emit(Op::widen, Lane::f32, Lane::f64, {v}, {.immediate = part});
    };
    parts[part] = pow_wide(wide(magnitude), wide(y));
  }
  Vec result = b.emit(Op::narrow, Lane::f64, Lane::f32, {parts[0], parts[1]}, {});

  const Vec zero = b.f32(0);
  const Vec one = b.f32(1);
  const Vec infinity = b.f32(kInfinity);
  const Vec is_zero = compare(x, kEqual, zero);
  const Vec limit = select(compare(y, kGreater, zero) ^ is_zero, infinity, zero);
  result = select(is_zero | compare(magnitude, kEqual, infinity), limit, result);

  const Vec is_integer = compare(round(y, kTruncate), kEqual, y);
  const Vec half = y * b.f32(0.5f);
  const Vec is_odd = is_integer & compare(round(half, kTruncate), kNotEqual, half);
  result = result | select(is_odd, sign_bit(x), zero);
  const Vec negative = compare(x, kLess, zero) & compare(magnitude, kLess, infinity);
  result = select(and_not(negative, is_integer), b.f32(kNaN), result);
  result = select(compare(x, kUnordered, y), x + y, result);
  const Vec is_one = compare(y, kEqual, zero) | compare(x, kEqual, one) |
                     (compare(magnitude, kEqual, one) & compare(abs(y), kEqual, infinity));
  return select(is_one, one, result);
}

Vec mod(Vec x, Vec y) {
  Builder& b = *x.builder;
  const Vec quotient = x / y;
  // Exact while the quotient is a small integer; it can be one too large, since it was rounded.
  const Vec rest = fnma(round(quotient, kFloor), y, x);
  const Vec wrong_side = compare(as(Lane::i32, b.i32(0)), kGreater, as(Lane::i32, rest ^ y));
  const Vec is_zero = compare(rest, kEqual, b.f32(0));
  const Vec corrected = select(wrong_side, rest + y, rest);
  const Vec result = select(is_zero, sign_bit(y), corrected);
  const Vec hard =
      compare(abs(quotient), kNotLess, b.f32(0x1p22f)) | compare(abs(y), kNotLess, b.f32(kInfinity));
  return patch(result, hard, call_lanes<float, [](float u, float v) { return scalar::mod(u, v); }>, x, y);
}

}  // namespace lockstep::cpu::jit
