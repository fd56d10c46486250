// Rows of the table that are more than one instruction: circular and hyperbolic functions, erfc, tests of
// floats.
//
// Polynomials are Chebyshev fits, made for this file, of what is named beside them; coefficients stand lowest
// power first. float64 has its own; 16-bit floats are computed in float32.
#include <cmath>
#include <limits>
#include <numbers>

#include "lockstep/ops/math.h"
#include "ops/elementwise/rows.h"

namespace lockstep {
namespace {

using namespace elementwise;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPi = std::numbers::pi;

Scalar constant(Scalar like, double value) { return like.expander().constant(value, like.dtype()); }
Scalar minimum_of(Scalar a, Scalar b) { return binary(Opcode::minimum, a, b); }
Scalar maximum_of(Scalar a, Scalar b) { return binary(Opcode::maximum, a, b); }
Scalar less_than(Scalar a, Scalar b) { return compare(Opcode::less, a, b); }
Scalar less_than(Scalar a, double b) { return compare(Opcode::less, a, constant(a, b)); }
Scalar equals(Scalar a, double b) { return compare(Opcode::equal, a, constant(a, b)); }
Scalar magnitude(Scalar x) { return unary(Opcode::abs, x); }
Scalar root(Scalar x) { return unary(Opcode::sqrt, x); }

// x's sign on r, which was computed from |x|; zeros keep theirs.
Scalar odd(Scalar x, Scalar r) { return select(equals(x, 0), x, select(less_than(x, 0.0), -r, r)); }

// c[0] + c[1] x + ..., by Horner's rule.
Scalar polynomial(Scalar x, std::span<const double> c) {
  Scalar sum = constant(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

// atan of r in [0, 1]: beyond tan(pi/8) it is pi/4 + atan((r - 1) / (r + 1)).
Scalar atan_of_unit(Scalar r) {
  // (atan(u) / u - 1) / u^2 by u^2, |u| <= tan(pi/8)
  static constexpr double kFloat[] = {-0.333333317538169689, 0.199995387947719215, -0.142638971125986755,
                                      0.107430996676745703, -0.0644983522459149615};
  static constexpr double kDouble[] = {-0.333333333333333301, 0.199999999999954792,   -0.142857142846578936,
                                       0.111111110145610136,  -0.0909090454988461095, 0.076921825351166482,
                                       -0.066645022156714471, 0.0585806875686151056,  -0.0508503049281094059,
                                       0.0392195525325512954, -0.0191620689159025756};
  const Scalar large = less_than(constant(r, std::numbers::sqrt2 - 1), r);
  const Scalar u = select(large, (r - 1.0) / (r + 1.0), r);
  const Scalar square = u * u;
  const Scalar curve = r.dtype() == DType::float64 ? polynomial(square, kDouble) : polynomial(square, kFloat);
  const Scalar angle = u + u * (square * curve);
  return select(large, kPi / 4 + angle, angle);
}

Scalar atan_of(Scalar x) {
  const Scalar a = magnitude(x);
  const Scalar steep = less_than(constant(x, 1), a);
  const Scalar angle = atan_of_unit(select(steep, 1.0 / a, a));
  return odd(x, select(steep, kPi / 2 - angle, angle));
}

Scalar is_negative(Scalar x) {  // and so is -0
  return binary(Opcode::logical_or, less_than(x, 0.0), less_than(1.0 / x, 0.0));
}

// The angle of the point (x, y), signed zeros and infinities as in C.
Scalar atan2_of(Scalar y, Scalar x) {
  const Scalar a = magnitude(y), b = magnitude(x);
  const Scalar low = minimum_of(a, b), high = maximum_of(a, b);
  const Scalar ratio =
      select(equals(high, 0), high, select(equals(low, kInfinity), constant(x, 1), low / high));
  const Scalar octant = atan_of_unit(ratio);
  const Scalar quadrant = select(less_than(b, a), kPi / 2 - octant, octant);
  const Scalar angle = select(is_negative(x), kPi - quadrant, quadrant);
  return select(is_negative(y), -angle, angle);
}

// erfc(a) for a >= 0 is exp(-a^2) times a slowly varying function. a^2 is split so that its exponential keeps
// all digits: the square of a rounded to 1/16 is exact.
Scalar erfc_of(Scalar x) {
  // (1 + 2a) exp(a^2) erfc(a) by (a - k) / (a + k): k = 3, a <= 12 and k = 4, a <= 28; erfc is 0 beyond
  static constexpr double kFloat[] = {
      1.25300805988569587,    -0.135621165797478506,    -0.0475625016424953503,  0.129647033346657138,
      -0.119268899689325401,  0.0682931305986789801,    -0.0238100927717287767,  0.00256325314014277057,
      0.00202250350185952835, -0.000753347976678879259, -0.000260164313303404179};
  static constexpr double kDouble[] = {
      1.23299511862555255,     -0.139621116840562555,    0.0153796521026061327,    0.0680970542547021274,
      -0.101039066035580629,   0.093732834997984629,     -0.0663303658272927898,   0.0371675155424207577,
      -0.0161977338959598549,  0.00503196995232915292,   -0.000757774306169337074, -0.000199256696404256237,
      0.00015062567141369432,  -0.000024398609353512904, -0.000011232086023404734, 5.70682747506826368e-6,
      3.09944020108315453e-7,  -8.18766256291578559e-7,  5.88323063291443501e-8,   1.01812474751499711e-7,
      -9.45627152491569159e-9, -8.90620866393462229e-9};
  const bool wide = x.dtype() == DType::float64;
  const double k = wide ? 4 : 3;
  const Scalar a = minimum_of(magnitude(x), constant(x, wide ? 28 : 12));
  const Scalar t = (a - k) / (a + k);
  const Scalar curve = (wide ? polynomial(t, kDouble) : polynomial(t, kFloat)) / (1.0 + 2.0 * a);
  const Scalar head = unary(Opcode::round, 16.0 * a) * 0.0625;
  const Scalar tail = (a - head) * (a + head);
  const Scalar result = curve * unary(Opcode::exp, -(head * head)) * unary(Opcode::exp, -tail);
  return select(less_than(x, 0.0), 2.0 - result, result);
}

// (e^x -+ e^-x) / 2. The exponential of half the argument, twice, overflows only where the result does.
Scalar sinh_of(Scalar x) {
  const Scalar a = magnitude(x);
  const Scalar m = unary(Opcode::expm1, a);
  const Scalar half = unary(Opcode::exp, 0.5 * a);
  return odd(x, select(less_than(a, 20.0), 0.5 * (m + m / (m + 1.0)), 0.5 * half * half));
}

Scalar cosh_of(Scalar x) {
  const Scalar half = unary(Opcode::exp, 0.5 * magnitude(x));
  return 0.5 * half * half + 0.5 / half / half;
}

// log(a + sqrt(a^2 + 1)) as log1p(a + a^2 / (1 + sqrt(a^2 + 1))), divided through by a: a^2 would overflow.
Scalar asinh_of(Scalar x) {
  const Scalar a = magnitude(x);
  const Scalar r = 1.0 / a;
  return odd(x, unary(Opcode::log1p, a + a / (r + root(1.0 + r * r))));
}

Scalar acosh_of(Scalar x) {
  const Scalar t = x - 1.0;
  return unary(Opcode::log1p, t + root(t) * root(x + 1.0));
}

Scalar atanh_of(Scalar x) {
  const Scalar a = magnitude(x);
  return odd(x, 0.5 * unary(Opcode::log1p, 2.0 * a / (1.0 - a)));
}

// Integers: the truncated quotient, less one where something was cut off a negative one.
Scalar floordiv_of(Scalar a, Scalar b) {
  const Scalar q = a / b;
  if (is_floating(a.dtype())) return unary(Opcode::floor, q);
  if (a.dtype() == DType::uint8) return q;
  const Scalar cut = binary(Opcode::logical_and, compare(Opcode::not_equal, q * b, a),
                            compare(Opcode::not_equal, less_than(a, 0.0), less_than(b, 0.0)));
  return select(equals(b, 0), q, select(cut, q - 1.0, q));
}

// Half angles: tan(asin(x) / 2) = x / (1 + sqrt(1 - x^2)), tan(acos(x) / 2) = sqrt((1 - x) / (1 + x)).
Scalar asin_of(Scalar x) { return 2.0 * atan_of(x / (1.0 + root((1.0 - x) * (1.0 + x)))); }
Scalar acos_of(Scalar x) { return 2.0 * atan_of(root((1.0 - x) / (1.0 + x))); }
Scalar tan_of(Scalar x) { return unary(Opcode::sin, x) / unary(Opcode::cos, x); }
Scalar log2_of(Scalar x) { return unary(Opcode::log, x) * std::numbers::log2e; }
Scalar log10_of(Scalar x) { return unary(Opcode::log, x) * std::numbers::log10e; }

}  // namespace

// clang-format off
constinit const OpDef kTan = floating("tan", widened<tan_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * (1.0 + g.out() * g.out())}; });
constinit const OpDef kAsin = floating("asin", widened<asin_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * rsqrt((1.0 - g.in()) * (1.0 + g.in()))}; });
constinit const OpDef kAcos = floating("acos", widened<acos_of>,
    [](const GradContext& g) -> TensorList { return {-g.dout() * rsqrt((1.0 - g.in()) * (1.0 + g.in()))}; });
