#include "lockstep/ops/sort.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/op_case.h"
#include "ops/sort/sort.h"

namespace lockstep::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool comes_before(double a, double b) { return !std::isnan(a) && (std::isnan(b) || a < b); }

// The first k of every row in order, equals in their own order.
Arrays sorted_rows(const Array& x, int64_t k, bool descending) {
  const int64_t n = x.shape[-1];
  Shape shape = x.shape;
  shape[-1] = k;
  Array values(shape), places(shape);
  for (int64_t row = 0; row < x.shape.drop_last(1).size(); ++row) {
    const double* from = x.values.data() + row * n;
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return descending ? comes_before(from[b], from[a]) : comes_before(from[a], from[b]);
    });
    for (int64_t i = 0; i < k; ++i) {
      const int64_t place = order[static_cast<size_t>(i)];
      values.values[static_cast<size_t>(row * k + i)] = from[place];
      places.values[static_cast<size_t>(row * k + i)] = static_cast<double>(place);
    }
  }
  return {values, places};
}

// k of -1: all.
OpCase sort_case(const CaseName& name, const Input& input, int64_t k, bool descending) {
  const int64_t n = input.shape[-1];
  const int64_t count = k < 0 ? n : k;
  return {.name = name,
          .op = "sort",
          .inputs = {input},
          .attrs = SortAttrs{count, descending},
          .reference = [=](const Arrays& in) { return sorted_rows(in[0], count, descending); },
          .dtypes = kNumbers,
          .tolerance = Tolerance::exact,
          .function = [=](auto in) -> TensorList {
            if (descending) {
              const TopK top = top_k(in[0], count);
              return {top.values, top.indices};
            }
            return {sort(in[0]), argsort(in[0])};
          },
          .results = {same, always<DType::int32>},
          .same_bits_on_threads = true};
}

OpCase special_sort(const CaseName& name, bool descending, int64_t k = -1) {
  OpCase c = sort_case(name, given({9}, {1, kNaN, -kInf, 0.0, -0.0, kInf, kNaN, -1, 0.0}), k, descending);
  c.dtypes = kFloats;
  c.derivatives = kUnchecked;
  return c;
}

// The first row rises, the second one falls.
Input in_order(const Shape& shape) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < shape[1]; ++i) numbers.push_back(static_cast<double>(i));
  for (int64_t i = shape[1]; i > 0; --i) numbers.push_back(static_cast<double>(i));
  return given(shape, numbers);
}

OpCase search_case(const CaseName& name, const Shape& sorted, const Shape& values, bool right) {
  const auto reference = [=](const Arrays& in) {
    Array out(in[1].shape);
    const int64_t n = in[0].shape[-1], m = in[1].shape[-1];
    for (size_t i = 0; i < out.values.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / m;
      for (int64_t k = 0; k < n; ++k) {
        const double element = in[0].values[static_cast<size_t>(row * n + k)], value = in[1].values[i];
        out.values[i] += right ? element <= value : element < value;
      }
    }
    return out;
  };
  Input ascending = integers(sorted, -4, 4);
  ascending.draw = [draw = ascending.draw](const Shape& shape, uint64_t seed) {
    auto numbers = draw(shape, seed);
    for (double& x : numbers) x = std::abs(x);
    const int64_t n = shape[-1];
    for (size_t row = 0; n > 0 && row < numbers.size(); row += static_cast<size_t>(n))
      std::sort(numbers.begin() + static_cast<ptrdiff_t>(row),
                numbers.begin() + static_cast<ptrdiff_t>(row) + n);
    return numbers;
  };
  return {
      .name = name,
      .op = "searchsorted",
      .inputs = {ascending, integers(values, -1, 5)},
      .attrs = SearchsortedAttrs{right},
      .reference = reference,
      .dtypes = kNumbers,
      .tolerance = Tolerance::exact,
      .function =
          [=](auto in) { return searchsorted(in[0], in[1], right ? SearchSide::right : SearchSide::left); },
      .results = {always<DType::int32>},
      .derivatives = 0,
      .same_bits_on_threads = true};
}

