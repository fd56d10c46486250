#include "lockstep/ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/op_case.h"
#include "ops/reduce/reduce.h"

namespace lockstep::testing {
namespace {

using Fold = double (*)(double, double);

// The elements that lie on the same place of the kept dimensions, folded in row-major order.
Reference folded(Fold fold, double start, const Dims& axes, bool keepdims) {
  return [=](const Arrays& in) {
    const Shape& from = in[0].shape;
    const auto reduced = [&](int d) { return std::ranges::find(axes, d) != axes.end(); };
    Shape kept = from, shape;
    for (int d = 0; d < from.rank(); ++d) {
      if (reduced(d)) kept[d] = 1;
      if (!reduced(d) || keepdims) shape.push_back(kept[d]);
    }
    Array out(kept, start);
    each_index(from, [&](const Dims& index) {
      Dims place = index;
      for (int d = 0; d < from.rank(); ++d)
        if (reduced(d)) place[d] = 0;
      out.at(place) = fold(out.at(place), in[0].at(index));
    });
    out.shape = shape;
    return out;
  };
}

struct Kind {
  const char* op;
  Tensor (*function)(const TensorArg&, const ReduceOptions&);
  Fold fold;
  double start;
  Tolerance tolerance;
  Input (*input)(const Shape&);
  std::vector<std::vector<Shape>> vectors, matrices;  // edge shapes
};

Input near_one(const Shape& shape) { return within(shape, 0.7, 1.4); }

const double kInf = std::numeric_limits<double>::infinity();
const Kind kKinds[] = {
    {"reduce_sum",
     reduce_sum,
     [](double a, double b) { return a + b; },
     0,
     Tolerance::summed,
     normal,
     {{{1}}, {{0}}, {{7}}},
     {{{1, 1}}, {{0, 3}}, {{3, 0}}, {{0, 0}}}},
    {"reduce_prod",
     reduce_prod,
     [](double a, double b) { return a * b; },
     1,
     Tolerance::rounded,
     near_one,
     {{{1}}, {{0}}, {{7}}},
     {{{1, 1}}, {{0, 3}}, {{3, 0}}, {{0, 0}}}},
    {"reduce_max",
     reduce_max,
     [](double a, double b) { return std::max(a, b); },
     -kInf,
     Tolerance::exact,
     distinct,
     {{{1}}, {{7}}},
     {{{1, 1}}, {{0, 3}}}},
    {"reduce_min",
     reduce_min,
     [](double a, double b) { return std::min(a, b); },
     kInf,
     Tolerance::exact,
     distinct,
     {{{1}}, {{7}}},
     {{{1, 1}}, {{0, 3}}}},
};

OpCase reduce_case(const Kind& kind, const std::string& suffix, const Shape& shape, const Dims& axes,
                   bool keepdims = false) {
  const std::vector<int64_t> options(axes.begin(), axes.end());
  return {.name = std::string(kind.op) + suffix,
          .op = kind.op,
          .inputs = {kind.input(shape)},
          .attrs = ReduceAttrs{axes, keepdims},
          .reference = folded(kind.fold, kind.start, axes, keepdims),
          .dtypes = kNumbers,
          .tolerance = kind.tolerance,
          .slack = kind.tolerance == Tolerance::rounded ? 4.0 : 1.0,
          .function = [=](auto in) { return kind.function(in[0], {.axis = options, .keepdims = keepdims}); },
          .same_bits_on_threads = true};
}

// The first of the largest.
Reference position_of_largest(int axis) {
  return [=](const Arrays& in) {
    const Shape& from = in[0].shape;
    Shape shape = from;
    shape.erase(axis);
    Array out(shape);
    each_index(shape, [&](const Dims& index) {
      Dims place = index;
      place.insert(axis, 0);
      Dims best = place;
      for (; place[axis] < from[axis]; ++place[axis])
        if (in[0].at(place) > in[0].at(best)) best = place;
      out.at(index) = static_cast<double>(best[axis]);
    });
    return out;
  };
}

OpCase argmax_case(const std::string& name, const Input& input, int axis) {
  return {.name = name,
          .op = "argmax",
          .inputs = {input},
          .attrs = ArgmaxAttrs{axis},
          .reference = position_of_largest(axis),
          .dtypes = kNumbers,
          .tolerance = Tolerance::exact,
          .function = [=](auto in) { return argmax(in[0], axis); },
          .results = {always<DType::int64>},
          .derivatives = 0,
          .same_bits_on_threads = true};
}

OpCases cases() {
  OpCases all;
  for (const Kind& kind : kKinds) {
    OpCase vector = reduce_case(kind, "_vector", {9}, {0});
    vector.edge_shapes = kind.vectors;
    OpCase rows = reduce_case(kind, "_rows", {3, 5}, {1});
    rows.edge_shapes = kind.matrices;
    OpCase columns = reduce_case(kind, "_columns", {5, 3}, {0}, true);
    columns.edge_shapes = {{{1, 1}}, {{1, 0}}};
    OpCase outer = reduce_case(kind, "_outer", {3, 2, 4}, {0, 2});
    if (kind.fold(2, 3) == 5 || kind.fold(2, 3) == 3) {
      // Products of many numbers leave the range of 16-bit floats; the other folds do not.
      vector.large = {{200000}};
      rows.large = {{150, 900}};
      columns.large = {{900, 150}};
      outer.large = {{60, 70, 50}};
    } else {
      rows.large = {{9000, 12}};
      columns.large = {{12, 9000}};
    }
    all.insert(all.end(),
               {vector, rows, columns, outer, reduce_case(kind, "_middle", {2, 3, 4}, {1}, true),
                reduce_case(kind, "_all", {2, 3, 2}, {0, 1, 2}), reduce_case(kind, "_nothing", {}, {})});
  }
  all.push_back(argmax_case("argmax_last", distinct({4, 6}), 1));
  all.back().edge_shapes = {{{1, 1}}, {{0, 3}}};
  all.back().large = {{300, 700}};
  all.push_back(argmax_case("argmax_first", distinct({6, 4}), 0));
  all.back().edge_shapes = {{{1, 0}}};
  all.back().large = {{300, 700}};
  all.push_back(argmax_case("argmax_middle", distinct({2, 5, 3}), 1));
  all.push_back(argmax_case("argmax_of_equals", integers({6, 9}, 0, 2), 1));
  all.push_back(argmax_case("argmax_vector", distinct({40}), 0));
  const auto mean = [](const Dims& axes, double count) {
    return [=](const Arrays& in) {
      Arrays out = folded([](double a, double b) { return a + b; }, 0, axes, false)(in);
      for (double& x : out[0].values) x /= count;
      return out;
    };
  };
  all.push_back({.name = "reduce_mean_rows",
                 .inputs = {normal({3, 5})},
                 .reference = mean({1}, 5),
                 .tolerance = Tolerance::summed,
                 .function = [](auto in) { return reduce_mean(in[0], {.axis = {-1}}); }});
  all.push_back({.name = "reduce_mean_all",
                 .inputs = {normal({3, 5})},
                 .reference = mean({0, 1}, 15),
                 .tolerance = Tolerance::summed,
                 .slack = 2,
                 .function = [](auto in) { return reduce_mean(in[0]); }});
  return all;
}

BadCalls bad_calls() {
  const Tensor x = sample({2, 3}), flags = sample({2, 3}, DType::boolean);
  using enum ErrorCode;
  return {
      {"reduce_sum_axis",
       invalid_argument,
       {"reduce_sum: ", "axis 2", "rank 2"},
       [=] { reduce_sum(x, {.axis = {2}}); }},
      {"reduce_sum_negative_axis",
       invalid_argument,
       {"reduce_sum: ", "axis -3"},
       [=] { reduce_sum(x, {.axis = {-3}}); }},
      {"reduce_sum_axis_of_scalar",
       invalid_argument,
       {"reduce_sum: ", "axis 0", "scalar"},
       [=] { reduce_sum(sample({}), {.axis = {0}}); }},
      {"reduce_sum_axis_twice",
       invalid_argument,
       {"reduce_sum: ", "twice"},
       [=] {
         reduce_sum(x, {.axis = {1, -1}});
       }},
      {"reduce_sum_of_booleans", dtype_mismatch, {"reduce_sum: ", "bool(2, 3)"}, [=] { reduce_sum(flags); }},
      {"reduce_sum_of_none", invalid_argument, {"reduce_sum: ", "none"}, [=] { reduce_sum(Tensor()); }},
      {"reduce_mean_of_integers",
       dtype_mismatch,
       {"reduce_mean: ", "int32(2, 3)"},
       [=] {
         reduce_mean(sample({2, 3}, DType::int32));
       }},
      {"reduce_mean_axis",
       invalid_argument,
       {"reduce_mean: ", "axis 5"},
       [=] { reduce_mean(x, {.axis = {5}}); }},
      {"reduce_max_of_nothing",
       shape_mismatch,
       {"reduce_max: ", "(2, 0)"},
       [=] {
         reduce_max(sample({2, 0}), {.axis = {1}});
       }},
      {"reduce_min_of_nothing", shape_mismatch, {"reduce_min: ", "(0,)"}, [=] { reduce_min(sample({0})); }},
      {"reduce_max_axis",
       invalid_argument,
       {"reduce_max: ", "axis 9"},
       [=] { reduce_max(x, {.axis = {9}}); }},
      {"reduce_prod_of_booleans",
       dtype_mismatch,
       {"reduce_prod: ", "bool(2, 3)"},
       [=] { reduce_prod(flags); }},
      {"argmax_axis", invalid_argument, {"argmax: ", "axis 2"}, [=] { argmax(x, 2); }},
      {"argmax_of_nothing",
       shape_mismatch,
       {"argmax: ", "(2, 0)"},
       [=] {
         argmax(sample({2, 0}));
       }},
      {"argmax_of_booleans", dtype_mismatch, {"argmax: ", "bool(2, 3)"}, [=] { argmax(flags); }},
  };
}

}  // namespace

const Family kReduceFamily{cases, bad_calls};

}  // namespace lockstep::testing
