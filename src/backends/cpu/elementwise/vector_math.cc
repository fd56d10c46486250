#include "backends/cpu/elementwise/vector_math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "backends/cpu/elementwise/lane_call.h"
#include "backends/cpu/elementwise/scalar_functions.h"
#include "backends/cpu/math_fits.h"

// Polynomials are minimax fits, made for this file (the Remez exchange, in 200 bits), of the function
// named beside them over the interval that its range reduction leaves; coefficients stand lowest power
// first. Signed zeros are why some functions work on |x| or return x itself near 0.
//
// "Wide" is float64. Both formats take the same steps unless there is a reason not to.
namespace lockstep::cpu::jit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// c[0] + c[1] x + ..., by Horner's rule.
template <class T, size_t size>
Vec polynomial(Vec x, const T (&c)[size]) {
  Vec sum = constant_like(x, c[size - 1]);
  for (size_t i = size - 1; i-- > 0;) sum = fma(sum, x, constant_like(x, c[i]));
  return sum;
}

// The fit for the lanes that x has.
template <size_t m, size_t n>
Vec polynomial(Vec x, const float (&narrow)[m], const double (&wide)[n]) {
  return is_wide(x.lane) ? polynomial(x, wide) : polynomial(x, narrow);
}

// Where the parts of a float are.
struct Format {
  explicit Format(Vec x)
      : integer(is_wide(x.lane) ? Lane::i64 : Lane::i32),
        digits(is_wide(x.lane) ? 52 : 23),
        bias(is_wide(x.lane) ? 1023 : 127) {}

  // An integer below 2^digits becomes a float when it is put under the bits of this one.
  double above() const { return std::ldexp(1.0, digits); }

  Lane integer;
  int digits;  // of the significand, without the leading one
  int bias;
};

// 2^n for integral n whose power is a normal number.
Vec power_of_two(Vec n) {
  const Format format(n);
  const Vec biased = n + constant_like(n, 1.5 * format.above() + format.bias);
  return as(n.lane, shift_left(as(format.integer, biased), format.digits));
}

// x * 2^n for integral n that may be twice as large as exponents are, rounded once. Without the
// instruction for it, two factors: the product with the first is exact, since |x| is near 1.
Vec scale(Vec x, Vec n) {
  Builder& b = *x.builder;
  if (b.isa() == Isa::avx512) return b.emit(Op::scale, x.lane, x.lane, {x, n}, {});
  const Vec half = round(n * constant_like(n, 0.5), kFloor);
  return x * power_of_two(half) * power_of_two(n - half);
}

// x = 2^exponent * significand with the significand in [0.75, 1.5), for positive finite x.
struct Split {
  Vec exponent;
  Vec significand;
};

Split split(Vec x) {
  Builder& b = *x.builder;
  if (b.isa() == Isa::avx512) {
    const Vec significand = b.emit(Op::significand, x.lane, x.lane, {x}, {});
    const auto exponent = [&](Vec v) { return b.emit(Op::exponent, v.lane, v.lane, {v}, {}); };
    return {exponent(x) - exponent(significand), significand};
  }
  const Format format(x);
  const double smallest =
      is_wide(x.lane) ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  const Vec subnormal = compare(x, kLess, constant_like(x, smallest));
  const Vec normal = select(subnormal, x * constant_like(x, 2 * format.above()), x);
  const Vec bits = as(format.integer, normal);
  // Half a binade up, so that what is 1.5 times a power or more counts to the next one.
  const Vec biased = shift_right(bits + constant_like(bits, 0.5 * format.above()), format.digits);
  const Vec significand = bits + as(format.integer, constant_like(x, 1)) - shift_left(biased, format.digits);
  const Vec exponent = as(x.lane, biased | as(format.integer, constant_like(x, format.above())));
  const double offset = format.above() + format.bias;
  return {
      exponent - select(subnormal, constant_like(x, offset + format.digits + 1), constant_like(x, offset)),
      as(x.lane, significand)};
}

// ln 2 in two pieces; n times the first is exact enough that x - n ln 2 loses nothing.
Vec ln2_high(Vec x) { return constant_like(x, is_wide(x.lane) ? fits::kLn2High : 0x1.62e430p-1); }
Vec ln2_low(Vec x) { return constant_like(x, is_wide(x.lane) ? fits::kLn2Low : -0x1.05c610p-29); }

