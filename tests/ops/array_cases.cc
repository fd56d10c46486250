#include "lockstep/ops/array.h"

#include "ops/array/array.h"
#include "ops/array/barrier.h"
#include "ops/array/join.h"
#include "ops/array/lookup.h"
#include "ops/array/strided_slice_grad.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

// Every element of a result of `shape` is the input's element at place(index).
template <class Place>
Reference moved(const Shape& shape, Place place) {
  return [=](const Arrays& in) {
    Array out(shape);
    each_index(shape, [&](const Dims& index) { out.at(index) = in[0].at(place(index)); });
    return out;
  };
}

Reference reshaped(const Shape& shape) {
  return [=](const Arrays& in) {
    Array out = in[0];
    out.shape = shape;
    return out;
  };
}

// What all ops have in common that only move elements.
OpCase moving(OpCase c) {
  c.tolerance = Tolerance::exact;
  if (c.dtypes == kFloats) c.dtypes = kAll;
  c.same_bits_on_threads = true;
  return c;
}

OpCase reshape_case(const CaseName& name, const Shape& from, const Shape& to) {
  return moving({.name = name,
                 .op = "reshape",
                 .inputs = {normal(from)},
                 .attrs = ShapeAttrs{to},
                 .reference = reshaped(to),
                 .function = [=](auto in) { return reshape(in[0], to); }});
}

OpCase transpose_case(const CaseName& name, const Shape& shape, const Dims& permutation) {
  const auto reference = [=](const Arrays& in) {
    Shape to;
    for (const int64_t axis : permutation) to.push_back(in[0].shape[static_cast<int>(axis)]);
    return moved(to, [=](const Dims& index) {
      Dims place = index;
      for (int d = 0; d < index.rank(); ++d) place[static_cast<int>(permutation[d])] = index[d];
      return place;
    })(in);
  };
  return moving({.name = name,
                 .op = "transpose",
                 .inputs = {normal(shape)},
                 .attrs = TransposeAttrs{permutation},
                 .reference = reference,
                 .function = [=](auto in) { return transpose(in[0], permutation); }});
}

OpCase broadcast_case(const CaseName& name, const Shape& from, const Shape& to) {
  return moving({.name = name,
                 .op = "broadcast_to",
                 .inputs = {normal(from)},
                 .attrs = ShapeAttrs{to},
                 .reference = moved(to,
                                    [=](const Dims& index) {
                                      Dims place;
                                      for (int d = 0; d < from.rank(); ++d)
                                        place.push_back(from[d] == 1 ? 0
                                                                     : index[to.rank() - from.rank() + d]);
                                      return place;
                                    }),
                 .function = [=](auto in) { return broadcast_to(in[0], to); }});
}

Dims place_in_slice(const StridedSliceAttrs& slice, const Dims& index) {
  Dims place;
  for (int d = 0; d < index.rank(); ++d) place.push_back(slice.begin[d] + index[d] * slice.stride[d]);
  return place;
}

// Python's x[begin:end:stride], and the elements that it means.
OpCase slice_case(const CaseName& name, const Shape& shape, const Dims& begin, const Dims& end,
                  const Dims& stride, const StridedSliceAttrs& slice) {
  return moving(
      {.name = name,
       .op = "strided_slice",
       .inputs = {normal(shape)},
       .attrs = slice,
       .reference = moved(slice.size, [=](const Dims& index) { return place_in_slice(slice, index); }),
       .function = [=](auto in) { return strided_slice(in[0], begin, end, stride); }});
}

OpCase slice_grad_case(const CaseName& name, const Shape& shape, const StridedSliceAttrs& slice) {
  return moving({.name = name,
                 .op = "strided_slice_grad",
                 .inputs = {normal(slice.size)},
                 .attrs = StridedSliceGradAttrs{shape, slice},
                 .reference = [=](const Arrays& in) {
                   Array out(shape);
                   each_index(slice.size, [&](const Dims& index) {
                     out.at(place_in_slice(slice, index)) = in[0].at(index);
                   });
                   return out;
                 }});
}

