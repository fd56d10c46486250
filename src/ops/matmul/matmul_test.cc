#include "ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "ops/run_kernel_test.h"
#include "ops/without_avx512_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;

// Products of all layouts, with a bias and with an activation, are those of float32, rounded once.
void expect_those_of_float32(DType dtype) {
  const auto expect_same = [&](const TensorList& inputs, const MatmulAttrs& attrs) {
    MatmulAttrs plain = attrs;
    plain.epilogue = Epilogue::none;
    TensorList wide;
    for (const Tensor& input : inputs) wide.push_back(cast(input, DType::float32));
    const Tensor expected = cast(run_kernel(kMatmul, wide, plain, 1)[0], dtype);
    EXPECT_TRUE(same_bits(run_kernel(kMatmul, inputs, plain, 1)[0], expected))
        << dtype << " " << inputs[0].shape() << " x " << inputs[1].shape();
    if (attrs.epilogue == Epilogue::relu) {
      EXPECT_TRUE(same_bits(run_kernel(kMatmul, inputs, attrs, 1)[0], relu(expected))) << dtype;
    }
  };
  const Tensor a = random_tensor(dtype, {300, 257}, 1), b = random_tensor(dtype, {257, 310}, 2),
               bias = random_tensor(dtype, {310}, 3);
  expect_same({a, b}, {});
  expect_same({a, b, bias}, {.bias = true, .epilogue = Epilogue::relu});
  expect_same({transpose(a) + 0.0, b}, {.transpose_a = true});
  expect_same({a, transpose(b) + 0.0}, {.transpose_b = true});
  // Columns of wider matrices, and one matrix for all of a batch.
  expect_same({slice(a, {0, 3}, {300, 200}), slice(b, {7, 0}, {200, 310})}, {});
  expect_same({random_tensor(dtype, {3, 1, 70, 80}, 4), random_tensor(dtype, {2, 80, 90}, 5)}, {});
}

TEST(Matmul, LargeProductsOfFloat16AreComputedInFloat32) { expect_those_of_float32(DType::float16); }

// oneDNN has no bfloat16 before AVX-512, and none of it for what a process has begun with.
TEST(MatmulWithoutAvx512OwnProcess, LargeProductsOfBfloat16AreComputedInFloat32) {
  if (!testing::keep_dnnl_to_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  expect_those_of_float32(DType::bfloat16);
}

}  // namespace
}  // namespace lockstep
