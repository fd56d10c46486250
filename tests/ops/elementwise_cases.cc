#include <cmath>
#include <limits>
#include <numbers>

#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "ops/elementwise/activations.h"
#include "ops/elementwise/ops.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const std::vector<std::vector<Shape>> kUnaryEdges = {{{}},        {{1}},    {{0}},
                                                     {{3, 0, 2}}, {{1, 1}}, {{2, 1, 2, 1, 1, 2, 1, 2}}};
const std::vector<std::vector<Shape>> kBinaryEdges = {{{}, {}},      {{1}, {1}},   {{0}, {0}},
                                                      {{0}, {1}},    {{3, 0}, {}}, {{1}, {2, 0}},
                                                      {{3, 1}, {4}}, {{}, {2, 2}}, {{2, 1, 3}, {2, 1}}};

// --- references --------------------------------------------------------------------------------------------

double quotient(DType dtype, double a, double b) {
  if (is_floating(dtype)) return a / b;
  return b == 0 ? 0 : std::trunc(a / b);
}

double floored_mod(DType dtype, double a, double b) {
  if (!is_floating(dtype) && b == 0) return 0;
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double integer_power(double x, double y) { return x == 0 && y < 0 ? 0 : std::trunc(std::pow(x, y)); }

double sign_of(double x) { return std::isnan(x) ? x : (x > 0) - (x < 0); }
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double softplus_of(double x) { return x > 700 ? x : std::log1p(std::exp(x)); }
double gelu_of(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }
double gelu_tanh_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double maximum_of(double a, double b) { return std::isnan(a) || std::isnan(b) ? kNaN : std::max(a, b); }
double minimum_of(double a, double b) { return std::isnan(a) || std::isnan(b) ? kNaN : std::min(a, b); }

double floored_quotient(DType dtype, double a, double b) {
  if (!is_floating(dtype) && b == 0) return 0;
  return std::floor(a / b);
}

double elu_of(double x, double alpha, double scale, double rate) {
  return scale * (x > 0 ? x : alpha * std::expm1(rate * x));
}
double silu_of(double x) { return x * sigmoid_of(x); }
double mish_of(double x) { return x * std::tanh(softplus_of(x)); }
double hard_sigmoid_of(double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); }
double squareplus_of(double x) {
  const double root = std::sqrt(x * x + 4);
  return x < 0 ? 2 / (root - x) : (x + root) / 2;
}
double sparse_plus_of(double x) { return x <= -1 ? 0 : x < 1 ? (x + 1) * (x + 1) / 4 : x; }
double log_sigmoid_of(double x) { return -softplus_of(-x); }

// Casting saturates from floats, wraps around from integers.
double cast_of(double x, DType from, DType to) {
  if (to == DType::boolean) return x != 0;
  if (!is_integer(to) || !is_floating(from)) return x;
  if (std::isnan(x)) return 0;
  const double low = to == DType::uint8 ? 0 : to == DType::int32 ? -0x1p31 : -0x1p63;
  const double high = to == DType::uint8 ? 255 : to == DType::int32 ? 0x1p31 - 1 : 0x1p63;
  return std::clamp(std::trunc(x), low, high);
}

// --- rows --------------------------------------------------------------------------------------------------

template <class F>
OpCase rounded(const CaseName& name, Tensor (*function)(const TensorArg&), const Input& input, F f) {
  return {.name = name,
          .op = name,
          .inputs = {input},
          .reference = each(f),
          .function = function,
          .edge_shapes = kUnaryEdges,
          .large = {{301, 400}}};
}

template <class F>
OpCase exact(const CaseName& name, Tensor (*function)(const TensorArg&), const Input& input,
             const DTypes& dtypes, F f) {
  OpCase c = rounded(name, function, input, f);
  c.dtypes = dtypes;
  c.tolerance = Tolerance::exact;
  return c;
}

// These numbers again and again.
Input cycled(const Shape& shape, const std::vector<double>& numbers) {
  return {.shape = shape, .draw = [=](const Shape& actual, uint64_t) {
            std::vector<double> values(static_cast<size_t>(actual.size()));
            for (size_t i = 0; i < values.size(); ++i) values[i] = numbers[i % numbers.size()];
            return values;
          }};
}

OpCase summed(OpCase c) {
  c.tolerance = Tolerance::summed;
  return c;
}

OpCase of_whole_numbers(OpCase c) {
  c.dtypes = {DType::int32, DType::int64, DType::uint8};
  c.tolerance = Tolerance::exact;
  c.derivatives = kUnchecked;
  return c;
}