OpCases cases() {
  return {
      with_edges(sort_case("sort", distinct({3, 7}), -1, false), {{{0, 7}}, {{1, 7}}, {{2, 2, 7}}}),
      sort_case("sort_of_nothing", distinct({3, 0}), -1, false),
      sort_case("sort_of_one", distinct({1}), -1, true),
      sort_case("sort_descending", distinct({3, 7}), -1, true),
      with_edges(sort_case("top_k", distinct({3, 7}), 3, true), {{{0, 7}}, {{7}}}),
      sort_case("top_none", distinct({3, 7}), 0, true),
      with_derivatives(kUnchecked, sort_case("sort_of_equals", integers({4, 40}, -3, 3), -1, false)),
      with_derivatives(kUnchecked, sort_case("top_k_of_equals", integers({4, 40}, -3, 3), 11, true)),
      special_sort("sort_special", false),
      special_sort("sort_special_descending", true),
      special_sort("top_k_special", true, 2),
      // Elements that come before all those read until then, and such that never do.
      with_derivatives(kUnchecked, sort_case("top_k_of_rising", in_order({2, 150}), 3, true)),
      with_derivatives(kUnchecked, sort_case("top_k_of_many_equals", integers({2, 900}, -3, 3), 40, true)),
      threads_only(sort_case("sort_large", normal({7, 3001}), -1, false)),
      threads_only(sort_case("sort_large_descending", normal({7, 3001}), -1, true)),
      threads_only(sort_case("top_k_large", normal({50, 701}), 9, true)),
      with_large(with_edges(search_case("searchsorted", {3, 6}, {3, 9}, false),
                            {{{0, 6}, {0, 2}}, {{2, 6}, {2, 0}}, {{2, 0}, {2, 3}}, {{1}, {1}}}),
                 {{4, 30}, {4, 20000}}),
      search_case("searchsorted_right", {3, 6}, {3, 9}, true),
      {.name = "sort_columns",
       .inputs = {distinct({5, 3})},
       .reference =
           [](const Arrays& in) {
             Array turned({3, 5}), out({5, 3});
             each_index(in[0].shape, [&](const Dims& i) { turned.at({i[1], i[0]}) = in[0].at(i); });
             const Array sorted = sorted_rows(turned, 5, true)[0];
             each_index(out.shape, [&](const Dims& i) { out.at(i) = sorted.at({i[1], i[0]}); });
             return out;
           },
       .dtypes = kNumbers,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return sort(in[0], {.axis = 0, .direction = SortDirection::descending}); }},
      {.name = "in_top_k",
       .inputs = {indices({4}, 5), given({4, 5}, {1, 2,    3, 4,    5, 5, 5, 5, 5, 5,  //
                                                  1, kNaN, 2, kInf, 3, 9, 8, 7, 6, 5})},
       .reference =
           [](const Arrays& in) {
             Array out({4});
             for (int64_t row = 0; row < 4; ++row) {
               const double chosen = in[1].at({row, static_cast<int64_t>(in[0].at({row}))});
               int larger = 0;
               for (int64_t k = 0; k < 5; ++k) larger += in[1].at({row, k}) > chosen;
               out.at({row}) = larger < 2 && std::isfinite(chosen);
             }
             return out;
           },
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return in_top_k(in[0], in[1], 2); },
       .results = {always<DType::boolean>},
       .derivatives = 0},
  };
}

BadCalls bad_calls() {
  const Tensor x = sample({2, 3}), flags = sample({2, 3}, DType::boolean), none;
  using enum ErrorCode;
  return {
      {"sort_axis", invalid_argument, {"sort: ", "axis 2"}, [=] { sort(x, {.axis = 2}); }},
      {"sort_of_booleans", dtype_mismatch, {"sort: ", "bool(2, 3)"}, [=] { sort(flags); }},
      {"argsort_of_scalar", invalid_argument, {"argsort: ", "scalar"}, [=] { argsort(sample({})); }},
      {"argsort_of_none", invalid_argument, {"argsort: ", "none"}, [=] { argsort(none); }},
      {"top_k_too_many", invalid_argument, {"top_k: ", "4", "(2, 3)"}, [=] { top_k(x, 4); }},
      {"top_k_negative", invalid_argument, {"top_k: ", "-1"}, [=] { top_k(x, -1); }},
      {"in_top_k_shapes",
       shape_mismatch,
       {"in_top_k: ", "(3,)", "(2, 3)"},
       [=] { in_top_k(sample({3}, DType::int64), x, 1); }},
      {"in_top_k_target",
       invalid_argument,
       {"the label at position (1,) is 5"},
       [=] {
         in_top_k(Tensor::from({0, 5}, {2}), x, 1);
       }},
      {"searchsorted_shapes",
       shape_mismatch,
       {"searchsorted: ", "(2, 3)", "(3, 3)"},
       [=] {
         searchsorted(x, sample({3, 3}));
       }},
  };
}

}  // namespace

const Family kSortFamily{cases, bad_calls};

}  // namespace lockstep::testing
