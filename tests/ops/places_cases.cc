// Looking up and replacing elements by places in several dimensions, and numbers in a row.
#include <cmath>

#include "lockstep/ops/array.h"
#include "ops/array/lookup.h"
#include "ops/array/places.h"
#include "ops/array/range.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

int64_t whole(double x) { return static_cast<int64_t>(x); }

OpCase ravel_case(const CaseName& name, const Shape& places, const Shape& shape) {
  // Component d of a place is drawn below shape[d].
  Input drawn = indices(places, 1000);
  drawn.dtype = same;
  drawn.draw = [shape, draw = drawn.draw](const Shape& actual, uint64_t seed) {
    auto numbers = draw(actual, seed);
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = std::fmod(numbers[i], static_cast<double>(shape[static_cast<int>(i) % shape.rank()]));
    return numbers;
  };
  return {.name = name,
          .op = "ravel_multi_index",
          .inputs = {drawn},
          .attrs = ShapeAttrs{shape},
          .reference =
              [=](const Arrays& in) {
                Array out(in[0].shape.drop_last(1));
                for (size_t i = 0; i < in[0].values.size(); ++i) {
                  double& number = out.values[i / static_cast<size_t>(shape.rank())];
                  number = number * static_cast<double>(shape[static_cast<int>(i) % shape.rank()]) +
                           in[0].values[i];
                }
                return out;
              },
          .dtypes = {DType::int32, DType::int64},
          .tolerance = Tolerance::exact,
          .function = [=](auto in) { return ravel_multi_index(in[0], shape); },
          .results = {always<DType::int64>},
          .derivatives = 0};
}

OpCase update_case(const CaseName& name, const Shape& x, const Shape& values, const Input& rows) {
  return {.name = name,
          .op = "scatter_update",
          .inputs = {normal(x), normal(values), rows},
          .reference =
              [=](const Arrays& in) {
                Array out = in[0];
                const int index_rank = in[2].shape.rank();
                each_index(in[1].shape, [&](const Dims& i) {
                  Dims row, place;
                  for (int d = 0; d < index_rank; ++d) row.push_back(i[d]);
                  place.push_back(whole(in[2].at(row)));
                  for (int d = index_rank; d < i.rank(); ++d) place.push_back(i[d]);
                  out.at(place) = in[1].at(i);
                });
                return out;
              },
          .dtypes = kAll,
          .tolerance = Tolerance::exact,
          .same_bits_on_threads = true};
}

// table[b..., o..., indices[b..., k...], i...]
OpCase batched_gather(const CaseName& name, const Shape& table, const Input& rows, int axis, int batch_dims) {
  const auto reference = [=](const Arrays& in) {
    const int extra = in[1].shape.rank() - batch_dims;
    Shape shape = in[0].shape.first(axis);
    for (int d = batch_dims; d < in[1].shape.rank(); ++d) shape.push_back(in[1].shape[d]);
    for (int d = axis + 1; d < in[0].shape.rank(); ++d) shape.push_back(in[0].shape[d]);
    Array out(shape);
    each_index(shape, [&](const Dims& i) {
      Dims row, place;
      for (int d = 0; d < batch_dims; ++d) row.push_back(i[d]);
      for (int d = 0; d < extra; ++d) row.push_back(i[axis + d]);
      for (int d = 0; d < axis; ++d) place.push_back(i[d]);
      place.push_back(whole(in[1].at(row)));
      for (int d = axis + extra; d < i.rank(); ++d) place.push_back(i[d]);
      out.at(i) = in[0].at(place);
    });
    return out;
  };
  return {.name = name,
          .op = "gather",
          .inputs = {normal(table), rows},
          .attrs = GatherAttrs{axis, batch_dims},
          .reference = reference,
          .dtypes = kAll,
          .tolerance = Tolerance::exact,
          .function = [=](auto in) { return gather(in[0], in[1], axis, batch_dims); },
          .same_bits_on_threads = true};
}