constinit const OpDef kAtan = floating("atan", widened<atan_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() / (1.0 + g.in() * g.in())}; });
constinit const OpDef kAtan2 = row("atan2", 2, infer_floating, widened<atan2_of>,
    [](const GradContext& g) {
      const Tensor &y = g.in(0), &x = g.in(1);
      const Tensor scaled = g.dout() / (x * x + y * y);
      return to_inputs(g, g.needs(0) ? scaled * x : Tensor(), g.needs(1) ? -scaled * y : Tensor());
    });
constinit const OpDef kSinh = floating("sinh", widened<sinh_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * cosh(g.in())}; });
constinit const OpDef kCosh = floating("cosh", widened<cosh_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * sinh(g.in())}; });
constinit const OpDef kAsinh = floating("asinh", widened<asinh_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * rsqrt(1.0 + g.in() * g.in())}; });
constinit const OpDef kAcosh = floating("acosh", widened<acosh_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * rsqrt((g.in() - 1.0) * (g.in() + 1.0))}; });
constinit const OpDef kAtanh = floating("atanh", widened<atanh_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() / ((1.0 - g.in()) * (1.0 + g.in()))}; });
constinit const OpDef kErfc = floating("erfc", widened<erfc_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * (-2.0 / std::sqrt(kPi) * exp(-(g.in() * g.in())))}; });
constinit const OpDef kLog2 = floating("log2", widened<log2_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * std::numbers::log2e / g.in()}; });
constinit const OpDef kLog10 = floating("log10", widened<log10_of>,
    [](const GradContext& g) -> TensorList { return {g.dout() * std::numbers::log10e / g.in()}; });
