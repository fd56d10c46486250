#include <gtest/gtest.h>

#include <functional>

#include "compile/passes/rewrite_test.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "ops/elementwise/ops.h"
#include "ops/nn/batch_norm.h"

namespace lockstep {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::is_sorted;
using lockstep::testing::rewritten;
using lockstep::testing::traced;

const TensorSpec kVector{DType::float32, {4}};

// relu(x factor + shift) in 16 bits, and the gradient of a normalisation in front of it as far as the sums.
TensorList relu_gradient(const TensorList& in, const Tensor& looked_at) {
  const Tensor &x = in[0], &dy = in[1], &factor = in[2], &shift = in[3];
  const Tensor y = relu(cast(identity(cast(x, DType::float32) * factor + shift), DType::bfloat16));
  const Tensor dz = where(y > 0.0, dy, 0.0);
  const BatchNormSums sums = batch_norm_sums(looked_at, factor, dz);
  return {y, sums.sum, sums.product, cast(dz, DType::float32) * factor};
}
const SpecList kReluOperands{
    {DType::bfloat16, {6, 4}}, {DType::bfloat16, {6, 4}}, kVector, kVector, {DType::bfloat16, {6, 4}}};

TEST(FuseReluMasks, IntoTheSumsOfANormalisation) {
  const Graph graph = compile::simplify(
      traced(kReluOperands, [](const TensorList& in) { return relu_gradient(in, in[0]); }), false);
  const Graph fused = rewritten("fuse_relu_masks", graph);
  EXPECT_TRUE(is_sorted(fused));
  const auto sums = std::find_if(fused.nodes.begin(), fused.nodes.end(),
                                 [](const Node& node) { return node.op == &kBatchNormSums; });
  ASSERT_EQ(sums->inputs.size(), 5u);
  EXPECT_EQ(fused.node(sums->inputs[2]).op, &kParameter) << "what arrives is read as it is";
  // The other reader does not look at the ReLU's result either.
  const auto above = std::find_if(fused.nodes.begin(), fused.nodes.end(),
                                  [](const Node& node) { return node.op == &kGreater; });
  EXPECT_EQ(fused.node(above->inputs[0]).op, &kAdd);
  EXPECT_EQ(fused.spec(above->inputs[0]).dtype, DType::float32);
}

TEST(FuseReluMasks, AddsWhatComesBackToAResidualSum) {
  const TensorSpec image{DType::bfloat16, {6, 4}};
  const Graph graph =
      compile::simplify(traced({image, image, image, image, kVector},
                               [](const TensorList& in) -> TensorList {
                                 const Tensor y = relu(in[0] + in[1]);
                                 const Tensor dz = where(y > 0.0, in[2] + in[3], 0.0);
                                 const BatchNormSums sums = batch_norm_sums(in[0], in[4], dz),
                                                     others = batch_norm_sums(in[1], in[4], dz);
                                 return {y, dz * 2.0, sums.sum, sums.product, others.sum, others.product};
                               }),
                        false);
  const Graph fused = rewritten("fuse_relu_masks", graph);
  EXPECT_TRUE(is_sorted(fused));
  std::vector<const Node*> sums;
  for (const Node& node : fused.nodes)
    if (node.op == &kBatchNormSums) sums.push_back(&node);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0]->inputs.size(), 5u);
  ASSERT_EQ(sums[0]->outputs.size(), 3u);
  EXPECT_EQ(fused.node(sums[1]->inputs[2]).op, &kBatchNormSums)
      << "the other reads what the first has stored";
  EXPECT_EQ(count_ops(fused, kSelect), 0);
}

TEST(FuseReluMasks, NotWhereTheReluIsBehindSomethingElse) {
  const Graph graph = compile::simplify(
      traced(kReluOperands, [](const TensorList& in) { return relu_gradient(in, in[4]); }), false);
  EXPECT_EQ(rewritten("fuse_relu_masks", graph).nodes.size(), graph.nodes.size());
}

}  // namespace
}  // namespace lockstep