// x = n ln 2 + r + rest with |r| <= ln 2 / 2, `rest` being what the rounding of r left over.
struct Reduced {
  Vec n;
  Vec r;
  Vec rest;
};

Reduced reduce_by_ln2(Vec x) {
  const Vec n = round(x * constant_like(x, std::numbers::log2e), kNearest);
  const Vec high = fnma(n, ln2_high(x), x);
  const Vec r = fnma(n, ln2_low(x), high);
  return {n, r, fnma(n, ln2_low(x), high - r)};
}

// Brings x into [low, high] and lets NaN pass.
Vec clamp(Vec x, double low, double high) {
  return raw_maximum(constant_like(x, low), raw_minimum(constant_like(x, high), x));
}

// (e^r - 1 - r) / r^2, its error counting relative to r.
constexpr float kExpm1[] = {0.5f,           0.166666672f,   0.041666355f,
                            0.00833327323f, 0.00139410188f, 0.000199141869f};

// log(1 + f) + exponent * ln 2 for 1 + f in [0.75, 1.5).
Vec log_reduced(Vec exponent, Vec f) {
  const Vec half = constant_like(f, 0.5);
  if (!is_wide(f.lane)) {
    // (log(1 + f) - f + f^2 / 2) / f^3
    constexpr float kLog[] = {0.333334506f, -0.250000954f, 0.199908614f, -0.16647312f,
                              0.144783929f, -0.131611899f, 0.104630254f, -0.0450748689f};
    const Vec curve = fma(polynomial(f, kLog), f, negate(half));
    return fma(exponent, ln2_high(f), f + fma(curve, f * f, exponent * ln2_low(f)));
  }
  // log(1 + f) = 2 atanh(s) with s = f / (2 + f), and f - f^2 / 2 + s f^2 / 2 = 2 s.
  const Vec s = f / (f + constant_like(f, 2));
  const Vec square = s * s;
  const Vec bend = f * f * half;
  const Vec curve = fma(polynomial(square, fits::kLog), square, bend);
  const Vec small = bend - fma(curve, s, exponent * ln2_low(f));
  return fma(exponent, ln2_high(f), f - small);
}

// a where `valid` holds; elsewhere the limits of a logarithm with its pole at `pole`: -inf there, NaN
// below, else x itself (zeros of log1p, infinity, NaN).
Vec with_log_limits(Vec valid, Vec a, Vec x, double pole) {
  const Vec below = select(compare(x, kLess, constant_like(x, pole)), constant_like(x, kNaN), x);
  const Vec limit = select(compare(x, kEqual, constant_like(x, pole)), constant_like(x, -kInfinity), below);
  return select(valid, a, limit);
}

Vec sin_reduced(Vec r, Vec square) {
  // (sin r - r) / r^3; the wide one with |error| < 2^-57.
  constexpr float kSin[] = {-0.166666552f, 0.00833217334f, -0.000195166562f};
  constexpr double kWideSin[] = {-0x1.5555555555549p-3, 0x1.111111110f87ap-7,   -0x1.a01a019c11992p-13,
                                 0x1.71de3577b6691p-19, -0x1.ae5e663a66adep-26, 0x1.5d9300efc08b7p-33};
  return fma(polynomial(square, kSin, kWideSin) * square, r, r);
}

Vec cos_reduced(Vec square) {
  // (cos r - 1 + r^2 / 2) / r^4; the wide one with |error| < 2^-62.
  constexpr float kCos[] = {0.0416666456f, -0.00138873619f, 2.44377316e-05f};
  constexpr double kWideCos[] = {0x1.555555555554cp-5,   -0x1.6c16c16c1517ep-10, 0x1.a01a019cb1bd7p-16,
                                 -0x1.27e4f809f0725p-22, 0x1.1ee9ebe90e424p-29,  -0x1.8fae9c66e4aa6p-37};
  const Vec curve = fma(polynomial(square, kCos, kWideCos), square, constant_like(square, -0.5));
  return fma(curve, square, constant_like(square, 1));
}

// x = quadrant * pi/2 + remainder for x in [0, 2^30).
struct Quarters {
  Vec quadrant;  // an integer, of which the two low bits count
  Vec remainder;
};