constinit const OpDef kTruncate = floating("truncate",
    [](Expander& e) {
      const Scalar x = e.in(0);
      e.out(select(less_than(x, 0.0), unary(Opcode::ceil, x), unary(Opcode::floor, x)));
    },
    [](const GradContext& g) -> TensorList { return {zeros_like(g.in())}; });
constinit const OpDef kFloordiv = arithmetic("floordiv", [](Expander& e) { e.out(floordiv_of(e.in(0), e.in(1))); }, nullptr);

constinit const OpDef kIsNan = row("is_nan", 1, infer_float_test,
    [](Expander& e) { e.out(compare(Opcode::not_equal, e.in(0), e.in(0))); }, nullptr);
constinit const OpDef kIsInf = row("is_inf", 1, infer_float_test,
    [](Expander& e) { e.out(equals(magnitude(e.in(0)), kInfinity)); }, nullptr);
constinit const OpDef kIsFinite = row("is_finite", 1, infer_float_test,
    [](Expander& e) { e.out(less_than(magnitude(e.in(0)), kInfinity)); }, nullptr);
constinit const OpDef kLogicalXor = row("logical_xor", 2, infer_logical,
    [](Expander& e) { e.out(compare(Opcode::not_equal, e.in(0), e.in(1))); }, nullptr);
// clang-format on

namespace {
const bool registered = [] {
  for (const OpDef* op :
       {&kTan, &kAsin, &kAcos, &kAtan, &kAtan2, &kSinh, &kCosh, &kAsinh, &kAcosh, &kAtanh, &kErfc, &kLog2,
        &kLog10, &kTruncate, &kFloordiv, &kIsNan, &kIsInf, &kIsFinite, &kLogicalXor})
    RegisterOp{*op};
  return true;
}();
}  // namespace
}  // namespace lockstep