OpCase without_gradient(OpCase c) {
  c.tolerance = Tolerance::exact;
  c.derivatives = 0;
  return c;
}

template <class F>
OpCase float_test(const CaseName& name, Tensor (*function)(const TensorArg&), F f) {
  return {.name = name,
          .op = name,
          .inputs = {cycled({2, 3}, {0.0, kInf, -kInf, kNaN, -1, 1e4})},
          .reference = each(f),
          .tolerance = Tolerance::exact,
          .function = function,
          .results = {always<DType::boolean>},
          .derivatives = 0,
          .edge_shapes = kUnaryEdges,
          .large = {{301, 400}}};
}

// The op on numbers about which floating point has its own opinion.
template <class F>
OpCase special(const CaseName& op, const std::vector<double>& numbers, F f) {
  return {.name = op + "_special",
          .op = op,
          .inputs = {given({static_cast<int64_t>(numbers.size())}, numbers)},
          .reference = each(f),
          .derivatives = kUnchecked};
}

OpCase special_elu(const std::vector<double>& numbers) {
  OpCase c = special("elu", numbers, [](double v) { return elu_of(v, 1, 1, 1); });
  c.attrs = EluAttrs{};
  return c;
}

using BinaryFunction = Tensor (*)(const OperandArg&, const OperandArg&);

template <class F>
OpCase binary(const CaseName& name, BinaryFunction function, const Input& a, const Input& b, F f) {
  return {.name = name,
          .op = name,
          .inputs = {a, b},
          .reference = each(f),
          .dtypes = kNumbers,
          .tolerance = Tolerance::exact,
          .function = function,
          .edge_shapes = kBinaryEdges,
          .large = {{301, 400}, {400}}};
}

template <class F>
OpCase rounded(const CaseName& name, BinaryFunction function, const Input& a, const Input& b, F f) {
  OpCase c = binary(name, function, a, b, f);
  c.dtypes = kFloats;
  c.tolerance = Tolerance::rounded;
  return c;
}

template <class F>
OpCase of_integers(const CaseName& op, const Input& a, const Input& b, F f) {
  return {.name = op + "_of_integers",
          .op = op,
          .inputs = {a, b},
          .reference = each(f),
          .dtypes = {DType::int32, DType::int64, DType::uint8},
          .tolerance = Tolerance::exact,
          .derivatives = kUnchecked};
}

template <class F>
OpCase comparison(const CaseName& name, BinaryFunction function, F f) {
  OpCase c = binary(name, function, integers({4, 6}, -2, 2), integers({6}, -2, 2), f);
  c.dtypes = kAll;
  c.results = {always<DType::boolean>};
  c.derivatives = 0;
  return c;
}

template <class F>
OpCase logical(const CaseName& name, std::vector<Input> inputs, PublicFunction function, F f) {
  const bool pair = inputs.size() == 2;
  return {.name = name,
          .op = name,
          .inputs = std::move(inputs),
          .reference = each(f),
          .dtypes = {DType::boolean},
          .tolerance = Tolerance::exact,
          .function = std::move(function),
          .derivatives = 0,
          .edge_shapes = pair ? kBinaryEdges : kUnaryEdges,
          .large = pair ? std::vector<Shape>{{401, 500}, {500}} : std::vector<Shape>{{401, 500}}};
}

OpCase gelu_case(const CaseName& name, bool approximate, double (*f)(double)) {
  return {.name = name,
          .op = "gelu",
          .inputs = {normal({4, 6})},
          .attrs = GeluAttrs{approximate},
          .reference = each(f),
          .tolerance = Tolerance::summed,
          .function = [=](auto in) { return gelu(in[0], {.approximate = approximate}); },
          .edge_shapes = kUnaryEdges,
          .large = {{301, 400}}};
}

// An activation with settings.
template <class F>
OpCase with_settings(const CaseName& name, const std::string& op, const Input& input, const Attrs& attrs, F f,
                     PublicFunction function) {
  return {.name = name,
          .op = op,
          .inputs = {input},
          .attrs = attrs,
          .reference = each(f),
          .tolerance = Tolerance::summed,
          .function = std::move(function),
          .edge_shapes = kUnaryEdges,
          .large = {{301, 400}}};
}

// A public function of several ops, each of them exact or the only one that rounds.
template <class F>
OpCase composed(const CaseName& name, const Input& input, PublicFunction function, F f) {
  return {.name = name,
          .inputs = {input},
          .reference = each(f),
          .function = std::move(function),
          .elementwise = true,
          .edge_shapes = {{{}}, {{0}}, {{1, 1}}}};
}

