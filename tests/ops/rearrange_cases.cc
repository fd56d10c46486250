// Public functions that move elements, made of views, concat and gather.
#include <algorithm>

#include "lockstep/ops/array.h"
#include "ops/array/join.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

// Element `index` of the result is the input's at place(index), or 0 where place() gives none of its rank.
template <class Place>
OpCase moved(const CaseName& name, const Shape& from, const Shape& to, PublicFunction function, Place place,
             double elsewhere = 0) {
  return {.name = name,
          .inputs = {normal(from)},
          .reference =
              [=](const Arrays& in) {
                Array out(to, elsewhere);
                each_index(to, [&](const Dims& index) {
                  const Dims source = place(index);
                  if (source.rank() == from.rank()) out.at(index) = in[0].at(source);
                });
                return out;
              },
          .dtypes = kAll,
          .tolerance = Tolerance::exact,
          .function = std::move(function)};
}

const Dims kNowhere = {};

int64_t mirror(int64_t i, int64_t n, int64_t skip) {  // skip: 1 where the edge is not repeated
  if (i < 0) i = -i - 1 + skip;
  return i >= n ? 2 * n - i - 1 - skip : i;
}

OpCases cases() {
  OpCases all = {
      moved(
          "tile", {2, 3}, {4, 9},
          [](auto in) {
            return tile(in[0], {2, 3});
          },
          [](const Dims& i) {
            return Dims{i[0] % 2, i[1] % 3};
          }),
      moved(
          "tile_no_times", {2, 3}, {2, 0},
          [](auto in) {
            return tile(in[0], {1, 0});
          },
          [](const Dims& i) { return i; }),
      moved(
          "tile_deep", {1, 2, 1, 1, 2, 1, 1, 2}, {2, 2, 1, 2, 2, 1, 1, 4},
          [](auto in) {
            return tile(in[0], {2, 1, 1, 2, 1, 1, 1, 2});
          },
          [](const Dims& i) { return Dims{0, i[1], 0, 0, i[4], 0, 0, i[7] % 2}; }),
      moved(
          "repeat", {2, 3}, {2, 6}, [](auto in) { return repeat(in[0], 2, 1); },
          [](const Dims& i) {
            return Dims{i[0], i[1] / 2};
          }),
      moved(
          "repeat_unevenly", {3, 2}, {4, 2},
          [](auto in) {
            return repeat(in[0], {1, 0, 3}, 0);
          },
          [](const Dims& i) {
            return Dims{i[0] == 0 ? 0 : 2, i[1]};
          }),
      moved(
          "reverse", {3, 4}, {3, 4},
          [](auto in) {
            return reverse(in[0], {-1, 0});
          },
          [](const Dims& i) {
            return Dims{2 - i[0], 3 - i[1]};
          }),
      moved(
          "reverse_columns", {3, 37}, {3, 37}, [](auto in) { return reverse(in[0], {1}); },
          [](const Dims& i) {
            return Dims{i[0], 36 - i[1]};
          }),
      moved(
          "reverse_of_nothing", {3, 0}, {3, 0}, [](auto in) { return flip(in[0], {1}); },
          [](const Dims& i) { return i; }),
      moved(
          "roll", {3, 5}, {3, 5},
          [](auto in) {
            return roll(in[0], {-1, 7}, {0, 1});
          },
          [](const Dims& i) {
            return Dims{(i[0] + 1) % 3, (i[1] + 3) % 5};
          }),
      moved(
          "swapaxes", {2, 3, 4}, {4, 3, 2}, [](auto in) { return swapaxes(in[0], 0, -1); },
          [](const Dims& i) {
            return Dims{i[2], i[1], i[0]};
          }),
      moved(
          "moveaxis", {2, 3, 4}, {4, 3, 2},
          [](auto in) {
            return moveaxis(in[0], {0, -1}, {-1, 0});
          },
          [](const Dims& i) {
            return Dims{i[2], i[1], i[0]};
          }),
      moved(
          "moveaxis_one", {2, 3, 4}, {3, 4, 2}, [](auto in) { return moveaxis(in[0], {0}, {2}); },
          [](const Dims& i) {
            return Dims{i[2], i[0], i[1]};
          }),
      moved(
          "space_to_depth", {2, 4, 2, 3}, {2, 2, 1, 12}, [](auto in) { return space_to_depth(in[0], 2); },
          [](const Dims& i) {
            return Dims{i[0], i[1] * 2 + i[3] / 6, i[2] * 2 + i[3] / 3 % 2, i[3] % 3};
          }),
      moved(
          "depth_to_space", {2, 2, 1, 12}, {2, 4, 2, 3}, [](auto in) { return depth_to_space(in[0], 2); },
          [](const Dims& i) {
            return Dims{i[0], i[1] / 2, i[2] / 2, i[1] % 2 * 6 + i[2] % 2 * 3 + i[3]};
          }),
      moved(
          "pad_reflect", {3, 4}, {6, 7},
          [](auto in) {
            return pad(in[0], {2, 0}, {1, 3}, {.mode = PadMode::reflect});
          },
          [](const Dims& i) {
            return Dims{mirror(i[0] - 2, 3, 1), mirror(i[1], 4, 1)};
          }),
      moved(
          "pad_symmetric", {3, 4}, {8, 5},
          [](auto in) {
            return pad(in[0], {3, 1}, {2, 0}, {.mode = PadMode::symmetric});
          },
          [](const Dims& i) {
            return Dims{mirror(i[0] - 3, 3, 0), mirror(i[1] - 1, 4, 0)};
          }),
      moved(
          "pad_with_ones", {2, 3}, {3, 6},
          [](auto in) {
            return pad(in[0], {1, 1}, {0, 2}, {.constant_value = 1});
          },
          [](const Dims& i) {
            return i[0] >= 1 && i[1] >= 1 && i[1] < 4 ? Dims{i[0] - 1, i[1] - 1} : kNowhere;
          },
          1),
      moved(
          "diag", {2, 3}, {2, 3, 3}, [](auto in) { return diag(in[0]); },
          [](const Dims& i) {
            return i[1] == i[2] ? Dims{i[0], i[1]} : kNowhere;
          }),
      moved(
          "diag_above", {3}, {5, 5}, [](auto in) { return diag(in[0], 2); },
          [](const Dims& i) { return i[1] - i[0] == 2 ? Dims{i[0]} : kNowhere; }),
      moved(
          "diag_below", {3}, {4, 4}, [](auto in) { return diag(in[0], -1); },
          [](const Dims& i) { return i[1] - i[0] == -1 ? Dims{i[1]} : kNowhere; }),
      moved(
          "diag_part", {2, 3, 5}, {2, 3}, [](auto in) { return diag_part(in[0]); },
          [](const Dims& i) {
            return Dims{i[0], i[1], i[1]};
          }),
      moved(
          "diag_part_above", {4, 3}, {2}, [](auto in) { return diag_part(in[0], 1); },
          [](const Dims& i) {
            return Dims{i[0], i[0] + 1};
          }),
      moved(
          "diag_part_below", {4, 3}, {2}, [](auto in) { return diag_part(in[0], -2); },
          [](const Dims& i) {
            return Dims{i[0] + 2, i[0]};
          }),
      moved(
          "tril", {2, 3, 4}, {2, 3, 4}, [](auto in) { return tril(in[0], 1); },
          [](const Dims& i) { return i[2] - i[1] <= 1 ? i : kNowhere; }),
      moved(
          "triu", {3, 4}, {3, 4}, [](auto in) { return triu(in[0], -1); },
          [](const Dims& i) { return i[1] - i[0] >= -1 ? i : kNowhere; }),
      moved(
          "band_part", {5, 4}, {5, 4}, [](auto in) { return band_part(in[0], 1, -1); },
          [](const Dims& i) { return i[0] - i[1] <= 1 ? i : kNowhere; }),
      {.name = "stack",
       .inputs = {normal({2, 3}), normal({2, 3})},
       .reference =
           [](const Arrays& in) {
             Array out({in[0].shape[0], 2, in[0].shape[1]});
             each_index(out.shape, [&](const Dims& i) {
               out.at(i) = in[static_cast<size_t>(i[1])].at({i[0], i[2]});
             });
             return out;
           },
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return stack(in, 1); },
       .edge_shapes = {{{0, 3}, {0, 3}}}},
      {.name = "unstack",
       .inputs = {normal({2, 3})},
       .reference = [](const Arrays& in) -> Arrays {
         Arrays out(3, Array({2}));
         each_index({2, 3}, [&](const Dims& i) { out[static_cast<size_t>(i[1])].at({i[0]}) = in[0].at(i); });
         return out;
       },
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return unstack(in[0], -1); },
       .results = {same, same, same}},
      {.name = "split_sizes",
       .inputs = {normal({2, 6})},
       .reference = [](const Arrays& in) -> Arrays {
         Arrays out = {Array({2, 1}), Array({2, 3}), Array({2, 2})};
         each_index({2, 6}, [&](const Dims& i) {
           const size_t part = i[1] < 1 ? 0 : i[1] < 4 ? 1 : 2;
           out[part].at({i[0], i[1] - (part == 0 ? 0 : part == 1 ? 1 : 4)}) = in[0].at(i);
         });
         return out;
       },
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function =
           [](auto in) {
             return split(in[0], {1, -1, 2}, 1);
           },
       .results = {same, same, same}},
      {.name = "meshgrid",
       .inputs = {normal({3}), normal({2})},
       .reference = [](const Arrays& in) -> Arrays {
         Arrays out = {Array({2, 3}), Array({2, 3})};
         each_index({2, 3}, [&](const Dims& i) {
           out[0].at(i) = in[0].at({i[1]});
           out[1].at(i) = in[1].at({i[0]});
         });
         return out;
       },
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return meshgrid(in); },
       .results = {same, same}},
      {.name = "meshgrid_ij",
       .inputs = {normal({3}), normal({2})},
       .reference = [](const Arrays& in) -> Arrays {
         Arrays out = {Array({3, 2}), Array({3, 2})};
         each_index({3, 2}, [&](const Dims& i) {
           out[0].at(i) = in[0].at({i[0]});
           out[1].at(i) = in[1].at({i[1]});
         });
         return out;
       },
       .dtypes = kAll,
       .tolerance = Tolerance::exact,
       .function = [](auto in) { return meshgrid(in, MeshIndexing::ij); },
       .results = {same, same}},
      {.name = "trace",
       .inputs = {normal({2, 3, 4})},
       .reference =
           [](const Arrays& in) {
             Array out({2});
             each_index({2, 3}, [&](const Dims& i) { out.at({i[0]}) += in[0].at({i[0], i[1], i[1]}); });
             return out;
           },
       .dtypes = kNumbers,
       .tolerance = Tolerance::summed,
       .function = [](auto in) { return trace(in[0]); }},
  };
  for (const DType dtype : kAll)
    all.push_back({.name = detail::concat("eye_of_", dtype),
                   .reference =
                       [](const Arrays&) {
                         Array out({2, 3});
                         out.at({0, 0}) = out.at({1, 1}) = 1;
                         return out;
                       },
                   .dtypes = {dtype},
                   .tolerance = Tolerance::exact,
                   .function = [=](auto) { return eye(2, 3, dtype); },
                   .results = {always_dtype(dtype)},
                   .derivatives = 0});
  return all;
}