constexpr double kQuarter = 0x1.921fb54442d18p+0;  // pi / 2, and what is missing
constexpr double kQuarterLow = 0x1.1a62633145c07p-54;

Quarters quarters(Vec x) {
  Builder& b = *x.builder;
  const auto count = [&](Vec wide) { return round(wide * b.f64(0x1.45f306dc9c883p-1), kNearest); };
  if (is_wide(x.lane)) {
    // The first step is exact. Where the second cancels, so is it, and the third one adds what pi / 2
    // still lacked.
    const Vec n = count(x);
    Vec r = fnma(n, b.f64(kQuarter), x);
    r = fnma(n, b.f64(kQuarterLow), r);
    r = fnma(n, b.f64(-0x1.f1976b7ed8fbcp-110), r);
    return {as(Lane::i64, n + b.f64(0x1.8p52)), r};
  }
  // In float64: the remainder of an argument close to a multiple of pi/2 keeps all its bits.
  Vec n[2];
  Vec r[2];
  for (uint8_t part = 0; part < 2; ++part) {
    const Vec wide = b.emit(Op::widen, Lane::f32, Lane::f64, {x}, {.immediate = part});
    n[part] = count(wide);
    r[part] = fnma(n[part], b.f64(kQuarter), wide);
    r[part] = fnma(n[part], b.f64(kQuarterLow), r[part]);
  }
  return {b.emit(Op::narrow_to_i32, Lane::f64, Lane::i32, {n[0], n[1]}, {}),
          b.emit(Op::narrow, Lane::f64, Lane::f32, {r[0], r[1]}, {})};
}

// sin(x + quarter * pi/2), |x| given; huge and non-finite arguments go to `library`.
Vec sin_of_quarters(Vec magnitude, int quarter, Vec result_sign, LaneFunction library, Vec x) {
  auto [quadrant, remainder] = quarters(magnitude);
  if (quarter != 0) quadrant = quadrant + constant_like(quadrant, quarter);
  const Vec square = remainder * remainder;
  const Vec one = constant_like(quadrant, 1);
  const Vec is_cosine = compare(quadrant & one, kEqual, one);
  const Vec value = select(is_cosine, cos_reduced(square), sin_reduced(remainder, square));
  const int top = is_wide(x.lane) ? 62 : 30;
  const Vec flip = as(x.lane, shift_left(quadrant & constant_like(quadrant, 2), top));
  const Vec result = value ^ (result_sign.id < 0 ? flip : flip ^ result_sign);
  const Vec hard = compare(magnitude, kNotLess, constant_like(x, 0x1p30));
  return patch(result, hard, library, x, x);
}

// 2^(y log2 x) of float64 lanes, for x > 0; accurate to 32 bits.
Vec pow_for_f32(Vec x, Vec y) {
  Builder& b = *x.builder;
  const auto [exponent, significand] = split(x);
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
  return fraction * power_of_two(n);
}

// The same of float32 lanes.
Vec pow_in_f64(Vec x, Vec y) {
  Builder& b = *x.builder;
  Vec parts[2];
  for (uint8_t part = 0; part < 2; ++part) {
    const auto wide = [&](Vec v) {
      return b.emit(Op::widen, Lane::f32, Lane::f64, {v}, {.immediate = part});
    };
    parts[part] = pow_for_f32(wide(x), wide(y));
  }
  return b.emit(Op::narrow, Lane::f64, Lane::f32, {parts[0], parts[1]}, {});
}

// high + low, low being less than a unit in the last place of high.
struct Double {
  Vec high;
  Vec low;
};

// For |a| >= |b|, or a = 0.
Double sum(Vec a, Vec b) {
  const Vec high = a + b;
  return {high, (a - high) + b};
}

Double product(Vec a, Vec b) {
  const Vec high = a * b;
  return {high, fma(a, b, negate(high))};
}

