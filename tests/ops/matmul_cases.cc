#include "lockstep/ops/linalg.h"
#include "ops/matmul/matmul.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

const DTypes kProducts = {DType::float32, DType::float64, DType::bfloat16,
                          DType::float16, DType::int32,   DType::int64};

// Element by element; the dimensions before the last two broadcast.
Reference product(bool transpose_a = false, bool transpose_b = false) {
  return [=](const Arrays& in) {
    const Array &a = in[0], &b = in[1];
    Shape shape = broadcast(a.shape.drop_last(2), b.shape.drop_last(2), "reference");
    const int64_t inner = a.shape[transpose_a ? -2 : -1];
    shape.push_back(a.shape[transpose_a ? -1 : -2]);
    shape.push_back(b.shape[transpose_b ? -2 : -1]);
    const auto read = [](const Array& x, const Dims& index, int64_t row, int64_t column) {
      Dims own;
      for (int d = 0; d < x.shape.rank() - 2; ++d)
        own.push_back(x.shape[d] == 1 ? 0 : index[index.rank() - x.shape.rank() + d]);
      own.push_back(row);
      own.push_back(column);
      return x.at(own);
    };
    Array c(shape);
    size_t element = 0;
    each_index(shape, [&](const Dims& index) {
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k)
        sum += read(a, index, transpose_a ? k : index[-2], transpose_a ? index[-2] : k) *
               read(b, index, transpose_b ? index[-1] : k, transpose_b ? k : index[-1]);
      c.values[element++] = sum;
    });
    return c;
  };
}

OpCase matmul_case(const std::string& name, const Shape& a, const Shape& b, bool transpose_a = false,
                   bool transpose_b = false) {
  const bool single = a[-2] == 1 && b[-1] == 1;
  return {.name = name,
          .op = "matmul",
          // A single sum has nothing larger beside it to which its rounding error could be compared.
          .inputs = single ? std::vector{within(a, 0.5, 1.5), within(b, 0.5, 1.5)}
                           : std::vector{normal(a), normal(b)},
          .attrs = MatmulAttrs{.transpose_a = transpose_a, .transpose_b = transpose_b},
          .reference = product(transpose_a, transpose_b),
          .dtypes = kProducts,
          .tolerance = Tolerance::summed,
          .function =
              [=](auto in) {
                return matmul(in[0], in[1], {.transpose_a = transpose_a, .transpose_b = transpose_b});
              },
          // oneDNN sums in an order of its own for each layout, and some layouts are not for oneDNN.
          .layout_chooses_algorithm = true};
}

OpCases cases() {
  return {
      with_large(
          with_edges(
              matmul_case("matmul", {3, 4}, {4, 5}),
              {{{1, 1}, {1, 1}}, {{0, 3}, {3, 4}}, {{3, 0}, {0, 4}}, {{3, 4}, {4, 0}}, {{0, 0}, {0, 0}}}),
          {{70, 60}, {60, 50}}),
      with_large(matmul_case("matmul_transposed_a", {4, 3}, {4, 5}, true, false), {{60, 70}, {60, 50}}),
      with_large(matmul_case("matmul_transposed_b", {3, 4}, {5, 4}, false, true), {{70, 60}, {50, 60}}),
      matmul_case("matmul_transposed_both", {4, 3}, {5, 4}, true, true),
      with_large(with_edges(matmul_case("matmul_batched", {2, 3, 4}, {2, 4, 2}), {{{0, 2, 3}, {0, 3, 2}},
                                                                                  {{1, 2, 3}, {0, 3, 2}},
                                                                                  {{2, 0, 3}, {1, 3, 2}},
                                                                                  {{1, 1, 1}, {1, 1, 1}}}),
                 {{6, 30, 40}, {6, 40, 50}}),
      matmul_case("matmul_batch_and_matrix", {2, 3, 4}, {4, 2}),
      matmul_case("matmul_matrix_and_batch", {3, 4}, {2, 4, 2}),
      matmul_case("matmul_broadcast_batches", {2, 1, 2, 3}, {3, 3, 2}),
      matmul_case("matmul_broadcast_transposed", {2, 1, 3, 2}, {3, 4, 3}, true, true),
      matmul_case("matmul_row_and_column", {1, 6}, {6, 1}),
      matmul_case("matmul_column_and_row", {5, 1}, {1, 4}),
      // More than one tile of the own kernels, and not a multiple of one.
      with_derivatives(kUnchecked, matmul_case("matmul_tiles", {19, 33}, {33, 37})),
  };
}

BadCalls bad_calls() {
  const Tensor x = sample({2, 3});
  using enum ErrorCode;
  return {
      {"matmul_inner_dimensions",
       shape_mismatch,
       {"matmul: ", "(2, 3)", "(4, 5)"},
       [=] {
         matmul(x, sample({4, 5}));
       }},
      {"matmul_inner_transposed",
       shape_mismatch,
       {"matmul: ", "(2, 3)", "(3, 5)"},
       [=] {
         matmul(x, sample({3, 5}), {.transpose_a = true});
       }},
      {"matmul_of_vectors", shape_mismatch, {"matmul: ", "(3,)"}, [=] { matmul(x, sample({3})); }},
      {"matmul_batches",
       shape_mismatch,
       {"matmul: ", "(2,", "(3,"},
       [=] {
         matmul(sample({2, 2, 3}), sample({3, 3, 2}));
       }},
      {"matmul_dtypes",
       dtype_mismatch,
       {"matmul: ", "float32(2, 3)", "float64(3, 2)"},
       [=] {
         matmul(x, sample({3, 2}, DType::float64));
       }},
      {"matmul_of_booleans",
       dtype_mismatch,
       {"matmul: ", "bool(2, 2)"},
       [=] {
         matmul(sample({2, 2}, DType::boolean), sample({2, 2}, DType::boolean));
       }},
      {"matmul_of_none", invalid_argument, {"matmul: ", "none"}, [=] { matmul(x, Tensor()); }},
  };
}

}  // namespace

const Family kMatmulFamily{cases, bad_calls};

}  // namespace lockstep::testing