OpCase select_case(const CaseName& name, const Shape& condition, const Shape& a, const Shape& b) {
  return {.name = name,
          .op = "select",
          .inputs = {booleans(condition), normal(a), normal(b)},
          .reference = each([](double c, double x, double y) { return c != 0 ? x : y; }),
          .dtypes = kAll,
          .tolerance = Tolerance::exact,
          .function = [](auto in) { return where(in[0], in[1], in[2]); },
          .edge_shapes = {{{}, {}, {}}, {{1}, {1}, {1}}, {{0}, {}, {1}}, {{2, 0}, {0}, {1, 1}}},
          .large = {{301, 400}, {301, 1}, {400}}};
}

// --- tables ------------------------------------------------------------------------------------------------

OpCase cast_case(DType to) {
  return {.name = detail::concat("cast_to_", to),
          .op = "cast",
          .inputs = {within({4, 6}, -3, 3)},
          .attrs = CastAttrs{to},
          .reference = each([to](DType from, double x) { return cast_of(x, from, to); }),
          .dtypes = kAll,
          .tolerance = Tolerance::exact,
          .function = [to](auto in) { return cast(in[0], to); },
          .results = {always_dtype(to)},
          // The weights of a sum of 16-bit results are rounded too coarsely for finite differences.
          .derivatives = !is_floating(to)   ? 0
                         : size_of(to) == 2 ? kUnchecked
                                            : 2,
          .edge_shapes = kUnaryEdges,
          .large = {{401, 500}}};
}