OpCase range_case(const CaseName& name, const RangeAttrs& attrs, PublicFunction function) {
  return {.name = name,
          .op = "range",
          .attrs = attrs,
          .reference =
              [=](const Arrays&) {
                Array out({attrs.count});
                for (size_t i = 0; i < out.values.size(); ++i)
                  out.values[i] = attrs.start + static_cast<double>(i) * attrs.delta;
                return out;
              },
          .dtypes = {attrs.dtype},
          .function = std::move(function),
          .results = {always_dtype(attrs.dtype)},
          .derivatives = 0,
          .same_bits_on_threads = true};
}

// A public function that moves elements by indices.
OpCase composed(const CaseName& name, const std::vector<Input>& inputs, PublicFunction function,
                Reference reference) {
  return {.name = name,
          .inputs = inputs,
          .reference = std::move(reference),
          .dtypes = kNumbers,
          .tolerance = Tolerance::summed,
          .function = std::move(function)};
}

OpCases cases() {
  const Input places = given({3, 2}, {0.0, 1, 2, 3, 0.0, 1}).of(always<DType::int64>);
  const auto scattered = [](const Arrays& in, Array out, bool adds) {
    each_index({3, 2}, [&](const Dims& i) {
      double& element = out.at({whole(in[1].at({i[0], 0})), whole(in[1].at({i[0], 1})), i[1]});
      element = in[2].at(i) + (adds ? element : 0);
    });
    return out;
  };
  OpCases all = {
      with_large(
          with_edges(ravel_case("ravel_multi_index", {5, 3}, {4, 2, 7}), {{{0, 3}}, {{3}}, {{2, 2, 3}}}),
          {{20000, 3}}),
      ravel_case("ravel_one_dimension", {2, 3, 1}, {9}),
      with_large(with_edges(update_case("scatter_update", {5, 3}, {4, 3}, indices({4}, 5)),
                            {{{5, 3}, {0, 3}, {0}}, {{5, 0}, {4, 0}, {4}}, {{5}, {4}, {4}}}),
                 {{900, 200}, {700, 200}, {700}}),
      update_case("scatter_update_twice", {3, 2}, {2, 3, 2}, indices({2, 3}, 3, DType::int32)),
      update_case("scatter_update_one", {3, 2}, {2}, indices({}, 3)),
      with_large(
          with_edges(batched_gather("gather_batched", {3, 5, 2}, indices({3, 4}, 5), 1, 1),
                     {{{0, 5, 2}, {0, 4}}, {{3, 5, 0}, {3, 4}}, {{3, 5, 2}, {3, 0}}, {{2, 5}, {2, 1}}}),
          {{30, 60, 20}, {30, 90}}),
      batched_gather("gather_batched_axis", {2, 3, 5, 2}, indices({2, 2, 2}, 5, DType::int32), 2, 1),
      batched_gather("gather_batched_twice", {2, 3, 5}, indices({2, 3, 4}, 5), 2, 2),
      batched_gather("gather_batched_one", {4, 5}, indices({4}, 5), 1, 1),
      with_derivatives(
          0, range_case("range", {.start = 0, .delta = 1, .last = 6, .count = 7, .dtype = DType::int32},
                        [](auto) { return range(7); })),
      range_case("range_down", {.start = 5, .delta = -2, .last = -3, .count = 5, .dtype = DType::int64},
                 [](auto) { return range(5, -4, -2, DType::int64); }),
      range_case("range_of_fractions", {.start = 1, .delta = 0.25, .last = 2.75, .count = 8},
                 [](auto) { return range(1, 3, 0.25, DType::float32); }),
      range_case("range_of_nothing", {.start = 3, .delta = 1, .last = 2, .count = 0, .dtype = DType::uint8},
                 [](auto) { return range(3, 1, 1, DType::uint8); }),
      range_case("linspace", {.start = -1, .delta = 2.0 / 6, .last = 1, .count = 7, .dtype = DType::float64},
                 [](auto) { return linspace(-1, 1, 7, DType::float64); }),
      range_case("linspace_half",
                 {.start = -1, .delta = 2.0 / 6, .last = 1, .count = 7, .dtype = DType::bfloat16},
                 [](auto) { return linspace(-1, 1, 7, DType::bfloat16); }),
      range_case("linspace_of_one", {.start = 3, .delta = 0, .last = 3, .count = 1},
                 [](auto) { return linspace(3, 5, 1); }),
      threads_only(
          range_case("range_large", {.start = 1, .delta = 0.5, .last = 50000.5, .count = 100000}, {})),
      composed(
          "gather_nd_elements", {normal({3, 4}), places}, [](auto in) { return gather_nd(in[0], in[1]); },
          [](const Arrays& in) {
            Array out({3});
            for (int64_t i = 0; i < 3; ++i)
              out.at({i}) = in[0].at({whole(in[1].at({i, 0})), whole(in[1].at({i, 1}))});
            return out;
          }),
      composed(
          "gather_nd_rows", {normal({3, 4, 2}), places}, [](auto in) { return gather_nd(in[0], in[1]); },
          [](const Arrays& in) {
            Array out({3, 2});
            each_index(out.shape, [&](const Dims& i) {
              out.at(i) = in[0].at({whole(in[1].at({i[0], 0})), whole(in[1].at({i[0], 1})), i[1]});
            });
            return out;
          }),
      composed(
          "scatter_nd", {normal({1}), places, normal({3, 2})},
          [](auto in) {
            return scatter_nd(in[1], in[2], {3, 4, 2});
          },
          [=](const Arrays& in) {
            return scattered(in, Array({3, 4, 2}), true);
          }),
      composed(
          "tensor_scatter_nd_add", {normal({3, 4, 2}), places, normal({3, 2})},
          [](auto in) { return tensor_scatter_nd_add(in[0], in[1], in[2]); },
          [=](const Arrays& in) { return scattered(in, in[0], true); }),
      composed(
          "tensor_scatter_nd_update", {normal({3, 4, 2}), places, normal({3, 2})},
          [](auto in) { return tensor_scatter_nd_update(in[0], in[1], in[2]); },
          [=](const Arrays& in) { return scattered(in, in[0], false); }),
      composed(
          "take_along_last_axis", {normal({3, 5}), indices({3, 2}, 5)},
          [](auto in) { return take_along_axis(in[0], in[1], -1); },
          [](const Arrays& in) {
            Array out({3, 2});
            each_index(out.shape, [&](const Dims& i) { out.at(i) = in[0].at({i[0], whole(in[1].at(i))}); });
            return out;
          }),
      composed(
          "take_along_first_axis", {normal({5, 3, 2}), indices({4, 1, 2}, 5, DType::int32)},
          [](auto in) { return take_along_axis(in[0], in[1], 0); },
          [](const Arrays& in) {
            Array out({4, 3, 2});
            each_index(out.shape, [&](const Dims& i) {
              out.at(i) = in[0].at({whole(in[1].at({i[0], 0, i[2]})), i[1], i[2]});
            });
            return out;
          }),
      composed(
          "bincount_weighted", {normal({2, 4}), indices({2, 4}, 5, DType::int32)},
          [](auto in) { return bincount(in[1], 6, in[0]); },
          [](const Arrays& in) {
            Array out({6});
            each_index({2, 4}, [&](const Dims& i) { out.at({whole(in[1].at(i))}) += in[0].at(i); });
            return out;
          }),
      {.name = "bincount",
       .inputs = {integers({20}, 0, 6)},
       .reference =
           [](const Arrays& in) {
             Array out({7});
             for (const double x : in[0].values) ++out.at({whole(x)});
             return out;
           },
       .dtypes = {DType::int32, DType::int64, DType::uint8},
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return bincount(in[0], 7); },
       .results = {always<DType::int64>},
       .derivatives = 0},
      {.name = "sequence_mask",
       .inputs = {integers({2, 3}, 0, 5)},
       .reference =
           [](const Arrays& in) {
             Array out({2, 3, 4});
             each_index(out.shape, [&](const Dims& i) {
               out.at(i) = static_cast<double>(i[2]) < in[0].at({i[0], i[1]});
             });
             return out;
           },
       .dtypes = {DType::int32, DType::int64, DType::uint8},
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return sequence_mask(in[0], 4); },
       .results = {always<DType::boolean>},
       .derivatives = 0},
  };
  for (OpCase& c : all)
    if (c.name == "scatter_nd") c.stops = {0};
  return all;
}

