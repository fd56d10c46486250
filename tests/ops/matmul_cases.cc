#include "lockstep/ops/linalg.h"

#include <algorithm>
#include <iterator>

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

OpCase matmul_case(const CaseName& name, const Shape& a, const Shape& b, bool transpose_a = false,
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

// Every product of one element of each operand, added where the result's labels say: terms[i] and `result`
// have one label a dimension.
Reference summed_products(const std::vector<std::string>& terms, const std::string& result) {
  return [=](const Arrays& in) {
    std::string labels;
    Shape sizes;
    for (size_t i = 0; i < terms.size(); ++i)
      for (size_t d = 0; d < terms[i].size(); ++d) {
        const int64_t size = in[i].shape[static_cast<int>(d)];
        const size_t known = labels.find(terms[i][d]);
        if (known == std::string::npos)
          labels += terms[i][d], sizes.push_back(size);
        else
          sizes[static_cast<int>(known)] = std::max(sizes[static_cast<int>(known)], size);
      }
    const auto place = [&](const std::string& term, const Dims& index, const Shape* shape) {
      Dims at;
      for (size_t d = 0; d < term.size(); ++d)
        at.push_back(
            shape && (*shape)[static_cast<int>(d)] == 1 ? 0 : index[static_cast<int>(labels.find(term[d]))]);
      return at;
    };
    Shape shape;
    for (const char label : result) shape.push_back(sizes[static_cast<int>(labels.find(label))]);
    Array out(shape);
    each_index(sizes, [&](const Dims& index) {
      double product = 1;
      for (size_t i = 0; i < terms.size(); ++i) product *= in[i].at(place(terms[i], index, &in[i].shape));
      out.at(place(result, index, nullptr)) += product;
    });
    return out;
  };
}

// `function`: instead of the einsum of this equation. 16-bit floats are rounded between the ops of a
// composition.
OpCase einsum_case(const CaseName& name, const std::string& equation, const std::vector<Shape>& shapes,
                   const std::vector<std::string>& terms, const std::string& result,
                   PublicFunction function = {}) {
  std::vector<Input> inputs;
  for (const Shape& shape : shapes) inputs.push_back(normal(shape));
  if (!function) function = [=](auto in) { return einsum(equation, in); };
  return {.name = name,
          .inputs = inputs,
          .reference = summed_products(terms, result),
          .dtypes = {DType::float32, DType::float64, DType::int32, DType::int64},
          .tolerance = Tolerance::summed,
          .function = std::move(function),
          .layout_chooses_algorithm = true};
}

OpCases einsum_cases() {
  return {
      einsum_case("einsum_matmul", "ij,jk->ik", {{3, 4}, {4, 2}}, {"ij", "jk"}, "ik"),
      einsum_case("einsum_implicit", "ba, ac", {{3, 4}, {4, 2}}, {"ba", "ac"}, "bc"),
      einsum_case("einsum_transpose", "ijk->kij", {{2, 3, 4}}, {"ijk"}, "kij"),
      einsum_case("einsum_sum", "ij->j", {{3, 4}}, {"ij"}, "j"),
      einsum_case("einsum_sum_of_all", "ij->", {{3, 4}}, {"ij"}, ""),
      einsum_case("einsum_trace", "ii->", {{4, 4}}, {"ii"}, ""),
      einsum_case("einsum_diagonal", "iji->ij", {{3, 2, 3}}, {"iji"}, "ij"),
      einsum_case("einsum_triple_diagonal", "iii->i", {{3, 3, 3}}, {"iii"}, "i"),
      einsum_case("einsum_inner", "i,i->", {{5}, {5}}, {"i", "i"}, ""),
      einsum_case("einsum_outer", "i,j->ji", {{3}, {4}}, {"i", "j"}, "ji"),
      einsum_case("einsum_elementwise", "ij,ji->ij", {{3, 4}, {4, 3}}, {"ij", "ji"}, "ij"),
      einsum_case("einsum_batch", "bij,bjk->bik", {{2, 3, 4}, {2, 4, 2}}, {"bij", "bjk"}, "bik"),
      einsum_case("einsum_attention", "bqhd,bkhd->bhqk", {{2, 3, 2, 4}, {2, 3, 2, 4}}, {"bqhd", "bkhd"},
                  "bhqk"),
      einsum_case("einsum_two_sums", "abc,cbd->ad", {{2, 3, 4}, {4, 3, 2}}, {"abc", "cbd"}, "ad"),
      einsum_case("einsum_sum_before", "ijx,jk->ik", {{2, 3, 2}, {3, 4}}, {"ijx", "jk"}, "ik"),
      einsum_case("einsum_three", "ij,jk,kl->il", {{2, 3}, {3, 4}, {4, 2}}, {"ij", "jk", "kl"}, "il"),
      einsum_case("einsum_three_share", "ia,ib,ic->abc", {{3, 2}, {3, 2}, {3, 2}}, {"ia", "ib", "ic"}, "abc"),
      einsum_case("einsum_ellipsis", "...ij,jk->...ik", {{2, 3, 2, 4}, {4, 2}}, {"xyij", "jk"}, "xyik"),
      einsum_case("einsum_ellipsis_broadcast", "...ij,...jk->...ik", {{2, 1, 2, 4}, {3, 4, 2}},
                  {"xyij", "yjk"}, "xyik"),
      einsum_case("einsum_ellipsis_implicit", "...i,...i", {{2, 3}, {2, 3}}, {"xi", "xi"}, "x"),
      einsum_case("einsum_ellipsis_of_nothing", "...i,i->...", {{3}, {3}}, {"i", "i"}, ""),
      einsum_case("einsum_ellipsis_first", "a...,...a->...a", {{2, 3}, {3, 2}}, {"ax", "xa"}, "xa"),
      einsum_case("einsum_empty", "ij,jk->ik", {{3, 0}, {0, 2}}, {"ij", "jk"}, "ik"),
      einsum_case("tensordot", "", {{2, 3, 4}, {3, 4, 2}}, {"abc", "bcd"}, "ad",
                  [](auto in) { return tensordot(in[0], in[1]); }),
      einsum_case("tensordot_axes", "", {{2, 3, 4}, {4, 2, 3}}, {"abc", "cax"}, "bx",
                  [](auto in) {
                    return tensordot(in[0], in[1], {0, -1}, {1, 0});
                  }),
      einsum_case("tensordot_outer", "", {{2, 3}, {2}}, {"ab", "c"}, "abc",
                  [](auto in) { return tensordot(in[0], in[1], 0); }),
      einsum_case("dot_of_vectors", "", {{5}, {5}}, {"a", "a"}, "",
                  [](auto in) { return dot(in[0], in[1]); }),
      einsum_case("dot_of_tensors", "", {{2, 3, 4}, {2, 4, 3}}, {"abc", "dce"}, "abde",
                  [](auto in) { return dot(in[0], in[1]); }),
      einsum_case("dot_with_scalar", "", {{}, {3}}, {"", "a"}, "a",
                  [](auto in) { return dot(in[0], in[1]); }),
      einsum_case("batch_dot", "", {{3, 2, 4}, {3, 4, 2}}, {"bxy", "byz"}, "bxz",
                  [](auto in) { return batch_dot(in[0], in[1], 2, 1); }),
      einsum_case("matvec", "", {{2, 3, 4}, {2, 4}}, {"bxy", "by"}, "bx",
                  [](auto in) { return matvec(in[0], in[1]); }),
      einsum_case("matvec_transposed", "", {{4, 3}, {4}}, {"yx", "y"}, "x",
                  [](auto in) { return matvec(in[0], in[1], true); }),
      einsum_case("outer", "", {{3}, {4}}, {"x", "y"}, "xy", [](auto in) { return outer(in[0], in[1]); }),
  };
}

OpCases cases() {
  OpCases all = einsum_cases();
  OpCases products = {
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
      // Matrices and vectors: dense rows and dense columns, whole vectors and not, several blocks of rows.
      with_large(with_derivatives(kUnchecked, matmul_case("matmul_vector", {21, 75}, {75, 1})),
                 {{700, 500}, {500, 1}}),
      with_derivatives(kUnchecked, matmul_case("matmul_vector_of_few_products", {37, 5}, {5, 1})),
      with_derivatives(kUnchecked, matmul_case("matmul_vector_transposed", {67, 150}, {67, 1}, true, false)),
      with_large(with_derivatives(kUnchecked, matmul_case("vector_matmul", {1, 13}, {13, 275})),
                 {{1, 500}, {500, 700}}),
      with_derivatives(kUnchecked, matmul_case("vector_matmul_transposed", {1, 80}, {21, 80}, false, true)),
      with_derivatives(kUnchecked, matmul_case("matmul_vectors_batched", {2, 1, 18, 66}, {3, 66, 1})),
      with_derivatives(kUnchecked, matmul_case("vectors_matmul_batched", {3, 1, 7}, {7, 20})),
  };
  std::ranges::move(products, std::back_inserter(all));
  return all;
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
      {"einsum_operands",
       invalid_argument,
       {"einsum: ", "ij,jk->ik", "2", "1"},
       [=] { einsum("ij,jk->ik", {x}); }},
      {"einsum_letters",
       shape_mismatch,
       {"einsum: ", "ijk->i", "(2, 3)", "3 letters"},
       [=] { einsum("ijk->i", {x}); }},
      {"einsum_sizes",
       shape_mismatch,
       {"einsum: ", "ij,jk->ik", "label 'j'", "3", "2"},
       [=] {
         einsum("ij,jk->ik", {x, x});
       }},
      {"einsum_result",
       invalid_argument,
       {"einsum: ", "label 'k'", "no operand"},
       [=] { einsum("ij->k", {x}); }},
      {"einsum_result_twice",
       invalid_argument,
       {"einsum: ", "label 'i'", "twice"},
       [=] { einsum("ij->ii", {x}); }},
      {"einsum_character",
       invalid_argument,
       {"einsum: ", "'1'", "i1"},
       [=] { einsum("i1->i", {sample({2})}); }},
      {"einsum_ellipsis_lost",
       invalid_argument,
       {"einsum: ", "...", "1 dimensions"},
       [=] { einsum("...j->j", {x}); }},
      {"einsum_ellipsis_sizes",
       shape_mismatch,
       {"einsum: ", "...", "2", "4"},
       [=] {
         einsum("...j,...j->...", {x, sample({4, 3})});
       }},
      {"einsum_dtypes",
       dtype_mismatch,
       {"einsum: ", "float32(2, 3)", "int32(3,)"},
       [=] {
         einsum("ij,j->i", {x, sample({3}, DType::int32)});
       }},
      {"einsum_none", invalid_argument, {"einsum: ", "operand 0"}, [=] { einsum("i->i", {Tensor()}); }},
      {"tensordot_sizes", shape_mismatch, {"tensordot: ", "(2, 3)"}, [=] { tensordot(x, x, {0}, {1}); }},
      {"tensordot_twice",
       invalid_argument,
       {"tensordot: ", "twice"},
       [=] {
         tensordot(sample({2, 2}), sample({2, 2}), {0, 0}, {0, 1});
       }},
      {"tensordot_count", invalid_argument, {"tensordot: ", "3", "(2, 3)"}, [=] { tensordot(x, x, 3); }},
      {"dot_sizes", shape_mismatch, {"(2, 3)"}, [=] { dot(x, x); }},
      {"batch_dot_batch", invalid_argument, {"batch_dot: ", "batch"}, [=] { batch_dot(x, x, 0, 1); }},
      {"batch_dot_sizes",
       shape_mismatch,
       {"batch_dot: ", "(2, 3)", "(2, 4)"},
       [=] {
         batch_dot(x, sample({2, 4}), 1, 1);
       }},
      {"matvec_of_scalar", shape_mismatch, {"matvec: ", "()"}, [=] { matvec(x, sample({})); }},
      {"matmul_of_none", invalid_argument, {"matmul: ", "none"}, [=] { matmul(x, Tensor()); }},
  };
}

}  // namespace

const Family kMatmulFamily{cases, bad_calls};

}  // namespace lockstep::testing