OpCases cases() {
  const Input x = normal({4, 6}), row = normal({6}), positive = within({4, 6}, 0.5, 4),
              flags = integers({4, 6}, 0, 1);
  const Input kinked = off_zero({4, 6}), stepped = off_integers({4, 6});
  const Input activated =
                  cycled({4, 6}, {-8,    -5, -3.5, -2.5, -2, -1.5, -1.25, -0.75, -0.5, -0.25, 0.25, 0.5,
                                  0.875, 1,  1.25, 1.5,  2,  2.5,  3.5,   4,     5,    6.5,   7,    8}),
              kinked_at_one =
                  cycled({4, 6}, {-8,    -5,    -3.5, -2.5, -2, -1.5, -1.25, -0.75, -0.5, -0.25, 0.25, 0.5,
                                  0.875, 0.625, 1.25, 1.5,  2,  2.5,  3.5,   4,     5,    6.5,   7,    8});
  OpCases all = {
      exact("identity", identity, x, kAll, [](double v) { return v; }),
      with_derivatives(0, exact("stop_gradient", stop_gradient, x, kAll, [](double v) { return v; })),
      exact("neg", negative, x, kNumbers, [](double v) { return -v; }),
      exact("abs", abs, kinked, kNumbers, [](double v) { return std::abs(v); }),
      exact("sign", sign, kinked, kNumbers, sign_of),
      exact("floor", floor, stepped, kFloats, [](double v) { return std::floor(v); }),
      exact("ceil", ceil, stepped, kFloats, [](double v) { return std::ceil(v); }),
      exact("round", round, stepped, kFloats, [](double v) { return std::nearbyint(v); }),
      exact("square", square, x, kNumbers, [](double v) { return v * v; }),
      exact("sqrt", sqrt, positive, kFloats, [](double v) { return std::sqrt(v); }),
      exact("reciprocal", reciprocal, kinked, kFloats, [](double v) { return 1 / v; }),
      exact("relu", relu, kinked, kNumbers, [](double v) { return std::max(v, 0.0); }),
      rounded("rsqrt", rsqrt, positive, [](double v) { return 1 / std::sqrt(v); }),
      rounded("exp", exp, x, [](double v) { return std::exp(v); }),
      rounded("expm1", expm1, within({4, 6}, -1, 1), [](double v) { return std::expm1(v); }),
      rounded("log", log, positive, [](double v) { return std::log(v); }),
      rounded("log1p", log1p, within({4, 6}, -0.7, 2), [](double v) { return std::log1p(v); }),
      rounded("tanh", tanh, x, [](double v) { return std::tanh(v); }),
      rounded("sigmoid", sigmoid, x, sigmoid_of),
      rounded("erf", erf, x, [](double v) { return std::erf(v); }),
      rounded("sin", sin, within({4, 6}, -8, 8), [](double v) { return std::sin(v); }),
      rounded("cos", cos, within({4, 6}, -8, 8), [](double v) { return std::cos(v); }),
      rounded("softplus", softplus, x, softplus_of),
      gelu_case("gelu", false, gelu_of),
      gelu_case("gelu_approximate", true, gelu_tanh_of),

      rounded("tan", tan, within({4, 6}, -1.3, 1.3), [](double v) { return std::tan(v); }),
      rounded("asin", asin, within({4, 6}, -0.9, 0.9), [](double v) { return std::asin(v); }),
      rounded("acos", acos, within({4, 6}, -0.9, 0.9), [](double v) { return std::acos(v); }),
      rounded("atan", atan, within({4, 6}, -3, 3), [](double v) { return std::atan(v); }),
      rounded("sinh", sinh, within({4, 6}, -3, 3), [](double v) { return std::sinh(v); }),
      rounded("cosh", cosh, within({4, 6}, -3, 3), [](double v) { return std::cosh(v); }),
      rounded("asinh", asinh, within({4, 6}, -3, 3), [](double v) { return std::asinh(v); }),
      rounded("acosh", acosh, within({4, 6}, 1.3, 4), [](double v) { return std::acosh(v); }),
      rounded("atanh", atanh, within({4, 6}, -0.8, 0.8), [](double v) { return std::atanh(v); }),
      rounded("erfc", erfc, within({4, 6}, -2, 3), [](double v) { return std::erfc(v); }),
      rounded("log2", log2, positive, [](double v) { return std::log2(v); }),
      rounded("log10", log10, positive, [](double v) { return std::log10(v); }),
      exact("truncate", truncate, stepped, kFloats, [](double v) { return std::trunc(v); }),
      float_test("is_nan", is_nan, [](double v) { return std::isnan(v); }),
      float_test("is_inf", is_inf, [](double v) { return std::isinf(v); }),
      float_test("is_finite", is_finite, [](double v) { return std::isfinite(v); }),

      with_settings(
          "leaky_relu", "leaky_relu", kinked, ActivationAttrs{0.2},
          [](double v) { return v < 0 ? 0.2 * v : v; }, [](auto in) { return leaky_relu(in[0]); }),
      of_whole_numbers(with_settings(
          "leaky_relu_of_integers", "leaky_relu", kinked, ActivationAttrs{2},
          [](double v) { return v < 0 ? 2 * v : v; }, [](auto in) { return leaky_relu(in[0], 2); })),
      with_settings(
          "elu", "elu", kinked, EluAttrs{.alpha = 1.5}, [](double v) { return elu_of(v, 1.5, 1, 1); },
          [](auto in) { return elu(in[0], 1.5); }),
      with_settings(
          "selu", "elu", kinked, EluAttrs{.alpha = 1.6732632423543772, .scale = 1.0507009873554805},
          [](double v) { return elu_of(v, 1.6732632423543772, 1.0507009873554805, 1); },
          [](auto in) { return selu(in[0]); }),
      with_settings(
          "celu", "elu", kinked, EluAttrs{.alpha = 2, .rate = 0.5},
          [](double v) { return elu_of(v, 2, 1, 0.5); }, [](auto in) { return celu(in[0], 2); }),
      with_settings("squareplus", "squareplus", x, ActivationAttrs{4}, squareplus_of,
                    [](auto in) { return squareplus(in[0]); }),
      rounded("silu", silu, x, silu_of),
      rounded("mish", mish, x, mish_of),
      rounded("softsign", softsign, kinked, [](double v) { return v / (1 + std::abs(v)); }),
      rounded("hard_sigmoid", hard_sigmoid, activated, hard_sigmoid_of),
      rounded("hard_silu", hard_silu, activated, [](double v) { return v * hard_sigmoid_of(v); }),
      summed(rounded("tanh_shrink", tanh_shrink, x, [](double v) { return v - std::tanh(v); })),
      rounded("sparse_plus", sparse_plus, kinked_at_one, sparse_plus_of),
      composed(
          "log_sigmoid", x, [](auto in) { return log_sigmoid(in[0]); }, log_sigmoid_of),
      composed(
          "relu6", activated, [](auto in) { return relu6(in[0]); },
          [](double v) { return std::clamp(v, 0.0, 6.0); }),
      composed(
          "relu_with_options", activated,
          [](auto in) { return relu(in[0], {.negative_slope = 0.5, .max_value = 3.75, .threshold = 0.75}); },
          [](double v) { return v <= 0.75       ? 0.5 * (v - 0.75)
                                : std::isnan(v) ? v
                                                : std::min(v, 3.75); }),
      composed(
          "hard_tanh", kinked_at_one, [](auto in) { return hard_tanh(in[0]); },
          [](double v) { return std::clamp(v, -1.0, 1.0); }),
      composed(
          "hard_shrink", kinked, [](auto in) { return hard_shrink(in[0], 0.75); },
          [](double v) { return std::abs(v) <= 0.75 ? 0 : v; }),
      composed(
          "soft_shrink", kinked_at_one, [](auto in) { return soft_shrink(in[0], 1); },
          [](double v) { return std::abs(v) <= 1 ? 0 : v - std::copysign(1, v); }),
      composed(
          "threshold", kinked_at_one, [](auto in) { return threshold(in[0], 1, 5); },
          [](double v) { return v <= 1 ? 5 : v; }),
      composed(
          "sparse_sigmoid", kinked_at_one, [](auto in) { return sparse_sigmoid(in[0]); },
          [](double v) { return std::clamp((v + 1) / 2, 0.0, 1.0); }),
      {.name = "glu",
       .inputs = {normal({3, 4, 2})},
       .reference =
           [](const Arrays& in) {
             Array out({3, 2, 2});
             each_index(out.shape, [&](const Dims& i) {
               out.at(i) = in[0].at(i) * sigmoid_of(in[0].at({i[0], i[1] + 2, i[2]}));
             });
             return out;
           },
       .dtypes = {DType::float32, DType::float64},
       .function = [](auto in) { return glu(in[0], 1); }},

      special("tan", {kInf, kNaN, 0.0, -0.0, 1e-6}, [](double v) { return std::tan(v); }),
      special("asin", {1, -1, 1.5, kNaN, 0.0, -0.0, 1e-6, 0.9999}, [](double v) { return std::asin(v); }),
      special("acos", {1, -1, 1.5, kNaN, 0.0, 0.9999, -0.9999}, [](double v) { return std::acos(v); }),
      special("atan", {kInf, -kInf, kNaN, 0.0, -0.0, 1, -1, 1e-6, 1e6, 0.41, 0.42},
              [](double v) { return std::atan(v); }),
      special("sinh", {kInf, -kInf, kNaN, 0.0, -0.0, 1e-6, 19, 21, 89, -88, 1000},
              [](double v) { return std::sinh(v); }),
      special("cosh", {kInf, -kInf, kNaN, 0.0, 1e-6, 89, -88, 1000}, [](double v) { return std::cosh(v); }),
      special("asinh", {kInf, -kInf, kNaN, 0.0, -0.0, 1e-6, 1e-30, 1e30, -1e8},
              [](double v) { return std::asinh(v); }),
      special("acosh", {kInf, kNaN, 1, 0.5, 1e30, 1.001}, [](double v) { return std::acosh(v); }),
      special("atanh", {1, -1, 2, kNaN, 0.0, -0.0, 1e-6, 0.9999}, [](double v) { return std::atanh(v); }),
      special("erfc", {kInf, -kInf, kNaN, 0.0, 1e-6, 5, 9, 9.9, 20, 30, -9},
              [](double v) { return std::erfc(v); }),
      special("truncate", {-0.5, kInf, kNaN, 0.0, 1e30}, [](double v) { return std::trunc(v); }),
      special("silu", {kInf, kNaN, 0.0, 100, -80}, silu_of),
      special("mish", {kInf, kNaN, 0.0, 100, -80, 25}, mish_of),
      named("elu_special", special_elu({-kInf, kInf, kNaN, 0.0, 1000, -1000})),

      special("exp", {-kInf, kInf, kNaN, 0.0, -1000, 1000, 88, -87}, [](double v) { return std::exp(v); }),
      special("log", {0.0, kInf, kNaN, -1, 1}, [](double v) { return std::log(v); }),
      special("log1p", {-1, kInf, kNaN, -2, 0.0, 1e-6}, [](double v) { return std::log1p(v); }),
      special("expm1", {-kInf, kInf, kNaN, 0.0, 1e-6, -1e-6, 1000}, [](double v) { return std::expm1(v); }),
      special("tanh", {-kInf, kInf, kNaN, 0.0, 1e-6, 50, -50}, [](double v) { return std::tanh(v); }),
      special("sigmoid", {-kInf, kInf, kNaN, 0.0, 100, -80}, sigmoid_of),
      special("erf", {-kInf, kInf, kNaN, 0.0, 1e-6, 6, -6}, [](double v) { return std::erf(v); }),
      special("sin", {kInf, kNaN, 0.0, 1e-6, 1000}, [](double v) { return std::sin(v); }),
      special("cos", {kInf, kNaN, 0.0, 1000}, [](double v) { return std::cos(v); }),
      special("softplus", {-kInf, kInf, kNaN, 0.0, 1000, -80}, softplus_of),
      special("sqrt", {0.0, kInf, kNaN, -1}, [](double v) { return std::sqrt(v); }),
      special("rsqrt", {0.0, kInf, kNaN, -1}, [](double v) { return 1 / std::sqrt(v); }),
      special("reciprocal", {0.0, -0.0, kInf, kNaN}, [](double v) { return 1 / v; }),
      special("relu", {-kInf, kInf, kNaN, 0.0},
              [](double v) { return std::isnan(v) ? v : std::max(v, 0.0); }),
      special("sign", {-kInf, kInf, kNaN, 0.0}, sign_of),
      special("round", {0.5, 1.5, 2.5, -0.5, -1.5, kInf, kNaN}, [](double v) { return std::nearbyint(v); }),

      binary("add", add, x, row, [](double a, double b) { return a + b; }),
      binary("sub", subtract, x, row, [](double a, double b) { return a - b; }),
      binary("mul", multiply, x, row, [](double a, double b) { return a * b; }),
      binary("div", divide, x, off_zero({6}), quotient),
      binary("maximum", maximum, distinct({4, 6}), within({6}, 0.05, 0.2), maximum_of),
      binary("minimum", minimum, distinct({4, 6}), within({6}, 0.05, 0.2), minimum_of),
      rounded("pow", pow, within({4, 6}, 0.5, 2), within({4, 1}, 0.5, 3),
              [](double a, double b) { return std::pow(a, b); }),
      rounded("mod", floormod, stepped, within({6}, 0.99, 1.01), floored_mod),
      named("mod_by_negative", rounded("mod", floormod, stepped, within({6}, -1.01, -0.99), floored_mod)),
      rounded("atan2", atan2, off_zero({4, 6}), off_zero({6}),
              [](double a, double b) { return std::atan2(a, b); }),
      {.name = "atan2_special",
       .op = "atan2",
       .inputs = {given({13}, {0.0, -0.0, 0.0, -0.0, 1, -1, kInf, kInf, -kInf, 3, kNaN, 1, 1e-30}),
                  given({13}, {0.0, 0.0, -0.0, -0.0, 0.0, -0.0, kInf, -kInf, 2, -kInf, 1, kNaN, -1e30})},
       .reference = each([](double a, double b) { return std::atan2(a, b); }),
       .derivatives = kUnchecked},
      {.name = "sigmoid_cross_entropy",
       .op = "sigmoid_cross_entropy",
       .inputs = {normal({4, 6}), within({4, 6}, 0, 1)},
       .reference = each([](double v, double z) { return softplus_of(v) - v * z; }),
       .tolerance = Tolerance::summed,
       .function = [](auto in) { return sigmoid_cross_entropy_with_logits(in[1], in[0]); },
       .edge_shapes = {{{}, {}}, {{0}, {0}}, {{1, 1}, {1, 1}}},
       .large = {{301, 400}, {301, 400}}},
      {.name = "sigmoid_cross_entropy_special",
       .op = "sigmoid_cross_entropy",
       .inputs = {given({6}, {-80, 80, 1000, -1000, 80, 0.0}), given({6}, {0.0, 1, 0.5, 1, 0.0, 0.25})},
       .reference = each(
           [](double v, double z) { return std::max(v, 0.0) - v * z + std::log1p(std::exp(-std::abs(v))); }),
       .derivatives = kUnchecked},
      without_gradient(rounded("floordiv", floordiv, stepped, within({6}, 0.99, 1.01), floored_quotient)),
      of_integers("floordiv", integers({5, 7}, -9, 9), integers({7}, -3, 3), floored_quotient),
      {.name = "squared_difference",
       .inputs = {x, row},
       .reference = each([](double a, double b) { return (a - b) * (a - b); }),
       .dtypes = {DType::float32, DType::float64, DType::int32, DType::int64},
       .tolerance = Tolerance::summed,
       .function = squared_difference},
      {.name = "divide_no_nan",
       .inputs = {x, given({6}, {1, 0.0, -2, 0.5, 4, -1})},
       .reference = each([](double a, double b) { return b == 0 ? 0 : a / b; }),
       .function = divide_no_nan,
       // Finite differences meet a pole beside the divisor 0.
       .derivatives = kUnchecked},
      {.name = "divide_no_nan_gradient",
       .inputs = {x, off_zero({6})},
       .reference = each([](double a, double b) { return a / b; }),
       .dtypes = {DType::float32, DType::float64},
       .function = divide_no_nan},
      of_integers("div", integers({5, 7}, -9, 9), integers({7}, -3, 3), quotient),
      of_integers("mod", integers({5, 7}, -9, 9), integers({7}, -3, 3), floored_mod),
      of_integers("pow", integers({5, 7}, -3, 3), integers({5, 7}, -2, 4), integer_power),
      comparison("less", less, [](double a, double b) { return a < b; }),
      comparison("less_equal", less_equal, [](double a, double b) { return a <= b; }),
      comparison("greater", greater, [](double a, double b) { return a > b; }),
      comparison("greater_equal", greater_equal, [](double a, double b) { return a >= b; }),
      comparison("equal", equal, [](double a, double b) { return a == b; }),
      comparison("not_equal", not_equal, [](double a, double b) { return a != b; }),
      logical("logical_and", {flags, integers({4, 1}, 0, 1)}, logical_and,
              [](double a, double b) { return a != 0 && b != 0; }),
      logical("logical_or", {flags, integers({4, 1}, 0, 1)}, logical_or,
              [](double a, double b) { return a != 0 || b != 0; }),
      logical("logical_xor", {flags, integers({4, 1}, 0, 1)}, logical_xor,
              [](double a, double b) { return (a != 0) != (b != 0); }),
      logical("logical_not", {flags}, logical_not, [](double a) { return a == 0; }),
      select_case("select", {4, 6}, {4, 6}, {6}),
      select_case("select_rows", {4, 1}, {}, {1, 6}),

      {.name = "clip_by_value",
       .inputs = {distinct({4, 6})},
       .reference = each([](double v) { return std::clamp(v, -1.125, 0.875); }),
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return clip_by_value(in[0], -1.125, 0.875); }},
      {.name = "number_beside_tensor",
       .inputs = {x},
       .reference = each([](double v) { return 2 * (3 - v); }),
       .dtypes = {DType::float32, DType::float64, DType::int32, DType::int64},
       .tolerance = Tolerance::summed,
       .function = [](auto in) { return 2 * (3 - in[0]); }},
  };
  for (const DType to : kAll) all.push_back(cast_case(to));
  return all;
}

