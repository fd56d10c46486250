#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backends/cpu/simd.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matvec_cpu_simd.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

TEST(Matvec, ResultsDoNotDependOnThreads) {
  for (const DType dtype : kFloats) {
    const Tensor tall = random_tensor(dtype, {701, 500}, 1), row = random_tensor(dtype, {1, 701}, 2),
                 column = random_tensor(dtype, {500, 1}, 3);
    const auto expect_same = [&](const TensorList& inputs, const MatmulAttrs& attrs) {
      // More threads than there are blocks of the size that one thread takes.
      for (const int threads : {3, 9})
        EXPECT_TRUE(same_bits(run_kernel(kMatmul, inputs, attrs, threads)[0],
                              run_kernel(kMatmul, inputs, attrs, 1)[0]))
            << dtype << " on " << threads << " threads";
    };
    expect_same({tall, column}, {});
    expect_same({row, tall}, {});
    expect_same({column, tall}, {.transpose_a = true, .transpose_b = true});
    expect_same({tall, row}, {.transpose_a = true, .transpose_b = true});
  }
}

// A row's result is the same whichever rows stand beside it: those of a block of 4, and those left over.
TEST(Matvec, RowsDoNotDependOnTheirNeighbours) {
  for (const DType dtype : kFloats) {
    const Tensor matrix = random_tensor(dtype, {19, 77}, 1), x = random_tensor(dtype, {77, 1}, 2);
    const std::vector<double> all = testing::values(run_kernel(kMatmul, {matrix, x}, MatmulAttrs{}, 1)[0]);
    const std::vector<double> elements = testing::values(matrix);
    for (size_t row = 0; row < 19; ++row) {
      const std::vector<double> one(elements.begin() + static_cast<int64_t>(row * 77),
                                    elements.begin() + static_cast<int64_t>((row + 1) * 77));
      const Tensor alone = testing::tensor_of(dtype, {1, 77}, one);
      EXPECT_EQ(testing::values(run_kernel(kMatmul, {alone, x}, MatmulAttrs{}, 1)[0])[0], all[row])
          << dtype << " row " << row;
    }
  }
}

// Sums over dense columns are those of a product of matrices, to the bit: one product after the other. The
// columns are computed in blocks of 4, 2 and 1 vectors, the last ones in a vector that overlaps those before.
TEST(Matvec, DenseColumnsAreSummedInOrder) {
  const Tensor matrix = random_tensor(DType::float64, {300, 249}, 1),
               two = random_tensor(DType::float64, {2, 300}, 2);
  const std::vector<double> both = testing::values(run_kernel(kMatmul, {two, matrix}, MatmulAttrs{}, 1)[0]);
  const std::vector<double> elements = testing::values(two);
  const Tensor first = testing::tensor_of(DType::float64, {1, 300},
                                          std::vector<double>(elements.begin(), elements.begin() + 300));
  const std::vector<double> alone =
      testing::values(run_kernel(kMatmul, {first, matrix}, MatmulAttrs{}, 1)[0]);
  EXPECT_EQ(alone, std::vector<double>(both.begin(), both.begin() + 249));
}

// Levels differ in fused multiplications only: of small whole numbers they compute the same.
TEST(Matvec, LevelsAgree) {
  std::vector<const cpu::MatrixVectorTable*> tables = {&simd_v2::kMatrixVectorTable};
  if (cpu::simd_level() >= cpu::SimdLevel::v3) tables.push_back(&simd_v3::kMatrixVectorTable);
  if (cpu::simd_level() >= cpu::SimdLevel::v4) tables.push_back(&simd_v4::kMatrixVectorTable);
  constexpr int64_t kRows = 165, kDepth = 37;
  std::vector<double> matrix(kRows * kDepth), x(kDepth), bias(kRows);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<double>(i * 7 % 11) - 5;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 5 % 7) - 3;
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<double>(i % 3);
  for (const bool dense_rows : {true, false}) {
    std::vector<double> expected = bias;
    for (size_t r = 0; r < kRows; ++r)
      for (size_t k = 0; k < kDepth; ++k)
        expected[r] += matrix[dense_rows ? r * kDepth + k : k * kRows + r] * x[k];
    for (const cpu::MatrixVectorTable* table : tables) {
      std::vector<double> y(kRows), scratch(48);
      const auto function = dense_rows ? table->float64.dense_rows : table->float64.dense_columns;
      function({.matrix = matrix.data(),
                .stride = dense_rows ? kDepth : kRows,
                .x = x.data(),
                .x_stride = 1,
                .bias = bias.data(),
                .bias_stride = 1,
                .y = y.data(),
                .rows = kRows,
                .depth = kDepth,
                .scratch = scratch.data()});
      EXPECT_EQ(y, expected);
    }
  }
}

}  // namespace
}  // namespace lockstep