// log(x) of float64 lanes to about 68 bits, for positive finite x.
Double log_in_two(Vec x) {
  const auto c = [&](double value) { return constant_like(x, value); };
  const auto [exponent, significand] = split(x);
  const Vec f = significand - c(1);
  // s = f / (2 + f), as in log_reduced.
  const Double below = sum(c(2), f);
  const Vec reciprocal = c(1) / below.high;
  const Vec s = f * reciprocal;
  const Vec s_low = fnma(s, below.low, fnma(s, below.high, f)) * reciprocal;
  // s^3 (2/3 + s^2 q), where q is a fit with the error of the whole, relative to 2 atanh(s), < 2^-69.
  constexpr double kLog[] = {0x1.9999999999967p-2, 0x1.2492492498f0bp-2, 0x1.c71c71bc4fcefp-3,
                             0x1.745d1bd100896p-3, 0x1.3b12964c9a203p-3, 0x1.113a53ba1edfap-3,
                             0x1.dac97736f2a24p-4, 0x1.0192e330e6594p-3};
  Double square = product(s, s);
  square.low = fma(s + s, s_low, square.low);
  Double cube = product(square.high, s);
  cube.low = fma(square.high, s_low, fma(square.low, s, cube.low));
  const Vec q = polynomial(square.high, kLog);
  const Vec p = fma(square.high, q, c(0x1.5555555555555p-1));
  const Vec p_low =
      fma(square.low, q, fma(square.high, q, c(0x1.5555555555555p-1) - p) + c(0x1.5555555555555p-55));
  Double rest = product(cube.high, p);
  rest.low = fma(cube.high, p_low, fma(cube.low, p, rest.low));
  Double result = sum(s + s, rest.high);
  result.low = result.low + fma(c(2), s_low, rest.low);
  // The product with the first piece of ln 2 is exact, and where it is not 0, larger than the rest.
  Double total = sum(exponent * ln2_high(x), result.high);
  total.low = total.low + fma(exponent, ln2_low(x), result.low);
  return total;
}

// e^(y log x) of float64 lanes, for positive finite x.
Vec pow_positive(Vec x, Vec y) {
  const auto c = [&](double value) { return constant_like(x, value); };
  const Double logarithm = log_in_two(x);
  const Double power = product(y, logarithm.high);
  // Beyond these bounds all is infinite or 0, and the low part may be no number.
  const Vec inside = compare(abs(power.high), kLess, c(750));
  const Vec low = select(inside, fma(y, logarithm.low, power.low), c(0));
  const auto [n, r, rest] = reduce_by_ln2(clamp(power.high, -750, 750));
  const Vec slope = fma(polynomial(r, fits::kExp), r, c(1));
  const Vec about = fma(slope, r, c(1));
  return scale(fma(slope, r, (rest + low) * about) + c(1), n);
}

}  // namespace

Vec exp(Vec x) {
  const bool wide = is_wide(x.lane);
  const Reduced reduced = reduce_by_ln2(wide ? clamp(x, -746, 710) : clamp(x, -104, 89));
  const Vec r = reduced.r;
  const Vec one = constant_like(x, 1);
  // (e^r - 1 - r) / r^2, its error counting relative to e^r.
  constexpr float kExp[] = {0.5f, 0.166665182f, 0.041666206f, 0.00836889632f, 0.00139504974f};
  const Vec slope = fma(polynomial(r, kExp, fits::kExp), r, one);
  return scale(fma(slope, r, one), reduced.n);
}

Vec expm1(Vec x) {
  const bool wide = is_wide(x.lane);
  const auto [n, r, rest] = reduce_by_ln2(wide ? clamp(x, -40, 710) : clamp(x, -18, 89));
  const Vec curve = fma(r * r, polynomial(r, kExpm1, fits::kExp), rest);
  // Halved, since 2^n itself can overflow where the result does not; what is small is added last.
  const Vec one_half = constant_like(x, 0.5);
  const Vec power = scale(one_half, n);
  const Vec half = fma(curve, power, fma(r, power, power - one_half));
  return select(compare(abs(x), kLess, constant_like(x, wide ? 0x1p-54 : 0x1p-25)), x, half + half);
}

Vec log(Vec x) {
  const auto [exponent, significand] = split(x);
  const Vec valid =
      compare(x, kGreater, constant_like(x, 0)) & compare(x, kLess, constant_like(x, kInfinity));
  return with_log_limits(valid, log_reduced(exponent, significand - constant_like(x, 1)), x, 0);
}

Vec log1p(Vec x) {
  const Vec zero = constant_like(x, 0);
  const Vec one = constant_like(x, 1);
  const Vec exponent = split(x + one).exponent;
  const Vec down = negate(exponent);
  // From x, not from the rounded sum: (1 + x) 2^-exponent - 1. Each is scaled by itself: of the largest x
  // the power would be subnormal, which is 0 where such numbers are flushed.
  const Vec f = scale(x, down) + (scale(one, down) - one);
  const Vec valid = compare(x, kGreater, negate(one)) & compare(x, kLess, constant_like(x, kInfinity)) &
                    compare(x, kNotEqual, zero);
  return with_log_limits(valid, log_reduced(exponent, f), x, -1);
}