OpCase concat_case(const CaseName& name, const std::vector<Input>& parts, int axis) {
  const auto joined = [=](const Arrays& in) {
    Shape shape = in[0].shape;
    shape[axis] = 0;
    for (const Array& part : in) shape[axis] += part.shape[axis];
    Array out(shape);
    int64_t offset = 0;
    for (const Array& part : in) {
      each_index(part.shape, [&](Dims index) {
        const double element = part.at(index);
        index[axis] += offset;
        out.at(index) = element;
      });
      offset += part.shape[axis];
    }
    return out;
  };
  return moving({.name = name,
                 .op = "concat",
                 .inputs = parts,
                 .attrs = ConcatAttrs{axis},
                 .reference = joined,
                 .function = [=](auto in) { return concat(in, axis); }});
}

OpCase pad_case(const CaseName& name, const Shape& shape, const Dims& before, const Dims& after) {
  const auto padded = [=](const Arrays& in) {
    Shape to = in[0].shape;
    for (int d = 0; d < to.rank(); ++d) to[d] += before[d] + after[d];
    Array out(to);
    each_index(in[0].shape, [&](Dims index) {
      const double element = in[0].at(index);
      for (int d = 0; d < to.rank(); ++d) index[d] += before[d];
      out.at(index) = element;
    });
    return out;
  };
  return moving({.name = name,
                 .op = "pad",
                 .inputs = {normal(shape)},
                 .attrs = PadAttrs{before, after},
                 .reference = padded,
                 .function = [=](auto in) { return pad(in[0], before, after); }});
}

// The table's rows along `axis` at the indices' places.
Reference gathered(int axis) {
  return [=](const Arrays& in) {
    const Array &table = in[0], &rows = in[1];
    Shape shape = table.shape.first(axis);
    for (const int64_t d : rows.shape) shape.push_back(d);
    for (int d = axis + 1; d < table.shape.rank(); ++d) shape.push_back(table.shape[d]);
    Array out(shape);
    each_index(shape, [&](const Dims& index) {
      Dims row, place;
      for (int d = 0; d < rows.shape.rank(); ++d) row.push_back(index[axis + d]);
      for (int d = 0; d < axis; ++d) place.push_back(index[d]);
      place.push_back(static_cast<int64_t>(rows.at(row)));
      for (int d = axis + rows.shape.rank(); d < index.rank(); ++d) place.push_back(index[d]);
      out.at(index) = table.at(place);
    });
    return out;
  };
}

OpCase gather_case(const CaseName& name, const Shape& table, const Input& rows, int axis) {
  return moving({.name = name,
                 .op = "gather",
                 .inputs = {normal(table), rows},
                 .attrs = GatherAttrs{axis},
                 .reference = gathered(axis),
                 .function = [=](auto in) { return gather(in[0], in[1], axis); }});
}

OpCase scatter_case(const CaseName& name, const Shape& shape, const Input& rows, int64_t count) {
  const auto reference = [=](const Arrays& in) {
    const int index_rank = in[1].shape.rank();
    Shape to = {count};
    for (int d = index_rank; d < in[0].shape.rank(); ++d) to.push_back(in[0].shape[d]);
    Array out(to);
    each_index(in[0].shape, [&](const Dims& index) {
      Dims row, place;
      for (int d = 0; d < index_rank; ++d) row.push_back(index[d]);
      place.push_back(static_cast<int64_t>(in[1].at(row)));
      for (int d = index_rank; d < index.rank(); ++d) place.push_back(index[d]);
      out.at(place) += in[0].at(index);
    });
    return out;
  };
  return {.name = name,
          .op = "scatter_add",
          .inputs = {normal(shape), rows},
          .attrs = ScatterAddAttrs{count},
          .reference = reference,
          .dtypes = kNumbers,
          .tolerance = Tolerance::summed,
          .function = [=](auto in) { return scatter_add(in[0], in[1], count); },
          .same_bits_on_threads = true};
}

