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

const std::vector<std::vector<Shape>> kUnaryEdges = {{{}}, {{1}}, {{0}}, {{3, 0, 2}}, {{1, 1}}, {{2, 1, 2, 1, 1, 2, 1, 2}}};
const std::vector<std::vector<Shape>> kBinaryEdges = {{{}, {}},         {{1}, {1}},    {{0}, {0}},    {{0}, {1}},
                                                      {{3, 0}, {}},     {{1}, {2, 0}}, {{3, 1}, {4}}, {{}, {2, 2}},
                                                      {{2, 1, 3}, {2, 1}}};

// --- rows ----------------------------------------------------------------------------------------------------------

template <class F>
OpCase unary(const std::string& name, Tensor (*function)(const TensorArg&), const Input& input, F f,
             const DTypes& dtypes = kFloats, Tolerance tolerance = Tolerance::rounded) {
  return {.name = name, .op = name, .inputs = {input}, .reference = each(f), .dtypes = dtypes, .tolerance = tolerance,
          .function = function, .edge_shapes = kUnaryEdges, .large = {{401, 500}}};
}

template <class F>
OpCase binary(const std::string& name, Tensor (*function)(const OperandArg&, const OperandArg&), const Input& a, const Input& b,
              F f, const DTypes& dtypes = kNumbers, Tolerance tolerance = Tolerance::exact) {
  return {.name = name, .op = name, .inputs = {a, b}, .reference = each(f), .dtypes = dtypes, .tolerance = tolerance,
          .function = function, .edge_shapes = kBinaryEdges, .large = {{401, 500}, {500}}};
}

template <class F>
OpCase comparison(const std::string& name, Tensor (*function)(const OperandArg&, const OperandArg&), F f) {
  OpCase c = binary(name, function, integers({4, 6}, -2, 2), integers({6}, -2, 2), f, kAll);
  c.results = {always<DType::boolean>};
  c.derivatives = 0;
  return c;
}

template <class F>
OpCase logical(const std::string& name, Tensor (*function)(const TensorArg&, const TensorArg&), F f) {
  return {.name = name, .op = name, .inputs = {integers({4, 6}, 0, 1), integers({4, 1}, 0, 1)}, .reference = each(f),
          .dtypes = {DType::boolean}, .tolerance = Tolerance::exact, .function = function, .derivatives = 0,
          .edge_shapes = kBinaryEdges, .large = {{401, 700}, {700}}};
}

// The op on numbers where floating point has its own opinion.
template <class F>
OpCase special(OpCase like, const std::string& name, std::vector<Input> inputs, F f, DTypes dtypes = kFloats) {
  like.name = name;
  like.inputs = std::move(inputs);
  like.reference = each(f);
  like.dtypes = std::move(dtypes);
  like.derivatives = kUnchecked;
  like.edge_shapes = {};
  like.large = {};
  return like;
}

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

// --- tables --------------------------------------------------------------------------------------------------------

OpCases unary_cases() {
  const Input x = normal({4, 6});
  return {
      unary("identity", identity, x, [](double v) { return v; }, kAll, Tolerance::exact),
      unary("neg", negative, x, [](double v) { return -v; }, kNumbers, Tolerance::exact),
      unary("abs", abs, off_zero({4, 6}), [](double v) { return std::abs(v); }, kNumbers, Tolerance::exact),
      unary("sign", sign, off_zero({4, 6}), sign_of, kNumbers, Tolerance::exact),
      unary("floor", floor, off_integers({4, 6}), [](double v) { return std::floor(v); }, kFloats, Tolerance::exact),
      unary("ceil", ceil, off_integers({4, 6}), [](double v) { return std::ceil(v); }, kFloats, Tolerance::exact),
      unary("round", round, off_integers({4, 6}), [](double v) { return std::nearbyint(v); }, kFloats, Tolerance::exact),
      unary("square", square, x, [](double v) { return v * v; }, kNumbers, Tolerance::exact),
      unary("sqrt", sqrt, within({4, 6}, 0.5, 4), [](double v) { return std::sqrt(v); }, kFloats, Tolerance::exact),
      unary("rsqrt", rsqrt, within({4, 6}, 0.5, 4), [](double v) { return 1 / std::sqrt(v); }),
      unary("reciprocal", reciprocal, off_zero({4, 6}), [](double v) { return 1 / v; }, kFloats, Tolerance::exact),
      unary("exp", exp, x, [](double v) { return std::exp(v); }),
      unary("expm1", expm1, within({4, 6}, -1, 1), [](double v) { return std::expm1(v); }),
      unary("log", log, within({4, 6}, 0.3, 5), [](double v) { return std::log(v); }),
      unary("log1p", log1p, within({4, 6}, -0.7, 2), [](double v) { return std::log1p(v); }),
      unary("tanh", tanh, x, [](double v) { return std::tanh(v); }),
      unary("sigmoid", sigmoid, x, [](double v) { return 1 / (1 + std::exp(-v)); }),
      unary("erf", erf, x, [](double v) { return std::erf(v); }),
      unary("sin", sin, within({4, 6}, -8, 8), [](double v) { return std::sin(v); }),
      unary("cos", cos, within({4, 6}, -8, 8), [](double v) { return std::cos(v); }),
      unary("softplus", softplus, x, [](double v) { return std::log1p(std::exp(v)); }),
      unary("relu", relu, off_zero({4, 6}), [](double v) { return std::max(v, 0.0); }, kNumbers, Tolerance::exact),
  };
}