BadCalls bad_calls() {
  const Tensor x = sample({2, 3}), rows = sample({2}, DType::int64), none;
  const Tensor outside = Tensor::from({0, 1, 1, 3}, {2, 2}), inside = Tensor::from({0, 1, 1, 2}, {2, 2});
  using enum ErrorCode;
  return {
      {"gather_batch_dims",
       invalid_argument,
       {"gather: ", "2 batch dimensions"},
       [=] { gather(x, rows, 1, 2); }},
      {"gather_batch_shapes",
       shape_mismatch,
       {"gather: ", "(2, 3)", "(3,)"},
       [=] { gather(x, sample({3}, DType::int64), 1, 1); }},
      {"gather_batch_outside",
       invalid_argument,
       {"gather: ", "(1,)", "3"},
       [=] {
         gather(x, Tensor::from({0, 3}, {2}), 1, 1);
       }},
      {"take_along_axis_ranks",
       shape_mismatch,
       {"take_along_axis: ", "(2, 3)", "(2,)"},
       [=] { take_along_axis(x, rows, 1); }},
      {"take_along_axis_shapes",
       shape_mismatch,
       {"take_along_axis: ", "(2,)", "(3,)"},
       [=] {
         take_along_axis(x, sample({3, 1}, DType::int64), 1);
       }},
      {"gather_nd_outside", invalid_argument, {"(1,)", "(1, 3)", "(2, 3)"}, [=] { gather_nd(x, outside); }},
      {"gather_nd_too_deep",
       shape_mismatch,
       {"gather_nd: ", "(4, 3)", "(2, 3)"},
       [=] {
         gather_nd(x, sample({4, 3}, DType::int64));
       }},
      {"gather_nd_dtype",
       dtype_mismatch,
       {"float32(2, 2)"},
       [=] {
         gather_nd(x, sample({2, 2}));
       }},
      {"scatter_nd_updates",
       shape_mismatch,
       {"scatter_nd: ", "(2,)", "(2, 3)"},
       [=] {
         scatter_nd(inside, x, {2, 3});
       }},
      {"tensor_scatter_nd_update_updates",
       shape_mismatch,
       {"tensor_scatter_nd_update: ", "(2,)", "(2, 3)"},
       [=] { tensor_scatter_nd_update(x, inside, x); }},
      {"tensor_scatter_nd_update_dtypes",
       dtype_mismatch,
       {"scatter_update: ", "float64"},
       [=] { tensor_scatter_nd_update(x, inside, sample({2}, DType::float64)); }},
      {"range_delta", invalid_argument, {"range: ", "0"}, [] { range(0, 5, 0); }},
      {"range_fraction", dtype_mismatch, {"range: ", "0.5", "int32"}, [] { range(0, 5, 0.5); }},
      {"linspace_count", invalid_argument, {"linspace: ", "0"}, [] { linspace(0, 1, 0); }},
      {"linspace_of_integers",
       dtype_mismatch,
       {"linspace: ", "int32"},
       [] { linspace(0, 1, 3, DType::int32); }},
      {"bincount_of_floats", dtype_mismatch, {"bincount: ", "float32(2, 3)"}, [=] { bincount(x, 3); }},
      {"bincount_outside", invalid_argument, {"scatter_add: ", "1"}, [=] { bincount(rows, 1); }},
      {"bincount_weights", shape_mismatch, {"bincount: ", "(2,)", "(2, 3)"}, [=] { bincount(rows, 3, x); }},
      {"sequence_mask_of_floats",
       dtype_mismatch,
       {"sequence_mask: ", "float32(2, 3)"},
       [=] { sequence_mask(x, 3); }},
      {"sequence_mask_length", invalid_argument, {"sequence_mask: ", "-1"}, [=] { sequence_mask(rows, -1); }},
  };
}

}  // namespace

const Family kPlacesFamily{cases, bad_calls};

}  // namespace lockstep::testing