Vec tanh(Vec x) {
  const Vec magnitude = abs(x);
  const Vec one = constant_like(x, 1);
  const Vec two = constant_like(x, 2);
  if (!is_wide(x.lane)) {
    // t / (t + 2) for t = e^2|x| - 1: within 3 units, and a polynomial cheaper than what is below.
    const Vec capped = raw_minimum(constant_like(x, 10), magnitude);
    const auto [n, r, rest] = reduce_by_ln2(capped + capped);
    const Vec power = scale(one, n);
    const Vec t = fma(fma(r * r, polynomial(r, kExpm1), r), power, power - one);
    return t / (t + two) | sign_bit(x);
  }
  // (tanh(x) / x - 1) / x^2, in x^2, where what follows would cancel; |error| of tanh(x) / x < 2^-60.
  constexpr double kSmall[] = {-0x1.555555555554fp-2,  0x1.11111111107e9p-3,  -0x1.ba1ba1b981903p-5,
                               0x1.664f485a4dc46p-6,   -0x1.226e2f2fb91cep-7, 0x1.d6d29fbdbc8b0p-9,
                               -0x1.7d900771b8c93p-10, 0x1.34854bf669336p-11, -0x1.e97fc16b60edap-13,
                               0x1.5da0fc007044ep-14,  -0x1.477c92688a5ddp-16};
  const Vec square = x * x;
  const Vec small = fma(x * square, polynomial(square, kSmall), x);
  const Vec large = one - two / (exp(magnitude + magnitude) + one);
  return select(compare(magnitude, kLess, constant_like(x, 0.55)), small, large) | sign_bit(x);
}

Vec erf(Vec x) {
  const bool wide = is_wide(x.lane);
  const Vec one = constant_like(x, 1);
  const Vec border = constant_like(x, 0.9);
  // Below the border: erf(x) / x - 1, in x^2; the wide one with |error| < 2^-60.
  constexpr float kSmall[] = {0.128379151f,   -0.376125276f,  0.112821639f,
                              -0.0267795455f, 0.00501274131f, -0.00060938258f};
  constexpr double kWideSmall[] = {0x1.06eba8214db69p-3,   -0x1.812746b0379e3p-2,  0x1.ce2f21a042835p-4,
                                   -0x1.b82ce312736c9p-6,  0x1.565bcd0a6ee38p-8,   -0x1.c02db31efb73ap-11,
                                   0x1.f9a307603731cp-14,  -0x1.f4cf6f9c3462ep-17, 0x1.b9b866982bfefp-20,
                                   -0x1.5d8aefdf99a4ap-23, 0x1.e2dcfdc3fe07ap-27,  -0x1.d32bb1bbe9293p-31};
  const Vec small = fma(x, polynomial(x * x, kSmall, kWideSmall), x);
  // Above it: log2(erfc(t)), the wide one in t - 1 and with erfc's |error| < 2^-58; and (2^r - 1) / r.
  constexpr float kLarge[] = {-0.000240159265f, -1.62706733f,    -0.918962419f, -0.150204107f,
                              0.032193955f,     -0.00442254404f, 0.00028596801f};
  constexpr double kWideLarge[] = {
      -0x1.558eada6637f3p+1,  -0x1.e75328fe78c5bp+1,  -0x1.37627e9b5c20dp+0,  -0x1.eb31368a15a60p-5,
      0x1.da5764d84f7bfp-7,   -0x1.7603efe036de6p-9,  0x1.6704cfeea311ep-12,  0x1.3df106914dd59p-15,
      -0x1.4883db240fbe0p-15, 0x1.d018aa332b7b2p-17,  -0x1.8a012e163eedfp-19, 0x1.791e32180064cp-23,
      0x1.5762a24ea1fa5p-23,  -0x1.689c52bfef941p-24, 0x1.a4fc7b453971ep-26,  -0x1.4cb8743dba678p-28,
      0x1.61c536a0999c4p-31,  -0x1.cae3a83cffb76p-35, 0x1.127ca9b6c3ccbp-39};
  constexpr float kExp2[] = {0.693147242f, 0.24022232f, 0.0555030741f, 0.00967209041f, 0.00134075596f};
  constexpr double kWideExp2[] = {0x1.62e42fefa39f7p-1,  0x1.ebfbdff82c5a0p-3,  0x1.c6b08d7044114p-5,
                                  0x1.3b2ab6fba0350p-7,  0x1.5d87fe90903dcp-10, 0x1.4309130f686cep-13,
                                  0x1.ffcb76767a5f9p-17, 0x1.62bfc48b57ccdp-20, 0x1.b6571fec09859p-24,
                                  0x1.e6228dc14c922p-28};
  const Vec magnitude = abs(x);
  const Vec capped = raw_minimum(constant_like(x, wide ? 5.95 : 3.94f), magnitude);
  const Vec logarithm = polynomial(wide ? capped - one : capped, kLarge, kWideLarge);
  const Vec n = round(logarithm, kNearest);
  const Vec r = logarithm - n;
  const Vec large = one - scale(fma(polynomial(r, kExp2, kWideExp2), r, one), n);
  return select(compare(magnitude, kLess, border), small, large | sign_bit(x));
}