OpCases special_cases() {
  const auto one = [](const OpCase& like, std::vector<double> numbers, auto f) {
    const auto count = static_cast<int64_t>(numbers.size());
    return special(like, like.op + "_special", {given({count}, std::move(numbers))}, f);
  };
  OpCases all;
  const auto add = [&](const std::string& op, std::vector<double> numbers, auto f) {
    for (const OpCase& like : unary_cases())
      if (like.op == op) all.push_back(one(like, std::move(numbers), f));
  };
  add("exp", {-kInf, kInf, kNaN, 0.0, -1000, 1000, 88, -87}, [](double v) { return std::exp(v); });
  add("log", {0.0, kInf, kNaN, -1, 1}, [](double v) { return std::log(v); });
  add("log1p", {-1, kInf, kNaN, -2, 0.0, 1e-6}, [](double v) { return std::log1p(v); });
  add("expm1", {-kInf, kInf, kNaN, 0.0, 1e-6, -1e-6, 1000}, [](double v) { return std::expm1(v); });
  add("tanh", {-kInf, kInf, kNaN, 0.0, 1e-6, 50, -50}, [](double v) { return std::tanh(v); });
  add("sigmoid", {-kInf, kInf, kNaN, 0.0, 100, -80}, [](double v) { return 1 / (1 + std::exp(-v)); });
  add("erf", {-kInf, kInf, kNaN, 0.0, 1e-6, 6, -6}, [](double v) { return std::erf(v); });
  add("sin", {kInf, kNaN, 0.0, 1e-6, 1000}, [](double v) { return std::sin(v); });
  add("cos", {kInf, kNaN, 0.0, 1000}, [](double v) { return std::cos(v); });
  add("softplus", {-kInf, kInf, kNaN, 0.0, 1000, -80}, [](double v) { return v > 700 ? v : std::log1p(std::exp(v)); });
  add("sqrt", {0.0, kInf, kNaN, -1}, [](double v) { return std::sqrt(v); });
  add("rsqrt", {0.0, kInf, kNaN, -1}, [](double v) { return 1 / std::sqrt(v); });
  add("relu", {-kInf, kInf, kNaN, 0.0}, [](double v) { return std::isnan(v) ? v : std::max(v, 0.0); });
  add("sign", {-kInf, kInf, kNaN, 0.0}, sign_of);
  add("round", {0.5, 1.5, 2.5, -0.5, -1.5, kInf, kNaN}, [](double v) { return std::nearbyint(v); });
  return all;
}

OpCases binary_cases() {
  const Input a = normal({4, 6}), b = normal({6});
  OpCases all = {
      binary("add", add, a, b, [](double x, double y) { return x + y; }),
      binary("sub", subtract, a, b, [](double x, double y) { return x - y; }),
      binary("mul", multiply, a, b, [](double x, double y) { return x * y; }),
      binary("div", divide, a, off_zero({6}), quotient),
      binary("maximum", maximum, distinct({4, 6}), within({6}, 0.05, 0.2), maximum_of),
      binary("minimum", minimum, distinct({4, 6}), within({6}, 0.05, 0.2), minimum_of),
      binary("pow", pow, within({4, 6}, 0.5, 2), within({4, 1}, 0.5, 3), [](double x, double y) { return std::pow(x, y); },
             kFloats, Tolerance::rounded),
      binary("mod", floormod, off_integers({4, 6}), given({6}, {1, 2, -1, 4, -2, 1}), floored_mod, kFloats, Tolerance::rounded),
      comparison("less", less, [](double x, double y) { return x < y; }),
      comparison("less_equal", less_equal, [](double x, double y) { return x <= y; }),
      comparison("greater", greater, [](double x, double y) { return x > y; }),
      comparison("greater_equal", greater_equal, [](double x, double y) { return x >= y; }),
      comparison("equal", equal, [](double x, double y) { return x == y; }),
      comparison("not_equal", not_equal, [](double x, double y) { return x != y; }),
      logical("logical_and", logical_and, [](double x, double y) { return x != 0 && y != 0; }),
      logical("logical_or", logical_or, [](double x, double y) { return x != 0 || y != 0; }),
  };
  for (OpCase& c : all)
    if (c.op == "mod") c.edge_shapes = {{{}, {6}}, {{0}, {}}}, c.inputs[1] = off_integers({6}), c.large = {{401, 500}, {500}};
  return all;
}

