#include <gtest/gtest.h>

#include <functional>

#include "compile/passes/rewrite_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/nn/cross_entropy.h"

namespace lockstep {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::is_sorted;
using lockstep::testing::rewritten;
using lockstep::testing::traced;

// The gradient of a loss with respect to logits [4, 3], which are given with the labels.
Graph loss_and_gradient(const std::function<Tensor(const Tensor& loss)>& reduced) {
  return traced({{DType::float32, {4, 3}}, {DType::int32, {4}}}, [&](const TensorList& in) -> TensorList {
    GradientTape tape;
    tape.watch(in[0]);
    const Tensor loss = reduced(sparse_softmax_cross_entropy_with_logits(in[1], in[0]));
    return {loss, tape.gradient(loss, in[0])};
  });
}

TEST(JoinLosses, AMeanAndItsGradient) {
  const Graph before = loss_and_gradient([](const Tensor& loss) { return reduce_mean(loss); });
  const Graph after = rewritten("join_losses", before);
  EXPECT_TRUE(is_sorted(after));
  EXPECT_EQ(count_ops(after, kSparseCrossEntropyWithGrad), 1);
  EXPECT_EQ(count_ops(after, kSparseCrossEntropy) + count_ops(after, kSparseCrossEntropyGrad), 0);
  ASSERT_EQ(after.outputs.size(), 2u);
  EXPECT_EQ(after.spec(after.outputs[1]), (TensorSpec{DType::float32, {4, 3}}));
}

TEST(JoinLosses, NotWhereTheGradientNeedsTheLoss) {
  const Graph before = loss_and_gradient([](const Tensor& loss) { return reduce_sum(loss * loss); });
  const Graph after = rewritten("join_losses", before);
  EXPECT_EQ(count_ops(after, kSparseCrossEntropyWithGrad), 0);
  EXPECT_EQ(count_ops(after, kSparseCrossEntropyGrad), 1);
}

}  // namespace
}  // namespace lockstep
