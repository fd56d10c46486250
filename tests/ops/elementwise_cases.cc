#include <cmath>
#include <limits>
#include <numbers>

#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
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

// --- references ----------------------------------------------------------------------------------------------------

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

// Casting saturates from floats, wraps around from integers.
double cast_of(double x, DType from, DType to) {
  if (to == DType::boolean) return x != 0;
  if (!is_integer(to) || !is_floating(from)) return x;
  if (std::isnan(x)) return 0;
  const double low = to == DType::uint8 ? 0 : to == DType::int32 ? -0x1p31 : -0x1p63;
  const double high = to == DType::uint8 ? 255 : to == DType::int32 ? 0x1p31 - 1 : 0x1p63;
  return std::clamp(std::trunc(x), low, high);
}

// --- rows ----------------------------------------------------------------------------------------------------------

template <class F>
OpCase rounded(const std::string& name, Tensor (*function)(const TensorArg&), const Input& input, F f) {
  return {.name = name,
          .op = name,
          .inputs = {input},
          .reference = each(f),
          .function = function,
          .edge_shapes = kUnaryEdges,
          .large = {{301, 400}}};
}

template <class F>
OpCase exact(const std::string& name, Tensor (*function)(const TensorArg&), const Input& input,
             const DTypes& dtypes, F f) {
  OpCase c = rounded(name, function, input, f);
  c.dtypes = dtypes;
  c.tolerance = Tolerance::exact;
  return c;
}

// The op on numbers about which floating point has its own opinion.
template <class F>
OpCase special(const std::string& op, const std::vector<double>& numbers, F f) {
  return {.name = op + "_special",
          .op = op,
          .inputs = {given({static_cast<int64_t>(numbers.size())}, numbers)},
          .reference = each(f),
          .derivatives = kUnchecked};
}

using BinaryFunction = Tensor (*)(const OperandArg&, const OperandArg&);

template <class F>
OpCase binary(const std::string& name, BinaryFunction function, const Input& a, const Input& b, F f) {
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
OpCase rounded(const std::string& name, BinaryFunction function, const Input& a, const Input& b, F f) {
  OpCase c = binary(name, function, a, b, f);
  c.dtypes = kFloats;
  c.tolerance = Tolerance::rounded;
  return c;
}

template <class F>
OpCase of_integers(const std::string& op, const Input& a, const Input& b, F f) {
  return {.name = op + "_of_integers",
          .op = op,
          .inputs = {a, b},
          .reference = each(f),
          .dtypes = {DType::int32, DType::int64, DType::uint8},
          .tolerance = Tolerance::exact,
          .derivatives = kUnchecked};
}

template <class F>
OpCase comparison(const std::string& name, BinaryFunction function, F f) {
  OpCase c = binary(name, function, integers({4, 6}, -2, 2), integers({6}, -2, 2), f);
  c.dtypes = kAll;
  c.results = {always<DType::boolean>};
  c.derivatives = 0;
  return c;
}

template <class F>
OpCase logical(const std::string& name, std::vector<Input> inputs, PublicFunction function, F f) {
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

OpCase gelu_case(const std::string& name, bool approximate, double (*f)(double)) {
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

OpCase select_case(const std::string& name, const Shape& condition, const Shape& a, const Shape& b) {
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

// --- tables --------------------------------------------------------------------------------------------------------

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
      {"operator_less", dtype_mismatch, {"less: ", "float32(2, 3)", "int32(2, 3)"}, [=] { x < whole; }},
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