template <class T>
constexpr LaneFunction kLibrarySin = call_lanes<T, [](T v) { return std::sin(v); }>;
template <class T>
constexpr LaneFunction kLibraryCos = call_lanes<T, [](T v) { return std::cos(v); }>;

Vec sin(Vec x) {
  return sin_of_quarters(abs(x), 0, sign_bit(x), is_wide(x.lane) ? kLibrarySin<double> : kLibrarySin<float>,
                         x);
}

Vec cos(Vec x) {
  return sin_of_quarters(abs(x), 1, Vec{}, is_wide(x.lane) ? kLibraryCos<double> : kLibraryCos<float>, x);
}

Vec pow(Vec x, Vec y) {
  const Vec magnitude = abs(x);
  Vec result = is_wide(x.lane) ? pow_positive(magnitude, y) : pow_in_f64(magnitude, y);

  const Vec zero = constant_like(x, 0);
  const Vec one = constant_like(x, 1);
  const Vec infinity = constant_like(x, kInfinity);
  const Vec is_zero = compare(x, kEqual, zero);
  const Vec limit = select(compare(y, kGreater, zero) ^ is_zero, infinity, zero);
  result = select(is_zero | compare(magnitude, kEqual, infinity), limit, result);

  const Vec is_integer = compare(round(y, kTruncate), kEqual, y);
  const Vec half = y * constant_like(x, 0.5);
  const Vec is_odd = is_integer & compare(round(half, kTruncate), kNotEqual, half);
  result = result | select(is_odd, sign_bit(x), zero);
  const Vec negative = compare(x, kLess, zero) & compare(magnitude, kLess, infinity);
  result = select(and_not(negative, is_integer), constant_like(x, kNaN), result);
  result = select(compare(x, kUnordered, y), x + y, result);
  const Vec is_one = compare(y, kEqual, zero) | compare(x, kEqual, one) |
                     (compare(magnitude, kEqual, one) & compare(abs(y), kEqual, infinity));
  return select(is_one, one, result);
}

Vec mod(Vec x, Vec y) {
  const bool wide = is_wide(x.lane);
  const Vec quotient = x / y;
  // Exact while the quotient is a small integer; it can be one too large, since it was rounded.
  const Vec rest = fnma(round(quotient, kFloor), y, x);
  const Lane bits = Format(x).integer;
  const Vec wrong_side = compare(as(bits, constant_like(x, 0)), kGreater, as(bits, rest ^ y));
  const Vec is_zero = compare(rest, kEqual, constant_like(x, 0));
  const Vec corrected = select(wrong_side, rest + y, rest);
  const Vec result = select(is_zero, sign_bit(y), corrected);
  const Vec hard = compare(abs(quotient), kNotLess, constant_like(x, wide ? 0x1p51 : 0x1p22)) |
                   compare(abs(y), kNotLess, constant_like(x, kInfinity));
  const auto library = wide ? call_lanes<double, scalar::mod<double>> : call_lanes<float, scalar::mod<float>>;
  return patch(result, hard, library, x, y);
}

}  // namespace lockstep::cpu::jit
