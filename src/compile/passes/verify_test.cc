#include "compile/passes/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/passes/passes.h"
#include "execute/compile_test.h"
#include "lockstep/graph/variable.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "ops/matmul/matmul.h"
#include "ops/nn/batch_norm.h"
#include "ops/nn/normalize.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::counting;
using lockstep::testing::error_of;
using lockstep::testing::traced;
using ::testing::HasSubstr;

const TensorSpec kMatrix{DType::float32, {4, 4}};

Graph product() {
  return traced({kMatrix, kMatrix}, [](const TensorList& p) { return TensorList{exp(matmul(p[0], p[1]))}; });
}
Node& matmul_of(Graph& graph) {
  return *std::find_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const Node& node) { return node.op == &kMatmul; });
}

void expect_refused(const Graph& graph, const std::string& says) {
  const Error error = error_of([&] { verify(graph, DeviceKind::cpu); });
  EXPECT_EQ(error.code(), ErrorCode::internal);
  EXPECT_THAT(error.message(), HasSubstr(says));
}

TEST(Verify, ATracedGraphIsFine) {
  verify(product(), DeviceKind::cpu);
  verify(product(), DeviceKind::gpu);
}

TEST(Verify, MoreInputsThanTheOpTakes) {
  Graph graph = product();
  Node& node = matmul_of(graph);
  for (int i = 0; i < 3; ++i) node.inputs.push_back(node.inputs[0]);
  expect_refused(graph, "(matmul) has 5 inputs");
}

TEST(Verify, AnInputThatTheAttributesDoNotNameIsFound) {
  Graph graph = product();
  Node& node = matmul_of(graph);
  node.inputs.push_back(node.inputs[0]);
  expect_refused(graph, "matmul: takes 2 inputs");
  node.attrs = MatmulAttrs{.addend = true};
  verify(graph, DeviceKind::cpu);
}

TEST(Verify, ASpecThatTheRuleDoesNotMake) {
  Graph graph = product();
  matmul_of(graph).outputs[0].dtype = DType::bfloat16;
  expect_refused(graph, "its rule makes float32(4, 4)");
}

TEST(Verify, AnOutputThatTheRuleDoesNotMake) {
  Graph graph = product();
  matmul_of(graph).outputs.push_back(kMatrix);
  expect_refused(graph, "has 2 outputs, its rule makes 1");
}

TEST(Verify, AValueThatIsReadBeforeItIsThere) {
  Graph graph = product();
  std::swap(graph.nodes.front(), graph.nodes.back());
  expect_refused(graph, "which is not before it");
}

TEST(Verify, AResultThatDoesNotExist) {
  Graph graph = product();
  graph.outputs.push_back({static_cast<int32_t>(graph.nodes.size()), 0});
  expect_refused(graph, "an output is output 0 of node");
}

TEST(Verify, AnUpdateThatIsNotLikeItsVariable) {
  const Variable v(counting({4}));
  Graph graph = product();
  graph.updates.push_back({v, graph.outputs[0]});
  expect_refused(graph, "its new value float32(4, 4)");
}

// The sums of a batch normalisation's gradient take what rewrites give them, and nothing else.
TEST(Verify, SumsThatUndoARelu) {
  const TensorSpec x{DType::bfloat16, {6, 4}}, column{DType::float32, {4}};
  Graph graph = traced({x, column, x, column, column}, [](const TensorList& p) {
    const BatchNormSums sums = batch_norm_sums(p[0], p[1], p[2]);
    return TensorList{sums.sum, sums.product, p[3] * 2.0, p[4] * 2.0};
  });
  Node& sums = graph.nodes[static_cast<size_t>(graph.outputs[0].node)];
  sums.inputs.push_back({3, 0});
  sums.inputs.push_back({4, 0});
  expect_refused(graph, "batch_norm_sums: takes 3 inputs");
  sums.attrs = BatchNormSumsAttrs{BatchNormSumsAttrs::Dy::masked};
  verify(graph, DeviceKind::gpu);
  sums.attrs = BatchNormSumsAttrs{BatchNormSumsAttrs::Dy::joined};
  expect_refused(graph, "batch_norm_sums: the second gradient must be bfloat16(6, 4)");
}

// A kernel that reads 16-bit floats where the op has float32.
TEST(Verify, NarrowedOperandsOfAKernelThatReadsThem) {
  constexpr DeviceKind kKind = DeviceKind::null;  // whose kernels nobody asks for
  static const RegisterKernel narrow(kKind, kLayerNorm, {.narrow_inputs = 0b1, .narrow_outputs = 0b1});
  const TensorSpec x{DType::float32, {4, 8}}, weight{DType::float32, {8}};
  Graph graph = traced({x, weight, weight}, [](const TensorList& p) {
    return emit(kLayerNorm, p, LayerNormAttrs{}, std::source_location::current());
  });
  graph.nodes[0].outputs[0].dtype = DType::bfloat16;
  Node& norm = graph.nodes[static_cast<size_t>(graph.outputs[0].node)];
  norm.outputs[0].dtype = DType::bfloat16;
  verify(graph, kKind);
  expect_refused(graph, "layer_norm");
  norm.outputs[1].dtype = DType::bfloat16;
  EXPECT_EQ(error_of([&] { verify(graph, kKind); }).code(), ErrorCode::internal);
}

TEST(VerifyAfter, NamesThePass) {
  ASSERT_TRUE(verifies_graphs()) << "test programs switch it on";
  Graph graph = product();
  matmul_of(graph).outputs[0].dtype = DType::bfloat16;
  const Error error = error_of([&] { verify_after("a_pass", graph); });
  EXPECT_THAT(error.what(), HasSubstr("in the graph that the pass a_pass made"));
  verifies_graphs() = false;
  verify_after("a_pass", graph);
  verifies_graphs() = true;
}

// What a rewrite makes is looked at before anybody else sees it.
TEST(VerifyAfter, EveryRewriteIsFollowedByIt) {
  constexpr DeviceKind kKind = DeviceKind::null;
  static bool breaks = true;
  static const RegisterRewrite registered(
      kKind, {.name = "breaks_products", .apply = [](const Graph& graph, DeviceKind) -> std::optional<Graph> {
                if (!breaks) return std::nullopt;
                Graph broken = graph;
                matmul_of(broken).attrs = MatmulAttrs{.bias = true};
                return broken;
              }});
  const Error error = error_of([&] { apply_rewrites(product(), kKind); });
  EXPECT_THAT(error.what(), HasSubstr("breaks_products"));
  breaks = false;
  std::vector<std::string_view> applied;
  apply_rewrites(product(), kKind, &applied);
  EXPECT_TRUE(applied.empty());
}

}  // namespace
}  // namespace lockstep::compile
