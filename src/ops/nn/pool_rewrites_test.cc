#include <gtest/gtest.h>

#include <functional>

#include "compile/passes/rewrite_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/array/array.h"
#include "ops/array/join.h"
#include "ops/nn/pool.h"

namespace lockstep {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::expect_same_results;
using lockstep::testing::rewritten;
using lockstep::testing::traced;

// A pooling of padded images behind a ReLU, with its gradient.
TensorList padded_pooling(const Tensor& x, bool behind_relu) {
  GradientTape tape;
  tape.watch(x);
  const Tensor images = behind_relu ? relu(x) : x * 2.0;
  const Tensor y = max_pool2d(pad(images, {0, 1, 1, 0}, {0, 1, 1, 0}), {.pool_size = {3}, .strides = {2}});
  return {y, tape.gradient(reduce_sum(y * y), x)};
}

TEST(PadInPooling, BehindARelu) {
  const SpecList specs{{DType::float32, {1, 5, 6, 2}}};
  const Graph graph = compile::simplify(
      traced(specs, [](const TensorList& in) { return padded_pooling(in[0], true); }), false);
  const Graph folded = rewritten("pad_in_pooling", graph);
  EXPECT_EQ(count_ops(graph, kPad), 1);
  EXPECT_EQ(count_ops(folded, kPad), 0);
  EXPECT_EQ(count_ops(folded, kStridedSlice), 0);
  expect_same_results(graph, folded, specs);
}

TEST(PadInPooling, NotOfWhatMayBeBelowZero) {
  const SpecList specs{{DType::float32, {1, 5, 6, 2}}};
  const Graph graph = compile::simplify(
      traced(specs, [](const TensorList& in) { return padded_pooling(in[0], false); }), false);
  EXPECT_EQ(count_ops(rewritten("pad_in_pooling", graph), kPad), 1);
}

}  // namespace
}  // namespace lockstep