OpCases attribute_cases() {
  const auto selected = [](double condition, double x, double y) { return condition != 0 ? x : y; };
  OpCases all = {
      unary("stop_gradient", stop_gradient, normal({4, 6}), [](double v) { return v; }, kAll, Tolerance::exact),
      {.name = "gelu", .op = "gelu", .inputs = {normal({4, 6})}, .attrs = GeluAttrs{}, .reference = each(gelu_of),
       .tolerance = Tolerance::summed, .function = [](auto in) { return gelu(in[0]); }, .edge_shapes = kUnaryEdges,
       .large = {{401, 500}}},
      {.name = "gelu_approximate", .op = "gelu", .inputs = {normal({4, 6})}, .attrs = GeluAttrs{true},
       .reference = each(gelu_tanh_of), .tolerance = Tolerance::summed,
       .function = [](auto in) { return gelu(in[0], {.approximate = true}); }, .edge_shapes = kUnaryEdges},
      {.name = "logical_not", .op = "logical_not", .inputs = {integers({4, 6}, 0, 1)},
       .reference = each([](double x) { return x == 0; }), .dtypes = {DType::boolean}, .tolerance = Tolerance::exact,
       .function = logical_not, .derivatives = 0, .edge_shapes = kUnaryEdges, .large = {{401, 900}}},
      {.name = "select", .op = "select", .inputs = {booleans({4, 6}), normal({4, 6}), normal({6})},
       .reference = each(selected), .dtypes = kAll, .tolerance = Tolerance::exact,
       .function = [](auto in) { return where(in[0], in[1], in[2]); },
       .edge_shapes = {{{}, {}, {}}, {{1}, {1}, {1}}, {{0}, {}, {1}}, {{2, 0}, {0}, {1, 1}}},
       .large = {{401, 500}, {401, 1}, {500}}},
      {.name = "select_by_row", .op = "select", .inputs = {booleans({4, 1}), normal({}), normal({1, 6})},
       .reference = each(selected), .dtypes = kAll, .tolerance = Tolerance::exact},
      {.name = "clip_by_value", .inputs = {distinct({4, 6})},
       .reference = each([](double x) { return std::clamp(x, -1.125, 0.875); }), .tolerance = Tolerance::exact,
       .function = [](auto in) { return clip_by_value(in[0], -1.125, 0.875); }},
      {.name = "number_beside_tensor", .inputs = {normal({4, 6})}, .reference = each([](double x) { return 2 * (3 - x); }),
       .dtypes = {DType::float32, DType::float64, DType::int32, DType::int64}, .tolerance = Tolerance::summed,
       .function = [](auto in) { return 2 * (3 - in[0]); }},
  };
  all[0].derivatives = 0;
  all.push_back({.name = "mod_integers", .op = "mod", .inputs = {integers({5, 7}, -9, 9), integers({7}, -3, 3)},
                 .reference = each(floored_mod), .dtypes = {DType::int32, DType::int64, DType::uint8},
                 .tolerance = Tolerance::exact, .derivatives = kUnchecked});
  all.push_back({.name = "pow_integers", .op = "pow", .inputs = {integers({5, 7}, -3, 3), integers({5, 7}, -2, 4)},
                 .reference = each(integer_power), .dtypes = {DType::int32, DType::int64, DType::uint8},
                 .tolerance = Tolerance::exact, .derivatives = kUnchecked});
  for (const DType to : kAll)
    all.push_back({.name = detail::concat("cast_to_", to), .op = "cast", .inputs = {within({4, 6}, -3, 3)},
                   .attrs = CastAttrs{to},
                   .reference = [to](const Arrays& in) {
                     const DType from = in[0].dtype;
                     return each([=](double x) { return cast_of(x, from, to); })(in);
                   },
                   .dtypes = kAll, .tolerance = Tolerance::exact,
                   .function = [to](auto in) { return in[0].dtype() == to ? in[0] : cast(in[0], to); },
                   .results = {always_dtype(to)},
                   // The weights of a sum of 16-bit results are rounded too coarsely for finite differences.
                   .derivatives = !is_floating(to) ? 0 : size_of(to) == 2 ? kUnchecked : 2,
                   .edge_shapes = kUnaryEdges, .large = {{401, 700}}});
  return all;
}