// Indices that do not exist, among them -1, give rows of zeros.
OpCase one_hot_case(DType dtype) {
  const auto reference = [](const Arrays& in) {
    Shape shape = in[0].shape;
    shape.push_back(5);
    Array out(shape);
    each_index(in[0].shape, [&](Dims index) {
      const auto hot = static_cast<int64_t>(in[0].at(index));
      index.push_back(hot);
      if (hot >= 0 && hot < 5) out.at(index) = 1;
    });
    return out;
  };
  OpCase c = moving({.name = detail::concat("one_hot_of_", dtype),
                     .op = "one_hot",
                     .inputs = {integers({3, 4}, -1, 6)},
                     .attrs = OneHotAttrs{5, dtype},
                     .reference = reference,
                     .dtypes = {DType::int32, DType::int64},
                     .function = [=](auto in) { return one_hot(in[0], 5, dtype); },
                     .results = {always_dtype(dtype)},
                     .derivatives = 0,
                     .edge_shapes = {{{}}, {{1}}, {{0}}, {{2, 0, 3}}}});
  if (size_of(dtype) >= 4) c.large = {{40000}};
  return c;
}

OpCases cases() {
  const StridedSliceAttrs inner{{1, 0, 1}, {2, 3, 3}, {1, 1, 1}}, steps{{1, 5}, {2, 2}, {2, -3}},
      back{{3, 4}, {4, 5}, {-1, -1}}, nothing{{0, 2}, {4, 0}, {1, 1}}, far{{1, 5}, {199, 300}, {2, 3}};
  OpCases all = {
      reshape_case("reshape", {3, 4}, {2, 6}),
      reshape_case("reshape_more_dimensions", {6, 2}, {3, 1, 2, 2}),
      reshape_case("reshape_to_scalar", {1, 1}, {}),
      reshape_case("reshape_of_scalar", {}, {1, 1, 1}),
      reshape_case("reshape_empty", {0, 3}, {4, 0, 2}),
      threads_only(reshape_case("reshape_large", {400, 300}, {300, 400})),
      with_large(with_edges(transpose_case("transpose", {3, 5}, {1, 0}), {{{0, 3}}, {{1, 1}}, {{1, 4}}}),
                 {{301, 401}}),
      with_large(
          with_edges(transpose_case("transpose_rotated", {2, 3, 4}, {2, 0, 1}), {{{2, 0, 3}}, {{1, 1, 1}}}),
          {{40, 50, 60}}),
      transpose_case("transpose_inner", {2, 3, 2, 2}, {0, 2, 1, 3}),
      transpose_case("transpose_of_scalar", {}, {}),
      transpose_case("transpose_identity", {2, 3}, {0, 1}),
      broadcast_case("broadcast_to", {3, 1}, {2, 3, 4}),
      broadcast_case("broadcast_of_scalar", {}, {2, 3}),
      broadcast_case("broadcast_to_empty", {1, 3}, {0, 3}),
      broadcast_case("broadcast_to_one", {}, {1, 1}),
      threads_only(broadcast_case("broadcast_large", {300, 1}, {2, 300, 400})),
      slice_case("slice_inner", {4, 3, 5}, {1, 0, 1}, {3, 3, 4}, {1, 1, 1}, inner),
      slice_case("slice_steps", {4, 7}, {1, -2}, {4, 1}, {2, -3}, steps),
      slice_case("slice_reversed", {4, 5}, {-1, -1}, {-5, -6}, {-1, -1}, back),
      slice_case("slice_clamped", {4, 5}, {100, 100}, {-100, -100}, {-1, -1}, back),
      slice_case("slice_of_nothing", {4, 5}, {0, 2}, {4, 2}, {1, 1}, nothing),
      slice_case("slice_of_scalar", {}, {}, {}, {}, {}),
      threads_only(slice_case("slice_large", {400, 905}, {1, 5}, {399, 905}, {2, 3}, far)),
      slice_grad_case("slice_grad_inner", {4, 3, 5}, inner),
      slice_grad_case("slice_grad_steps", {4, 7}, steps),
      slice_grad_case("slice_grad_reversed", {4, 5}, back),
      slice_grad_case("slice_grad_of_nothing", {4, 5}, nothing),
      slice_grad_case("slice_grad_of_scalar", {}, {}),
      threads_only(slice_grad_case("slice_grad_large", {400, 905}, far)),
      with_large(with_edges(concat_case("concat_rows", {normal({2, 3}), normal({1, 3}), normal({3, 3})}, 0),
                            {{{0, 3}, {2, 3}, {0, 3}}, {{0, 0}, {1, 0}, {0, 0}}, {{1, 1}, {1, 1}, {1, 1}}}),
                 {{300, 200}, {1, 200}, {400, 200}}),
      with_large(with_edges(concat_case("concat_columns", {normal({2, 3}), normal({2, 1})}, 1),
                            {{{2, 0}, {2, 1}}, {{0, 2}, {0, 3}}}),
                 {{300, 200}, {300, 333}}),
      concat_case("concat_middle", {normal({2, 1, 3}), normal({2, 2, 3})}, 1),
      with_large(with_edges(pad_case("pad", {2, 3}, {1, 0}, {2, 4}), {{{0, 2}}, {{1, 1}}}), {{400, 300}}),
      pad_case("pad_with_nothing", {2, 3}, {0, 0}, {0, 0}),
      pad_case("pad_of_scalar", {}, {}, {}),
      with_large(with_edges(gather_case("gather_rows", {5, 3}, indices({4}, 5), 0),
                            {{{5, 3}, {0}}, {{5, 0}, {2}}, {{5}, {}}, {{5, 2}, {1}}}),
                 {{700, 90}, {900}}),
      with_large(gather_case("gather_columns", {3, 5}, indices({4}, 5, DType::int32), 1), {{700, 90}, {300}}),
      gather_case("gather_middle", {2, 5, 3}, indices({2, 2}, 5), 1),
      gather_case("gather_one", {5, 3}, indices({}, 5), 0),
      gather_case("gather_elements", {7}, indices({3, 3}, 7, DType::int32), 0),
      with_large(with_edges(scatter_case("scatter_add_rows", {6, 3}, indices({6}, 4), 4),
                            {{{0, 3}, {0}}, {{2, 0}, {2}}, {{1}, {1}}, {{1, 3}, {1}}}),
                 {{3000, 50}, {3000}}),
      with_large(scatter_case("scatter_add_elements", {9}, indices({9}, 4, DType::int32), 4),
                 {{90000}, {90000}}),
      scatter_case("scatter_add_two_dimensions", {2, 3, 2}, indices({2, 3}, 5), 5),
      scatter_case("scatter_add_one", {3}, indices({}, 4), 4),
      {.name = "reshape_inferred",
       .inputs = {normal({4, 6})},
       .reference = reshaped({2, 12}),
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function =
           [](auto in) {
             return reshape(in[0], {2, -1});
           }},
      {.name = "reshape_of_transpose",
       .inputs = {normal({4, 6})},
       .reference = moved({24},
                          [](const Dims& i) {
                            return Dims{i[0] % 4, i[0] / 4};
                          }),
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return reshape(transpose(in[0]), {-1}); }},
      {.name = "slice",
       .inputs = {normal({4, 6})},
       .reference = moved({2, 4},
                          [](const Dims& i) {
                            return Dims{i[0] + 1, i[1] + 2};
                          }),
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function =
           [](auto in) {
             return slice(in[0], {1, 2}, {2, -1});
           }},
      {.name = "expand_dims",
       .inputs = {normal({4, 6})},
       .reference = reshaped({4, 1, 6}),
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return expand_dims(in[0], -2); }},
      {.name = "squeeze",
       .inputs = {normal({1, 4, 1, 6})},
       .reference = reshaped({4, 6}),
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return squeeze(in[0]); }},
      {.name = "squeeze_one",
       .inputs = {normal({1, 4, 1, 6})},
       .reference = reshaped({1, 4, 6}),
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return squeeze(in[0], {-2}); }},
      {.name = "split",
       .inputs = {normal({4, 6})},
       .reference = [](const Arrays& in) -> Arrays {
         const auto part = [&](int64_t first) {
           return moved({4, 3}, [=](const Dims& i) { return Dims{i[0], i[1] + first}; })(in)[0];
         };
         return {part(0), part(3)};
       },
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return split(in[0], 2, -1); },
       .results = {same, same}},
  };
  all.push_back(with_large(
      with_edges(moving({.name = "barrier",
                         .op = "barrier",
                         .inputs = {normal({4, 6}), normal({3}).of(always<DType::float32>)},
                         .reference = [](const Arrays& in) { return in[0]; },
                         .function =
                             [](auto in) {
                               return barrier(in[0], std::span(&in[1], 1), std::source_location::current());
                             },
                         .stops = {1}}),
                 {{{0, 3}, {2}}, {{}, {}}}),
      {{300, 700}, {3}}));
  for (const DType dtype : kAll) all.push_back(one_hot_case(dtype));
  return all;
}

