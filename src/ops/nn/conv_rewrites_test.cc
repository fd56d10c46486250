#include <gtest/gtest.h>

#include <functional>

#include "compile/passes/rewrite_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/array/array.h"
#include "ops/array/join.h"
#include "ops/nn/conv.h"

namespace lockstep {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::expect_same_results;
using lockstep::testing::rewritten;
using lockstep::testing::traced;

// A convolution of padded images, with the gradients of its inputs.
Graph padded_convolution(const Dims& before, const Dims& after, double value) {
  return traced({{DType::float32, {1, 6, 6, 2}}, {DType::float32, {3, 3, 2, 4}}},
                [&](const TensorList& p) -> TensorList {
                  GradientTape tape;
                  tape.watch(p[0]);
                  tape.watch(p[1]);
                  const Tensor y = reduce_sum(square(
                      conv2d(pad(p[0], before, after, {.constant_value = value}), p[1], {.strides = {2}})));
                  const GradientSource sources[] = {p[0], p[1]};
                  const TensorList gradients = tape.gradient(y, sources);
                  return {y, gradients[0], gradients[1]};
                });
}

TEST(PadInConvolution, AlsoInItsGradients) {
  const SpecList specs = {{DType::float32, {1, 6, 6, 2}}, {DType::float32, {3, 3, 2, 4}}};
  const Graph before = padded_convolution({0, 1, 2, 0}, {0, 1, 2, 0}, 0);
  const Graph after = rewritten("pad_in_convolution", before);
  EXPECT_EQ(count_ops(before, kPad), 1);
  EXPECT_EQ(count_ops(after, kPad) + count_ops(after, kStridedSlice), 0);
  expect_same_results(before, after, specs, 1e-4);
}

TEST(PadInConvolution, NotWhereItIsNoConvolutionsPadding) {
  for (const auto& [before, after, value] :
       {std::tuple<Dims, Dims, double>{{0, 0, 0, 0}, {0, 1, 1, 0}, 0}, {{0, 1, 1, 0}, {0, 1, 1, 0}, 1}})
    EXPECT_EQ(count_ops(rewritten("pad_in_convolution", padded_convolution(before, after, value)), kPad), 1);
}

}  // namespace
}  // namespace lockstep