OpCases cases() {
  OpCases all;
  for (const auto& table : {unary_cases(), special_cases(), binary_cases(), attribute_cases()})
    all.insert(all.end(), table.begin(), table.end());
  return all;
}

BadCalls bad_calls() {
  const Tensor x = sample({2, 3}), row = sample({4}), whole = sample({2, 3}, DType::int32), flag = sample({2}, DType::boolean);
  const Tensor none;
  using enum ErrorCode;
  return {
      {"add_shapes", shape_mismatch, {"add: ", "(2, 3)", "(4,)"}, [=] { add(x, row); }},
      {"add_dtypes", dtype_mismatch, {"add: ", "float32(2, 3)", "int32(2, 3)", "cast()"}, [=] { add(x, whole); }},
      {"add_booleans", dtype_mismatch, {"add: ", "bool(2,)"}, [=] { add(flag, flag); }},
      {"add_none", invalid_argument, {"add: ", "none"}, [=] { add(none, x); }},
      {"add_two_numbers", invalid_argument, {"add: ", "two numbers"}, [=] { add(1, 2); }},
      {"operator_plus", shape_mismatch, {"add: ", "(2, 3)", "(4,)"}, [=] { x + row; }},
      {"operator_less", dtype_mismatch, {"less: ", "float32(2, 3)", "int32(2, 3)"}, [=] { x < whole; }},
      {"operator_negative", dtype_mismatch, {"neg: ", "bool(2,)"}, [=] { -flag; }},
      {"number_without_exact_value", dtype_mismatch, {"mul: ", "0.5", "int32"}, [=] { whole * 0.5; }},
      {"number_out_of_range", dtype_mismatch, {"add: ", "256", "uint8"}, [=] { sample({2}, DType::uint8) + 256; }},
      {"divide_shapes", shape_mismatch, {"div: ", "(4,)", "(2, 3)"}, [=] { divide(row, x); }},
      {"maximum_dtypes", dtype_mismatch, {"maximum: ", "int32(2, 3)"}, [=] { maximum(whole, x); }},
      {"exp_of_integers", dtype_mismatch, {"exp: ", "int32(2, 3)", "cast()"}, [=] { exp(whole); }},
      {"exp_of_none", invalid_argument, {"exp: ", "none"}, [=] { exp(none); }},
      {"relu_of_booleans", dtype_mismatch, {"relu: ", "bool(2,)"}, [=] { relu(flag); }},
      {"gelu_of_integers", dtype_mismatch, {"gelu: ", "int32(2, 3)"}, [=] { gelu(whole); }},
      {"equal_shapes", shape_mismatch, {"equal: ", "(2, 3)", "(4,)"}, [=] { equal(x, row); }},
      {"logical_and_of_numbers", dtype_mismatch, {"logical_and: ", "float32(2, 3)"}, [=] { logical_and(x, x); }},
      {"logical_not_of_numbers", dtype_mismatch, {"logical_not: ", "float32(2, 3)"}, [=] { logical_not(x); }},
      {"where_condition", dtype_mismatch, {"condition", "float32(2, 3)"}, [=] { where(x, x, x); }},
      {"where_dtypes", dtype_mismatch, {"float32(2, 3)", "int32(2, 3)"}, [=] { where(equal(x, x), x, whole); }},
      {"where_shapes", shape_mismatch, {"(2, 3)", "(4,)"}, [=] { where(equal(x, x), x, row); }},
      {"where_two_numbers", invalid_argument, {"where: ", "two numbers"}, [=] { where(flag, 1.0, 0.0); }},
      {"clip_by_value_dtypes", dtype_mismatch, {"float32(2, 3)", "int32(2, 3)"}, [=] { clip_by_value(x, whole, 1.0); }},
      {"cast_of_none", invalid_argument, {"cast: ", "none"}, [=] { cast(none, DType::float64); }},
      {"zeros_like_none", invalid_argument, {"zeros_like: ", "none"}, [=] { zeros_like(none); }},
      {"zeros_of_negative_shape", invalid_argument, {"(2, -1)"}, [=] { zeros({2, -1}); }},
  };
}

}  // namespace

const Family kElementwiseFamily{cases, bad_calls};

}  // namespace lockstep::testing