BadCalls bad_calls() {
  const Tensor x = sample({2, 3}), whole = sample({2}, DType::int32), none;
  const Tensor rows = Tensor::from({0, 7}, {2});
  using enum ErrorCode;
  return {
      {"reshape_size",
       shape_mismatch,
       {"reshape: ", "(2, 3)", "(4, 2)"},
       [=] {
         reshape(x, {4, 2});
       }},
      {"reshape_not_divisible",
       shape_mismatch,
       {"reshape: ", "(2, 3)", "(4, -1)"},
       [=] {
         reshape(x, {4, -1});
       }},
      {"reshape_two_unknown",
       invalid_argument,
       {"reshape: ", "(-1, -1)"},
       [=] {
         reshape(x, {-1, -1});
       }},
      {"reshape_negative",
       invalid_argument,
       {"reshape: ", "(-2, 3)"},
       [=] {
         reshape(x, {-2, 3});
       }},
      {"reshape_of_none", invalid_argument, {"reshape: ", "none"}, [=] { reshape(none, {1}); }},
      {"transpose_rank", shape_mismatch, {"transpose: ", "(0,)", "(2, 3)"}, [=] { transpose(x, {0}); }},
      {"transpose_axis",
       invalid_argument,
       {"transpose: ", "axis 2"},
       [=] {
         transpose(x, {0, 2});
       }},
      {"transpose_axis_twice",
       invalid_argument,
       {"transpose: ", "(1, 1)"},
       [=] {
         transpose(x, {1, 1});
       }},
      {"slice_outside",
       invalid_argument,
       {"slice: ", "(2, 3)"},
       [=] {
         slice(x, {1, 1}, {2, 1});
       }},
      {"slice_rank", shape_mismatch, {"slice: ", "(2, 3)"}, [=] { slice(x, {1}, {1}); }},
      {"strided_slice_stride_0",
       invalid_argument,
       {"strided_slice: ", "0"},
       [=] {
         strided_slice(x, {0, 0}, {2, 3}, {1, 0});
       }},
      {"strided_slice_rank",
       shape_mismatch,
       {"strided_slice: ", "(2, 3)"},
       [=] { strided_slice(x, {0}, {2}, {1}); }},
      {"broadcast_to_other",
       shape_mismatch,
       {"broadcast_to: ", "(2, 3)", "(2, 4)"},
       [=] {
         broadcast_to(x, {2, 4});
       }},
      {"broadcast_to_smaller",
       shape_mismatch,
       {"broadcast_to: ", "(2, 3)", "(1, 3)"},
       [=] {
         broadcast_to(x, {1, 3});
       }},
      {"broadcast_to_fewer_dimensions",
       shape_mismatch,
       {"broadcast_to: ", "(2, 3)", "(3,)"},
       [=] { broadcast_to(x, {3}); }},
      {"expand_dims_axis", invalid_argument, {"expand_dims: ", "axis 4"}, [=] { expand_dims(x, 4); }},
      {"squeeze_axis", invalid_argument, {"squeeze: ", "axis 2"}, [=] { squeeze(x, {2}); }},
      {"squeeze_not_1", shape_mismatch, {"squeeze: ", "(2, 3)"}, [=] { squeeze(x, {0}); }},
      {"concat_shapes",
       shape_mismatch,
       {"concat: ", "(2, 3)", "(2, 4)"},
       [=] {
         concat(TensorList{x, sample({2, 4})}, 0);
       }},
      {"concat_ranks",
       shape_mismatch,
       {"concat: ", "(2, 3)", "(3,)"},
       [=] {
         concat(TensorList{x, sample({3})}, 0);
       }},
      {"concat_dtypes",
       dtype_mismatch,
       {"concat: ", "float32(2, 3)", "int32(2, 3)"},
       [=] {
         concat(TensorList{x, sample({2, 3}, DType::int32)}, 0);
       }},
      {"concat_axis",
       invalid_argument,
       {"concat: ", "axis 2"},
       [=] {
         concat(TensorList{x, x}, 2);
       }},
      {"concat_nothing", invalid_argument, {"concat: ", "none"}, [=] { concat(TensorList{}, 0); }},
      {"concat_none",
       invalid_argument,
       {"concat: ", "none"},
       [=] {
         concat(TensorList{x, none}, 0);
       }},
      {"split_unevenly", invalid_argument, {"split: ", "(2, 3)", "2"}, [=] { split(x, 2, 1); }},
      {"split_axis", invalid_argument, {"split: ", "axis 3"}, [=] { split(x, 1, 3); }},
      {"pad_rank", shape_mismatch, {"pad: ", "(2, 3)"}, [=] { pad(x, {1}, {1}); }},
      {"pad_negative",
       invalid_argument,
       {"pad: ", "(-1, 0)"},
       [=] {
         pad(x, {-1, 0}, {0, 0});
       }},
      {"gather_dtype", dtype_mismatch, {"gather: ", "float32(2, 3)"}, [=] { gather(x, x); }},
      {"gather_axis", invalid_argument, {"gather: ", "axis 2"}, [=] { gather(x, whole, 2); }},
      {"gather_outside", invalid_argument, {"gather: ", "(1,)", "7", "2 rows"}, [=] { gather(x, rows); }},
      {"gather_negative", invalid_argument, {"gather: ", "-1"}, [=] { gather(x, Tensor::from({-1}, {1})); }},
      {"scatter_add_dtype",
       dtype_mismatch,
       {"scatter_add: ", "float32(2, 3)"},
       [=] { scatter_add(x, x, 4); }},
      {"scatter_add_shapes",
       shape_mismatch,
       {"scatter_add: ", "(2, 3)", "(3,)"},
       [=] { scatter_add(x, sample({3}, DType::int64), 4); }},
      {"scatter_add_outside",
       invalid_argument,
       {"scatter_add: ", "(1,)", "7"},
       [=] { scatter_add(x, rows, 4); }},
      {"scatter_add_negative_rows",
       invalid_argument,
       {"scatter_add: ", "-1"},
       [=] { scatter_add(x, whole, -1); }},
      {"one_hot_dtype", dtype_mismatch, {"one_hot: ", "float32(2, 3)"}, [=] { one_hot(x, 3); }},
      {"one_hot_depth", invalid_argument, {"one_hot: ", "-2"}, [=] { one_hot(whole, -2); }},
  };
}

}  // namespace

const Family kArrayFamily{cases, bad_calls};

}  // namespace lockstep::testing
