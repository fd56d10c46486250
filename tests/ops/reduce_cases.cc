#include "lockstep/ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "ops/op_case.h"
#include "ops/reduce/cumulative.h"
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

OpCase reduce_case(const Kind& kind, const CaseName& suffix, const Shape& shape, const Dims& axes,
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

OpCase argmax_case(const CaseName& name, const Input& input, int axis) {
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

// The fold of what lies before each element along `axis` (behind it: reverse), with the element or without.
Reference accumulated(Fold fold, double start, const CumulativeAttrs& attrs) {
  return [=](const Arrays& in) {
    const auto axis = static_cast<int>(attrs.axis);
    Array out(in[0].shape);
    each_index(in[0].shape, [&](const Dims& index) {
      double result = start;
      for (Dims i = index; i[axis] >= 0 && i[axis] < in[0].shape[axis]; i[axis] += attrs.reverse ? 1 : -1)
        if (i[axis] != index[axis] || !attrs.exclusive) result = fold(result, in[0].at(i));
      out.at(index) = result;
    });
    return out;
  };
}

OpCase cumulative_case(const Kind& kind, const std::string& op, const CaseName& suffix, const Shape& shape,
                       const CumulativeAttrs& attrs) {
  const CumulativeOptions options{static_cast<int>(attrs.axis), attrs.exclusive, attrs.reverse};
  const bool sums = op == "cumsum";
  return {.name = op + suffix,
          .op = op,
          .inputs = {kind.input(shape)},
          .attrs = attrs,
          .reference = accumulated(kind.fold, kind.start, attrs),
          .dtypes = kNumbers,
          .tolerance = kind.tolerance,
          .function = [=](auto in) { return sums ? cumsum(in[0], options) : cumprod(in[0], options); },
          .same_bits_on_threads = true};
}

// A public function of the sums over the last axis: f(sum of g over the row).
Array of_rows(const Array& x, const std::function<double(const std::vector<double>&)>& f) {
  Array out(x.shape.drop_last(1));
  const auto n = static_cast<size_t>(x.shape[-1]);
  for (size_t row = 0; row < out.values.size(); ++row)
    out.values[row] = f({x.values.begin() + static_cast<ptrdiff_t>(row * n),
                         x.values.begin() + static_cast<ptrdiff_t>((row + 1) * n)});
  return out;
}

double sum_of(const std::vector<double>& row, double (*f)(double)) {
  double sum = 0;
  for (const double x : row) sum += f(x);
  return sum;
}
double identity_of(double x) { return x; }
double square_of(double x) { return x * x; }
double abs_of(double x) { return std::abs(x); }
double variance_of(const std::vector<double>& row) {
  const auto n = static_cast<double>(row.size());
  const double mean = sum_of(row, identity_of) / n;
  double sum = 0;
  for (const double x : row) sum += (x - mean) * (x - mean);
  return sum / n;
}

// 16-bit floats are rounded between the ops of a composition, differently where they are fused.
OpCase composed(const CaseName& name, const Input& input, PublicFunction function,
                const std::function<double(const std::vector<double>&)>& row) {
  return {.name = name,
          .inputs = {input},
          .reference = [=](const Arrays& in) { return of_rows(in[0], row); },
          .dtypes = {DType::float32, DType::float64},
          .tolerance = Tolerance::summed,
          .function = std::move(function)};
}

OpCases composed_cases() {
  const auto last = [](auto f) { return [f](auto in) { return f(in[0], ReduceOptions{.axis = {-1}}); }; };
  const auto norm_by = [](double ord) {
    return [=](auto in) { return norm(in[0], {.ord = ord, .axis = {1}}); };
  };
  OpCase any = composed("reduce_any", integers({4, 3}, -1, 1),
                        last([](auto x, const ReduceOptions& o) { return reduce_any(x, o); }),
                        [](const std::vector<double>& row) {
                          return std::ranges::any_of(row, [](double x) { return x != 0; });
                        });
  OpCase all = composed("reduce_all", integers({9, 2}, -1, 1),
                        last([](auto x, const ReduceOptions& o) { return reduce_all(x, o); }),
                        [](const std::vector<double>& row) {
                          return std::ranges::all_of(row, [](double x) { return x != 0; });
                        });
  for (OpCase* c : {&any, &all}) {
    c->dtypes = {DType::boolean};
    c->tolerance = Tolerance::exact;
    c->derivatives = 0;
    c->edge_shapes = {{{3, 0}}, {{0, 3}}, {{1}}, {{0}}};
  }
  OpCase nonzero =
      composed("count_nonzero", integers({4, 5}, -1, 1),
               last([](auto x, const ReduceOptions& o) { return count_nonzero(x, o); }),
               [](const std::vector<double>& row) {
                 return static_cast<double>(std::ranges::count_if(row, [](double x) { return x != 0; }));
               });
  nonzero.dtypes = kAll;
  nonzero.tolerance = Tolerance::exact;
  nonzero.results = {always<DType::int64>};
  nonzero.derivatives = 0;
  nonzero.edge_shapes = {{{3, 0}}, {{0, 3}}, {{1}}};
  OpCase smallest = composed(
      "argmin", distinct({4, 6}), [](auto in) { return argmin(in[0]); },
      [](const std::vector<double>& row) {
        return static_cast<double>(std::ranges::min_element(row) - row.begin());
      });
  smallest.dtypes = kNumbers;
  smallest.tolerance = Tolerance::exact;
  smallest.results = {always<DType::int64>};
  smallest.derivatives = 0;
  smallest.edge_shapes = {{{1}}, {{0, 3}}};
  return {
      any,
      all,
      nonzero,
      smallest,
      named("argmin_of_extremes",
            [&] {
              OpCase c = smallest;
              c.inputs = {given({2, 3}, {0.0, -0x1p31, 0x1p31 - 1, -0x1p31, 5, -0x1p31})};
              c.dtypes = {DType::int32, DType::int64, DType::float64};
              c.edge_shapes = {};
              return c;
            }()),
      with_edges(composed("reduce_logsumexp", normal({4, 6}),
                          last([](auto x, const ReduceOptions& o) { return reduce_logsumexp(x, o); }),
                          [](const std::vector<double>& row) {
                            return std::log(sum_of(row, [](double x) { return std::exp(x); }));
                          }),
                 {{{1}}, {{0, 3}}}),
      with_derivatives(
          kUnchecked,
          composed("reduce_logsumexp_special",
                   given({4, 3}, {1000, 1000, 999, -1000, -1001, -1002, -kInf, -kInf, -kInf, kInf, 1, 2}),
                   last([](auto x, const ReduceOptions& o) { return reduce_logsumexp(x, o); }),
                   [](const std::vector<double>& row) {
                     const double m = std::ranges::max(row);
                     if (std::isinf(m)) return m;
                     double sum = 0;
                     for (const double x : row) sum += std::exp(x - m);
                     return m + std::log(sum);
                   })),
      composed("reduce_variance", normal({4, 6}),
               last([](auto x, const ReduceOptions& o) { return reduce_variance(x, o); }), variance_of),
      composed("reduce_std", normal({4, 6}),
               last([](auto x, const ReduceOptions& o) { return reduce_std(x, o); }),
               [](const std::vector<double>& row) { return std::sqrt(variance_of(row)); }),
      composed("norm_euclidean", normal({4, 6}), norm_by(2),
               [](const std::vector<double>& row) { return std::sqrt(sum_of(row, square_of)); }),
      composed("norm_1", off_zero({4, 6}), norm_by(1),
               [](const std::vector<double>& row) { return sum_of(row, abs_of); }),
      // Magnitudes that differ: where two are the largest, the gradient is shared.
      composed("norm_infinity", given({2, 4}, {1, -5, 2, 3, 0.5, 1, -0.75, 4}), norm_by(kInf),
               [](const std::vector<double>& row) {
                 double largest = 0;
                 for (const double x : row) largest = std::max(largest, std::abs(x));
                 return largest;
               }),
      composed("norm_3", off_zero({4, 6}), norm_by(3),
               [](const std::vector<double>& row) {
                 return std::cbrt(sum_of(row, [](double x) { return std::abs(x * x * x); }));
               }),
      {.name = "clip_by_norm_rows",
       .inputs = {normal({4, 6})},
       .reference =
           [](const Arrays& in) {
             Array out = in[0];
             for (size_t row = 0; row < 4; ++row) {
               double sum = 0;
               for (size_t k = 0; k < 6; ++k) sum += out.values[row * 6 + k] * out.values[row * 6 + k];
               for (size_t k = 0; k < 6; ++k) out.values[row * 6 + k] *= 2.5 / std::max(std::sqrt(sum), 2.5);
             }
             return out;
           },
       .dtypes = {DType::float32, DType::float64},
       .tolerance = Tolerance::summed,
       .function = [](auto in) { return clip_by_norm(in[0], 2.5, {1}); }},
      {.name = "clip_by_global_norm",
       .inputs = {normal({4, 6}), normal({3})},
       .reference = [](const Arrays& in) -> Arrays {
         double sum = 0;
         for (const Array& x : in)
           for (const double v : x.values) sum += v * v;
         Arrays out = in;
         for (Array& x : out)
           for (double& v : x.values) v *= 1.5 / std::max(std::sqrt(sum), 1.5);
         Array norm{Shape{}};
         norm.values[0] = std::sqrt(sum);
         out.push_back(norm);
         return out;
       },
       .dtypes = {DType::float32, DType::float64},
       .tolerance = Tolerance::summed,
       .function = [](auto in) -> TensorList {
         const ClippedByGlobalNorm clipped = clip_by_global_norm(in, 1.5);
         return {clipped.tensors[0], clipped.tensors[1], clipped.norm};
       },
       .results = {same, same, same}},
  };
}

OpCases cases() {
  OpCases all;
  for (const auto& [kind, op] : {std::pair(&kKinds[0], "cumsum"), std::pair(&kKinds[1], "cumprod")}) {
    all.insert(
        all.end(),
        {with_edges(cumulative_case(*kind, op, "_vector", {7}, {0}), {{{1}}, {{0}}}),
         with_large(cumulative_case(*kind, op, "_rows", {4, 5}, {.axis = 1}), {{9000, 12}}),
         with_large(with_edges(cumulative_case(*kind, op, "_columns", {5, 4}, {.axis = 0, .reverse = true}),
                               {{{0, 3}}, {{3, 0}}, {{1, 1}}}),
                    {{12, 9000}}),
         cumulative_case(*kind, op, "_middle", {2, 4, 3}, {.axis = 1, .exclusive = true}),
         cumulative_case(*kind, op, "_backwards", {3, 4}, {.axis = 1, .exclusive = true, .reverse = true})});
  }
  // Rows without a 0, with one and with two of them: the derivative there is the product of the others.
  const auto zeros = [](const Shape& shape) {
    return given(shape, {1.5, -1, 0.5, 2, 1, 0, 2, -1.5, 0.5, 0, 1, 0, 0, 1, 1, -0.5});
  };
  for (const Dims& axes : {Dims{1}, Dims{0}, Dims{0, 1}}) {
    OpCase product = reduce_case(
        kKinds[1], "_of_zeros_" + std::to_string(axes[0]) + (axes.rank() > 1 ? "_all" : ""), {4, 4}, axes);
    product.inputs = {zeros({4, 4})};
    all.push_back(std::move(product));
  }
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      OpCase products = cumulative_case(
          kKinds[1], "cumprod",
          std::string("_of_zeros") + (exclusive ? "_exclusive" : "") + (reverse ? "_reverse" : ""), {4, 4},
          {.axis = 1, .exclusive = exclusive, .reverse = reverse});
      products.inputs = {zeros({4, 4})};
      all.push_back(with_derivatives(1, std::move(products)));
    }
  }
  for (OpCase& c : composed_cases()) all.push_back(std::move(c));
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
  const Tensor x = sample({2, 3}), flags = sample({2, 3}, DType::boolean),
               whole = sample({2, 3}, DType::int32), none;
  using enum ErrorCode;
  return {
      {"cumsum_axis", invalid_argument, {"cumsum: ", "axis 2"}, [=] { cumsum(x, {.axis = 2}); }},
      {"cumsum_of_scalar", invalid_argument, {"cumsum: ", "scalar"}, [=] { cumsum(sample({})); }},
      {"cumprod_of_booleans", dtype_mismatch, {"cumprod: ", "bool(2, 3)"}, [=] { cumprod(flags); }},
      {"reduce_any_of_numbers", dtype_mismatch, {"reduce_any: ", "float32(2, 3)"}, [=] { reduce_any(x); }},
      {"reduce_all_axis",
       invalid_argument,
       {"reduce_all: ", "axis 4"},
       [=] { reduce_all(flags, {.axis = {4}}); }},
      {"reduce_logsumexp_of_integers",
       dtype_mismatch,
       {"reduce_logsumexp: ", "int32(2, 3)"},
       [=] { reduce_logsumexp(whole); }},
      {"reduce_variance_axis",
       invalid_argument,
       {"reduce_variance: ", "axis 2"},
       [=] { reduce_variance(x, {.axis = {2}}); }},
      {"reduce_std_of_integers", dtype_mismatch, {"reduce_std: ", "int32(2, 3)"}, [=] { reduce_std(whole); }},
      {"count_nonzero_axis",
       invalid_argument,
       {"count_nonzero: ", "axis 2"},
       [=] { count_nonzero(x, {.axis = {2}}); }},
      {"argmin_axis", invalid_argument, {"argmin: ", "axis 2"}, [=] { argmin(x, 2); }},
      {"argmin_of_booleans", dtype_mismatch, {"argmin: ", "bool(2, 3)"}, [=] { argmin(flags); }},
      {"norm_ord", invalid_argument, {"norm: ", "-1"}, [=] { norm(x, {.ord = -1}); }},
      {"norm_axis", invalid_argument, {"norm: ", "axis 7"}, [=] { norm(x, {.axis = {7}}); }},
      {"norm_of_integers", dtype_mismatch, {"norm: ", "int32(2, 3)"}, [=] { norm(whole); }},
      {"global_norm_of_nothing",
       invalid_argument,
       {"global_norm: ", "none"},
       [=] { global_norm(TensorList{}); }},
      {"global_norm_of_integers",
       dtype_mismatch,
       {"global_norm: ", "int32(2, 3)"},
       [=] {
         global_norm(TensorList{x, whole});
       }},
      {"clip_by_norm_norm", invalid_argument, {"clip_by_norm: ", "0"}, [=] { clip_by_norm(x, 0); }},
      {"clip_by_global_norm_norm",
       invalid_argument,
       {"clip_by_global_norm: ", "-2"},
       [=] { clip_by_global_norm(TensorList{x}, -2); }},
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