BadCalls bad_calls() {
  const Tensor x = sample({2, 3}), row = sample({4}), whole = sample({2, 3}, DType::int32),
               flag = sample({2}, DType::boolean);
  const Tensor none;
  using enum ErrorCode;
  return {
      {"add_shapes", shape_mismatch, {"add: ", "(2, 3)", "(4,)"}, [=] { add(x, row); }},
      {"add_dtypes",
       dtype_mismatch,
       {"add: ", "float32(2, 3)", "int32(2, 3)", "cast()"},
       [=] { add(x, whole); }},
      {"add_booleans", dtype_mismatch, {"add: ", "bool(2,)"}, [=] { add(flag, flag); }},
      {"add_none", invalid_argument, {"add: ", "none"}, [=] { add(none, x); }},
      {"add_two_numbers", invalid_argument, {"add: ", "two numbers"}, [=] { add(1, 2); }},
      {"operator_plus", shape_mismatch, {"add: ", "(2, 3)", "(4,)"}, [=] { x + row; }},
      {"operator_less",
       dtype_mismatch,
       {"less: ", "float32(2, 3)", "int32(2, 3)"},
       [=] { (void)(x < whole); }},
      {"operator_negative", dtype_mismatch, {"neg: ", "bool(2,)"}, [=] { -flag; }},
      {"number_without_exact_value", dtype_mismatch, {"mul: ", "0.5", "int32"}, [=] { whole * 0.5; }},
      {"number_out_of_range",
       dtype_mismatch,
       {"add: ", "256", "uint8"},
       [=] { sample({2}, DType::uint8) + 256; }},
      {"divide_shapes", shape_mismatch, {"div: ", "(4,)", "(2, 3)"}, [=] { divide(row, x); }},
      {"maximum_dtypes", dtype_mismatch, {"maximum: ", "int32(2, 3)"}, [=] { maximum(whole, x); }},
      {"exp_of_integers", dtype_mismatch, {"exp: ", "int32(2, 3)", "cast()"}, [=] { exp(whole); }},
      {"exp_of_none", invalid_argument, {"exp: ", "none"}, [=] { exp(none); }},
      {"relu_of_booleans", dtype_mismatch, {"relu: ", "bool(2,)"}, [=] { relu(flag); }},
      {"gelu_of_integers", dtype_mismatch, {"gelu: ", "int32(2, 3)"}, [=] { gelu(whole); }},
      {"atan2_of_integers", dtype_mismatch, {"atan2: ", "int32(2, 3)"}, [=] { atan2(whole, whole); }},
      {"is_nan_of_integers", dtype_mismatch, {"is_nan: ", "int32(2, 3)"}, [=] { is_nan(whole); }},
      {"erfc_of_integers", dtype_mismatch, {"erfc: ", "int32(2, 3)"}, [=] { erfc(whole); }},
      {"divide_no_nan_shapes", shape_mismatch, {"div: ", "(2, 3)", "(4,)"}, [=] { divide_no_nan(x, row); }},
      {"squared_difference_shapes",
       shape_mismatch,
       {"sub: ", "(2, 3)", "(4,)"},
       [=] { squared_difference(x, row); }},
      {"full_without_exact_value",
       dtype_mismatch,
       {"full: ", "0.5", "int32"},
       [=] { full({2}, 0.5, DType::int32); }},
      {"elu_of_integers", dtype_mismatch, {"elu: ", "int32(2, 3)"}, [=] { elu(whole); }},
      {"celu_alpha", invalid_argument, {"celu: ", "0"}, [=] { celu(x, 0); }},
      {"squareplus_b", invalid_argument, {"squareplus: ", "-1"}, [=] { squareplus(x, -1); }},
      {"leaky_relu_slope", dtype_mismatch, {"leaky_relu: ", "0.2", "int32"}, [=] { leaky_relu(whole); }},
      {"relu_threshold", dtype_mismatch, {"0.5", "int32"}, [=] { relu(whole, {.threshold = 0.5}); }},
      {"relu_of_none", invalid_argument, {"relu: ", "none"}, [=] { relu(none, {.threshold = 0.5}); }},
      {"sigmoid_cross_entropy_shapes",
       shape_mismatch,
       {"sigmoid_cross_entropy_with_logits: ", "(2, 3)", "(4,)"},
       [=] { sigmoid_cross_entropy_with_logits(x, row); }},
      {"glu_halves", shape_mismatch, {"glu: ", "(2, 3)"}, [=] { glu(x); }},
      {"glu_axis", invalid_argument, {"glu: ", "axis 2"}, [=] { glu(x, 2); }},
      {"hard_shrink_of_none", invalid_argument, {"hard_shrink: ", "none"}, [=] { hard_shrink(none); }},
      {"logical_xor_of_numbers",
       dtype_mismatch,
       {"logical_xor: ", "float32(2, 3)"},
       [=] { logical_xor(x, x); }},
      {"equal_shapes", shape_mismatch, {"equal: ", "(2, 3)", "(4,)"}, [=] { equal(x, row); }},
      {"logical_and_of_numbers",
       dtype_mismatch,
       {"logical_and: ", "float32(2, 3)"},
       [=] { logical_and(x, x); }},
      {"logical_not_of_numbers", dtype_mismatch, {"logical_not: ", "float32(2, 3)"}, [=] { logical_not(x); }},
      {"where_condition", dtype_mismatch, {"condition", "float32(2, 3)"}, [=] { where(x, x, x); }},
      {"where_dtypes",
       dtype_mismatch,
       {"float32(2, 3)", "int32(2, 3)"},
       [=] { where(equal(x, x), x, whole); }},
      {"where_shapes", shape_mismatch, {"(2, 3)", "(4,)"}, [=] { where(equal(x, x), x, row); }},
      {"where_two_numbers", invalid_argument, {"where: ", "two numbers"}, [=] { where(flag, 1.0, 0.0); }},
      {"clip_by_value_dtypes",
       dtype_mismatch,
       {"float32(2, 3)", "int32(2, 3)"},
       [=] { clip_by_value(x, whole, 1.0); }},
      {"cast_of_none", invalid_argument, {"cast: ", "none"}, [=] { cast(none, DType::float64); }},
      {"zeros_like_none", invalid_argument, {"zeros_like: ", "none"}, [=] { zeros_like(none); }},
      {"zeros_of_negative_shape",
       invalid_argument,
       {"(2, -1)"},
       [=] {
         zeros({2, -1});
       }},
  };
}

}  // namespace

const Family kElementwiseFamily{cases, bad_calls};

}  // namespace lockstep::testing