BadCalls bad_calls() {
  const Tensor x = sample({2, 3}), whole = sample({2, 3}, DType::int32), none;
  using enum ErrorCode;
  return {
      {"stack_nothing", invalid_argument, {"stack: ", "none"}, [] { stack(TensorList{}); }},
      {"stack_shapes",
       shape_mismatch,
       {"stack: ", "(2, 3)", "(3,)"},
       [=] {
         stack(TensorList{x, sample({3})});
       }},
      {"stack_axis", invalid_argument, {"stack: ", "axis 3"}, [=] { stack(TensorList{x}, 3); }},
      {"stack_none",
       invalid_argument,
       {"stack: ", "part 1"},
       [=] {
         stack(TensorList{x, none});
       }},
      {"unstack_axis", invalid_argument, {"unstack: ", "axis 2"}, [=] { unstack(x, 2); }},
      {"tile_rank", shape_mismatch, {"tile: ", "(2,)", "(2, 3)"}, [=] { tile(x, {2}); }},
      {"tile_negative",
       invalid_argument,
       {"tile: ", "(2, -1)"},
       [=] {
         tile(x, {2, -1});
       }},
      {"repeat_negative", invalid_argument, {"repeat: ", "-1"}, [=] { repeat(x, -1, 0); }},
      {"repeat_axis", invalid_argument, {"repeat: ", "axis 2"}, [=] { repeat(x, 1, 2); }},
      {"repeat_count",
       shape_mismatch,
       {"repeat: ", "(2, 3)"},
       [=] {
         repeat(x, {1, 2}, 1);
       }},
      {"reverse_twice",
       invalid_argument,
       {"reverse: ", "twice"},
       [=] {
         reverse(x, {0, -2});
       }},
      {"roll_ranks",
       shape_mismatch,
       {"roll: ", "(1, 2)", "(0,)"},
       [=] {
         roll(x, {1, 2}, {0});
       }},
      {"swapaxes_axis", invalid_argument, {"swapaxes: ", "axis 2"}, [=] { swapaxes(x, 0, 2); }},
      {"moveaxis_twice",
       invalid_argument,
       {"moveaxis: ", "twice"},
       [=] {
         moveaxis(x, {0, 0}, {0, 1});
       }},
      {"split_sizes_sum",
       invalid_argument,
       {"split: ", "(2, 3)", "4"},
       [=] {
         split(x, {2, 2}, 1);
       }},
      {"split_sizes_unknown",
       invalid_argument,
       {"split: ", "2 of -1"},
       [=] {
         split(x, {-1, -1}, 1);
       }},
      {"meshgrid_of_matrix",
       shape_mismatch,
       {"meshgrid: ", "float32(2, 3)"},
       [=] { meshgrid(TensorList{x}); }},
      {"space_to_depth_block",
       shape_mismatch,
       {"space_to_depth: ", "2", "(1, 3, 4, 1)"},
       [] {
         space_to_depth(sample({1, 3, 4, 1}), 2);
       }},
      {"depth_to_space_block",
       shape_mismatch,
       {"depth_to_space: ", "2", "(1, 2, 2, 3)"},
       [] {
         depth_to_space(sample({1, 2, 2, 3}), 2);
       }},
      {"pad_reflect_too_far",
       invalid_argument,
       {"pad: ", "(2, 0)", "(2, 3)"},
       [=] {
         pad(x, {2, 0}, {0, 0}, {.mode = PadMode::reflect});
       }},
      {"pad_value",
       dtype_mismatch,
       {"pad: ", "0.5", "int32"},
       [=] {
         pad(whole, {1, 0}, {0, 0}, {.constant_value = 0.5});
       }},
      {"diag_of_scalar", shape_mismatch, {"diag: ", "scalar"}, [] { diag(sample({})); }},
      {"diag_part_of_vector", shape_mismatch, {"diag_part: ", "(3,)"}, [] { diag_part(sample({3})); }},
      {"diag_part_k", invalid_argument, {"diag_part: ", "4", "(2, 3)"}, [=] { diag_part(x, 4); }},
      {"trace_of_vector", shape_mismatch, {"trace: ", "(3,)"}, [] { trace(sample({3})); }},
      {"tril_of_vector", shape_mismatch, {"tril: ", "(3,)"}, [] { tril(sample({3})); }},
      {"eye_rows", invalid_argument, {"eye: ", "-2"}, [] { eye(-2); }},
  };
}

}  // namespace

const Family kRearrangeFamily{cases, bad_calls};

}  // namespace lockstep::testing
